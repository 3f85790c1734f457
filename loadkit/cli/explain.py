"""Print what an outcome or a flag means and its causes, in the order in which to check them."""

import argparse
import textwrap

from loadkit.analysis.explain import CONFIGURATION, EXPLANATIONS, explain
from loadkit.plan.errors import ConfigError
from loadkit.record.names import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One name, or none for the order that fits every failure."""
    parser.add_argument("name", nargs="?", help="an outcome or a flag, such as rate_limited")


def main(args: argparse.Namespace) -> int:
    """Print the causes."""
    try:
        lines = explain(args.name)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    for number, line in enumerate(lines, 1):
        print(f"{number}. {line}")
    if args.name is None:
        print("\nThen by name, `loadkit explain NAME`:")
        print(textwrap.fill(", ".join((*EXPLANATIONS, *CONFIGURATION)), 100))
    return ExitCode.COMPLETE
