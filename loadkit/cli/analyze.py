"""Recompute every number from a records file: a run folder, its records.jsonl, or JSON or CSV of another tool."""

import argparse
import json
from pathlib import Path

from loadkit.analysis.offline.analyse import analyse
from loadkit.plan.errors import ConfigError
from loadkit.record.names import ExitCode
from loadkit.report import analyze_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, and what it does not say itself."""
    parser.add_argument("file", nargs="?", type=Path, default=Path("runs/latest"), help="default runs/latest")
    parser.add_argument("--bos", metavar="N", help="BOS tokens inside the token counts, where the file does not say")
    parser.add_argument(
        "--map", metavar="FIELD=COLUMN", action="append", default=[], help="what a column of another tool's file means"
    )
    parser.add_argument("--explain", action="store_true", help="print the formula and inputs of every number")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def main(args: argparse.Namespace) -> int:
    """Nothing is measured and no file is written."""
    if args.bos is not None and not (args.bos.isascii() and args.bos.isdigit() and len(args.bos) < 4):
        raise ConfigError(f"--bos {args.bos}: a count of tokens such as 0 or 1")
    bos = None if args.bos is None else int(args.bos)
    found = analyse(args.file, bos=bos, mapping=args.map, explain=args.explain)
    if args.json:
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        analyze_table.show(found)
    return ExitCode.COMPLETE
