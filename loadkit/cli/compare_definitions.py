"""Print a run as eight other tools would: TTFT, ITL, TPOT and throughput from the same marks, with causes."""

import argparse
import json
from pathlib import Path

from loadkit.analysis.peers.compare import Definitions
from loadkit.analysis.saved import summary_of
from loadkit.record.folder import RunFolder
from loadkit.record.names import ExitCode
from loadkit.report import peers_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder."""
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/latest"), help="default runs/latest")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, means and formulas too")


def main(args: argparse.Namespace) -> int:
    """Nothing is measured again: all numbers come from the records."""
    run = RunFolder.open(args.folder)
    definitions = Definitions()
    found = definitions.compare(summary_of(run, definitions.watch))
    if args.json:
        print(json.dumps({"run": run.path.name, **found}, indent=2))
    else:
        peers_table.show(found)
    return ExitCode.COMPLETE
