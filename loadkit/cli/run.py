"""Run a ladder of context lengths and concurrencies: against a URL, an endpoint, or the embedded engine."""

import argparse
import os
import sys
from pathlib import Path

from loadkit.cli.streams import say
from loadkit.plan.errors import ConfigError
from loadkit.plan.options import add_options, resolve
from loadkit.plan.text import must_ask, plan_text
from loadkit.record.names import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run; the same ones work with `locust -f locustfiles/ladder.py`."""
    add_options(parser, positional_url=True)


def main(args: argparse.Namespace) -> int:
    """Run, report, and return the exit code."""
    request = resolve(args, os.environ, Path.cwd())
    for warning in request.warnings:
        say(f"warning: {warning}")
    if request.dry_run:
        print(plan_text(request.plan, request.target, request.endpoint), end="")
        return ExitCode.COMPLETE
    if not request.yes and (question := must_ask(request.plan)):
        raise ConfigError(question)
    # The swarm patches the standard library, so it comes before what opens sockets, and only for this verb.
    from loadkit.swarm.local import run_local  # isort: skip
    from loadkit.report.finish import finish
    from loadkit.swarm.prepare import prepare
    from loadkit.swarm.progress import Progress
    from loadkit.swarm.signals import interruptible

    with interruptible():
        session = prepare(request, os.environ, Path.cwd(), say)
    code = run_local(session, Progress(session.plan, sys.stderr), say, finish)
    assert code is not None
    return code
