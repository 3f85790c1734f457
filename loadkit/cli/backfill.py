"""Bring a finished run into Prometheus: its metrics as OpenMetrics with timestamps, and as blocks where promtool is."""

import argparse
import shutil
import subprocess
from pathlib import Path

from loadkit.cli.streams import say
from loadkit.live import backfill
from loadkit.plan.errors import ConfigError
from loadkit.record.errors import FolderError, reason
from loadkit.record.folder import RunFolder
from loadkit.record.jsonl import read
from loadkit.record.names import ExitCode
from loadkit.report.finish import summary_of

PROMTOOL_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, and where the blocks go."""
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("runs/latest"), metavar="RUN", help="default runs/latest"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the blocks; default RUN/prometheus")


def main(args: argparse.Namespace) -> int:
    """Write RUN/metrics.om and its blocks, and say how to look at them."""
    folder = RunFolder.open(args.folder)
    text, blocks = folder.path / "metrics.om", args.out or folder.path / "prometheus"
    samples = _write(folder, text)
    say(f"{text}: {samples:,} samples")
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(blocks)]
    if shutil.which(command[0]) is None:
        say(f"promtool is not on the path; where Prometheus is installed: {' '.join(command)}")
    else:
        _make(command, blocks)
    say(
        f"serve them: prometheus --config.file=/dev/null --storage.tsdb.path={blocks} --storage.tsdb.retention.time=20y"
    )
    return ExitCode.COMPLETE


def _write(folder: RunFolder, path: Path) -> int:
    manifest = folder.read_manifest()
    records = read(folder.records_path).records if folder.records_path.exists() else []
    telemetry = read(folder.telemetry_path).telemetry if folder.telemetry_path.exists() else []
    try:
        about = backfill.about_of(manifest, telemetry)
        happened = backfill.moments(records, telemetry, manifest)
        return backfill.write(about, happened, summary_of(folder.path), path)
    except ValueError as error:
        raise ConfigError(f"{folder.path}: {error}: there is nothing to bring into Prometheus") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise FolderError(f"{folder.path}: manifest or records are not as loadkit writes them ({error})") from None
    except OSError as error:
        raise FolderError(f"cannot write {path}: {reason(error)}") from error


def _make(command: list[str], blocks: Path) -> None:
    """Run promtool; blocks of an earlier time stand beside new ones, so a folder that has some is refused."""
    if blocks.is_dir() and any(blocks.iterdir()):
        raise FolderError(f"{blocks} is not empty: remove it, or name another folder with --out")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROMTOOL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FolderError(f"promtool could not be run: {error}") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise FolderError(f"promtool failed: {lines[-1][:300]}")
    say(f"{blocks}: {sum(path.is_dir() for path in blocks.iterdir())} blocks")
