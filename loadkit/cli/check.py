"""Find out whether a target answers, before loading it: base URL, key, model, window, stopping at the first failure."""

import argparse
import os
from functools import partial
from pathlib import Path

from loadkit.call.choose import without_proxies
from loadkit.cli.streams import say
from loadkit.plan.flags import EXCHANGE
from loadkit.plan.options import add_options, resolve
from loadkit.record.names import ExitCode
from loadkit.target import table
from loadkit.target.check import check, long_ping, send
from loadkit.target.control import open_client
from loadkit.target.findings import cache, described


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run that say where to; the rest of them is taken and says nothing here."""
    add_options(parser, positional_url=True, shown={*EXCHANGE, "target", "weights", "ttft-timeout", "read-timeout"})


def main(args: argparse.Namespace) -> int:
    """Print each finding as it is made."""
    request = resolve(args, os.environ, Path.cwd())
    environ = os.environ if request.plan.proxy else without_proxies(os.environ)
    for warning in request.warnings:
        say(f"warning: {warning}")
    target = table.start(request, environ, Path.cwd())
    try:
        key = target.endpoint.key(environ)
        with open_client(target.endpoint, key, environ) as client:
            found = check(client, target.endpoint, key, environ, tokenizer=request.plan.tokenizer, say=print)
        print(f"window: {found.window or 'not stated'}")
        print("\n".join(described(found.pings[0])))
        text = long_ping(found.window)
        again = partial(send, found.endpoint, key, environ, text)
        print(cache(found.pings[-1], again, found.counting.overhead_tokens))
    finally:
        target.stop()
    return ExitCode.COMPLETE
