"""The end of a quiet run: everything is written, and only what one has to know is printed."""

import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from loadkit.record.names import ExitCode
from loadkit.report import words
from loadkit.report.finish import finish
from loadkit.report.terminal import encodable

VERDICTS: dict[int, str] = {
    ExitCode.COMPLETE: "complete",
    ExitCode.INCOMPLETE: "incomplete",
    ExitCode.SLO_FAILED: "an objective is missed",
    ExitCode.TARGET: "the target cannot be loaded",
    ExitCode.SATURATED: "the load generator was saturated",
    ExitCode.STOPPED: "stopped",
}


def finish_briefly(folder: Path, *, stream: IO[str] = sys.stdout) -> dict[str, Any]:
    """As `finish`, with a line for the verdict, what stands against it, and the folder."""
    summary = finish(folder, stream=io.StringIO())
    for line in (*lines(summary), f"Run folder: {folder}"):
        print(encodable(line, stream), file=stream)
    stream.flush()
    return summary


def lines(summary: dict[str, Any]) -> Iterable[str]:
    """The verdict in one line; then how the run was cut short, if it was, and the objectives that are missed."""
    cells, totals = summary["cells"], summary["totals"]
    counted = [f"{len(cells)} cell{'s' if len(cells) != 1 else ''}"]
    for status in ("invalid", "suspect"):
        if found := sum(cell["validity"]["status"] == status for cell in cells):
            counted.append(f"{found} {status}")
    counted.append(f"{totals['ok']} of {totals['requests']} requests ok")
    yield f"{VERDICTS.get(summary['exit_code'], 'no verdict')}: {', '.join(counted)}"
    yield from words.course(summary)
    missed = {item["name"] for item in summary["objectives"] if item["met"] is False}
    yield from (line for line in words.objectives(summary) if any(f"Objective {name} " in line for name in missed))
