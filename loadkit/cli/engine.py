"""The NumPy engine: `serve` it (OpenAI-compatible, loopback), `bench` it in one process, or run the `ladder` on it."""

import argparse
import os
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything is passed on; `loadkit engine serve --help` shows the engine's own options."""
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="serve|bench|ladder ...")


def main(args: argparse.Namespace) -> int:
    """Become the engine: it is a program of its own and imports nothing of the other rooms. The ladder is a run."""
    if args.words[:1] != ["ladder"]:
        words = [sys.executable, "-m", "loadkit.engine", *args.words]
        os.execve(sys.executable, words, {**os.environ, "LOADKIT_PROGRAM": "loadkit engine"})
    return _ladder(args.words[1:])


def _ladder(words: list[str]) -> int:
    from loadkit.cli import engine_ladder
    from loadkit.cli.main import Parser

    parser = Parser(prog="loadkit engine ladder", description=engine_ladder.__doc__)
    engine_ladder.add_arguments(parser)
    return engine_ladder.main(parser.parse_args(words))
