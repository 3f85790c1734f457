"""Complete a run folder from the spools of its workers, where their master did not live to do it, and report again."""

import argparse
from pathlib import Path

from loadkit.cli.streams import say
from loadkit.plan.errors import ConfigError
from loadkit.record.folder import RunFolder
from loadkit.record.merge import merge, spools_of
from loadkit.report.finish import finish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder and the spools."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="run folder, such as runs/latest")
    parser.add_argument(
        "spools", type=Path, nargs="*", metavar="SPOOL", help="*.spool.jsonl of workers; default: those in RUN/spools"
    )


def main(args: argparse.Namespace) -> int:
    """Merge, say what was added, report; returns the exit code of the run as it now stands."""
    folder = RunFolder.open(args.folder)
    spools = args.spools or spools_of(folder)
    if not spools:
        raise ConfigError(f"{folder.spools_path} holds no spools: name the *.spool.jsonl files of the run's workers")
    merged = merge(folder, spools)
    damaged = f", {merged.damaged} lines damaged" if merged.damaged else ""
    say(
        f"merged {len(spools)} spools: {merged.records} requests and {merged.telemetry} samples added, "
        f"{merged.known} known already{damaged}"
    )
    if merged.live:
        say(f"{merged.live} workers have not ended: merge again when they have, for what they had in flight")
    return finish(folder.path)["exit_code"]
