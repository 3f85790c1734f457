"""Serve a simulated endpoint: `loadkit sim serve --per-token-ms 0.1 --itl-ms 20`. Its latency law is known."""

import argparse
import os
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything is passed on; `loadkit sim serve --help` shows its own options."""
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="serve ...")


def main(args: argparse.Namespace) -> int:
    """Become the simulator: it is a program of its own and imports nothing of the other rooms."""
    words = [sys.executable, "-m", "loadkit.sim", *args.words]
    os.execve(sys.executable, words, {**os.environ, "LOADKIT_PROGRAM": "loadkit sim"})
