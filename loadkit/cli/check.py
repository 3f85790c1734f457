"""Find out whether a target answers, before loading it: base URL, key, model, window, stopping at the first failure."""

import argparse
import os
import sys
from pathlib import Path

from loadkit.plan.options import add_options, resolve
from loadkit.record.names import ExitCode
from loadkit.target import table
from loadkit.target.check import check
from loadkit.target.control import open_client


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run that say where to."""
    add_options(parser, positional_url=True)


def main(args: argparse.Namespace) -> int:
    """Print each finding as it is made."""
    request = resolve(args, os.environ, Path.cwd())
    for warning in request.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    target = table.start(request, os.environ, Path.cwd())
    try:
        key = target.endpoint.key(os.environ)
        with open_client(target.endpoint, key, os.environ) as client:
            found = check(client, target.endpoint, key, os.environ, say=print)
    finally:
        target.stop()
    ping = found.pings[0]
    print(f"window: {found.window or 'not stated'}")
    print(f"streaming: {'no' if ping.ttft_ms is None else f'yes, first token after {ping.ttft_ms:.0f} ms'}")
    return ExitCode.COMPLETE
