"""Find where TTFT bends over prompt length and over concurrency, in a run or in anyone's CSV file."""

import argparse
import json
from pathlib import Path
from typing import Any

from loadkit.analysis.bend_words import sentence
from loadkit.analysis.bends import entry
from loadkit.analysis.curves import AXES, METRICS, Curve, read
from loadkit.plan.errors import ConfigError
from loadkit.record.folder import RunFolder
from loadkit.record.names import ExitCode
from loadkit.report import knee
from loadkit.report.finish import summary_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run folder or a file, and what to look at."""
    parser.add_argument("folder", nargs="?", type=Path, help="run folder; default runs/latest")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="a table with column names, instead of a run")
    parser.add_argument("--x", metavar="COL", help="column of prompt tokens or streams; default the first")
    parser.add_argument("--y", metavar="COL", action="append", help="column of repeats; repeatable; default by name")
    parser.add_argument("--axis", choices=AXES, help="what x is; of a run: which knees to print, default both")
    parser.add_argument("--metric", choices=METRICS, help="what the columns of --csv measure; default by their names")
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(args: argparse.Namespace) -> int:
    """Nothing is measured or written."""
    if args.csv is None:
        _run(args)
    elif args.folder is not None:
        raise ConfigError("a run folder and --csv are both given: keep one")
    else:
        _table(args)
    return ExitCode.COMPLETE


def _run(args: argparse.Namespace) -> None:
    if args.x or args.y or args.metric:
        raise ConfigError("--x, --y and --metric go with --csv FILE")
    summary = summary_of(RunFolder.open(args.folder or Path("runs/latest")).path)
    if not args.json:
        knee.show(summary, axis=args.axis)
        return
    other = {"length": "concurrency", "concurrency": "length"}.get(args.axis)
    print(json.dumps({name: value for name, value in summary["knee"].items() if name != other}, indent=2))


def _table(args: argparse.Namespace) -> None:
    curves = [_located(curve) for curve in read(args.csv, x=args.x, y=args.y or (), axis=args.axis, metric=args.metric)]
    if args.json:
        print(json.dumps({"file": args.csv.name, "curves": curves}, indent=2))
    else:
        knee.show_curves(curves)


def _located(curve: Curve) -> dict[str, Any]:
    found = entry(curve.points, curve.axis, curve.metric, curve.dropped)
    named = {"axis": curve.axis, "metric": curve.metric, "columns": curve.columns}
    return {**named, **found, "sentence": sentence(found, curve.axis, curve.metric)}
