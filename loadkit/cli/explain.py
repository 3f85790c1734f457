"""Print what an outcome or a flag means and its causes, in the order in which to check them."""

import argparse
import sys

from loadkit.analysis import explain
from loadkit.record.names import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One name, or none for the order that fits every failure."""
    parser.add_argument("name", nargs="?", help="an outcome or a flag, such as rate_limited")
