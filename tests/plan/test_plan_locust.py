"""The options beside Locust's own, in a process of their own because importing locust patches the standard library."""

import json
import subprocess
import sys

SCRIPT = """
import locust.argument_parser as parsers
import json, sys
from pathlib import Path
from loadkit.plan.options import add_options, resolve
parser = parsers.get_empty_argument_parser(add_help=False)
parsers.setup_parser_arguments(parser)
own = set(a.dest for a in parser._actions)
flags = set(s for a in parser._actions for s in a.option_strings)
add_options(parser)
added = [a for a in parser._actions if a.dest not in own]
options = parser.parse_args(sys.argv[1:])
made = resolve(options, {}, Path("."), new_seed=lambda: 1)
print(json.dumps({
    "dests": sorted(a.dest for a in added),
    "clash": sorted(flags & set(s for a in added for s in a.option_strings)),
    "cells": [cell.id for cell in made.plan.cells],
    "url": made.endpoint.base_url,
    "host": options.host,
    "users": options.num_users,
    "values": {k: v for k, v in vars(options).items() if k.startswith("loadkit_")},
}))
"""


def test_the_options_live_beside_locusts_own():
    """Locust's parser takes them, none of its names is touched, and the values are builtins for its workers."""
    argv = ["--host", "http://h", "-u", "3", "--tiers", "1K", "--concurrency", "2", "--header", "X-A=1", "--dry-run"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *argv], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["clash"] == []
    assert len(seen["dests"]) >= 29
    assert all(dest.startswith("loadkit_") for dest in seen["dests"])
    assert (seen["host"], seen["users"], seen["url"], seen["cells"]) == ("http://h", 3, "http://h", ["1024x2"])
    assert seen["values"]["loadkit_header"] == ["X-A=1"]
    assert seen["values"]["loadkit_tiers"] == "1K"
