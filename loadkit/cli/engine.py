"""Serve the NumPy engine: `loadkit engine serve --model PATH`. It is an OpenAI-compatible server on loopback."""

import argparse
import os
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything is passed on; `loadkit engine serve --help` shows the engine's own options."""
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="serve ...")


def main(args: argparse.Namespace) -> int:
    """Become the engine: it is a program of its own and imports nothing of the other rooms."""
    os.execv(sys.executable, [sys.executable, "-m", "loadkit.engine", *args.words])
