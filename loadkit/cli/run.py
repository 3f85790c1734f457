"""Run a ladder of context lengths and concurrencies: against a URL, an endpoint, or the embedded engine."""

import argparse
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from loadkit.cli.streams import say
from loadkit.plan.errors import ConfigError
from loadkit.plan.options import RunRequest, add_options, resolve
from loadkit.plan.resume import Resumed, nothing_left
from loadkit.plan.text import must_ask, plan_text
from loadkit.record.names import ExitCode

MAX_WORKERS = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run; the same ones work with `locust -f locustfiles/ladder.py`."""
    add_options(parser, positional_url=True)
    parser.add_argument("--workers", metavar="N", help="share the streams out over N processes of this machine")


def main(args: argparse.Namespace) -> int:
    """Run, report, and return the exit code."""
    workers = _workers(args.workers)
    return start(resolve(args, os.environ, Path.cwd()), workers)


def start(request: RunRequest, workers: int | None = None) -> int:
    """Run what was asked for; `workers` None measures in this process."""
    for warning in request.warnings:
        say(f"warning: {warning}")
    if request.resumed is not None and not request.resumed.todo:
        return _nothing_left(request.resumed)
    if request.dry_run:
        print(plan_text(request.plan, request.target, request.endpoint), end="")
        return ExitCode.COMPLETE
    asked = request.yes or request.resumed is not None  # it was, when the run began
    if not asked and (question := must_ask(request.plan)):
        raise ConfigError(question)
    # The swarm patches the standard library, so it comes before what opens sockets, and only for this verb.
    from loadkit.swarm.local import run_local  # isort: skip
    from loadkit.analysis.decide import decide
    from loadkit.report.brief import finish_briefly
    from loadkit.report.finish import finish
    from loadkit.swarm.forked import run_fleet
    from loadkit.swarm.prepare import prepare
    from loadkit.swarm.progress import Progress
    from loadkit.swarm.signals import interruptible

    with interruptible():
        session = prepare(request, os.environ, Path.cwd(), _silent if request.quiet else say, decide)
    progress = Progress(session.plan, sys.stderr, walk=session.visits.left, quiet=request.quiet)
    finish = finish_briefly if request.quiet else finish
    if workers is None:
        code = run_local(session, progress, say, finish)
    else:
        code = run_fleet(session, progress, say, workers, finish)
    assert code is not None
    return code


def _silent(line: str) -> None:
    """Of a quiet run only errors and the verdict are printed."""


def _nothing_left(run: Resumed) -> int:
    """The run is finished: show its report again, and exit as it says."""
    from loadkit.report.finish import finish

    nothing_left(run, datetime.now(UTC))
    say("nothing to do: every visit of this run is done")
    code: int = finish(run.folder.path)["exit_code"]
    return code


def _workers(text: str | None) -> int | None:
    """The number of worker processes; None where everything is measured in this one."""
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_WORKERS:
        raise ConfigError(f"--workers {text[:40]!r}: must be a whole number from 1 to {MAX_WORKERS}")
    return int(text)
