"""Print the report of a run folder again and write summary.json, summary.csv, report.md and report.html."""

import argparse
from pathlib import Path

from loadkit.record.folder import RunFolder
from loadkit.record.names import ExitCode
from loadkit.report.finish import finish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder."""
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/latest"), help="default runs/latest")


def main(args: argparse.Namespace) -> int:
    """Nothing is measured again: all numbers come from the records."""
    finish(RunFolder.open(args.folder).path)
    return ExitCode.COMPLETE
