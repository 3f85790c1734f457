"""Compare two runs that differ in one thing: medians, intervals and a verdict on each cell."""

import argparse
import json
from pathlib import Path

from loadkit.analysis.comparable import one_thing
from loadkit.analysis.diff import ByRound, diff
from loadkit.analysis.saved import summary_of
from loadkit.plan.errors import ConfigError
from loadkit.record.folder import RunFolder
from loadkit.record.names import ExitCode
from loadkit.report import diff_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The two folders."""
    parser.add_argument("run_a", metavar="RUN_A", type=Path, help="folder of the run that is compared with")
    parser.add_argument("run_b", metavar="RUN_B", type=Path, help="folder of the run that is judged")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def main(args: argparse.Namespace) -> int:
    """Refuse what is not comparable, compare the rest. Everything comes from the manifests and the records."""
    a, b = RunFolder.open(args.run_a), RunFolder.open(args.run_b)
    try:
        change = one_thing(a.read_manifest(), b.read_manifest())
    except ValueError as error:
        raise ConfigError(str(error)) from None
    rounds_a, rounds_b = ByRound(), ByRound()
    summary_a, summary_b = summary_of(a, rounds_a.watch), summary_of(b, rounds_b.watch)
    found = diff(rounds_a.cells(), summary_a, rounds_b.cells(), summary_b)
    if not found["cells"]:
        raise ConfigError(f"{args.run_a} and {args.run_b} have no cell in common: nothing to compare")
    if args.json:
        differs = change and {"name": change.name, **dict(zip("ab", change.shown, strict=True))}
        print(json.dumps({"run_a": a.path.name, "run_b": b.path.name, "differs_in": differs, **found}, indent=2))
    else:
        diff_table.show(found, change)
    return ExitCode.COMPLETE
