"""Hook a run into Locust's own command line: `locust -f locustfiles/ladder.py --headless` runs the same plan.

Nothing happens at import: options are added when Locust asks for them, everything else after it has forked and parsed.
"""

import locust
from locust.env import Environment
from locust.exception import RPCError
from locust.runners import MasterRunner, WorkerRunner

import contextlib
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from loadkit.plan.errors import ConfigError, TargetError
from loadkit.plan.flags import PREFIX
from loadkit.plan.options import add_options, resolve
from loadkit.plan.resume import nothing_left
from loadkit.plan.text import must_ask, plan_text
from loadkit.record.errors import FolderError
from loadkit.record.names import ExitCode
from loadkit.swarm import signals
from loadkit.swarm.channel import Link
from loadkit.swarm.further import Decide
from loadkit.swarm.hosted import Hosted
from loadkit.swarm.local import Finish
from loadkit.swarm.prepare import prepare
from loadkit.swarm.session import Session
from loadkit.swarm.worker import Worker

# Options of Locust's that would spoil a run: what they would do, by the name of their value.
REFUSED = {
    "json": "--json prints Locust's rounded numbers into the report: take summary.json of the run folder instead",
    "json_file": "--json-file holds Locust's rounded numbers: take summary.json of the run folder instead",
}

_installed: list[Finish | None] = []


def install(finish: Finish | None = None, decide: Decide | None = None, **defaults: str) -> None:
    """Register with Locust's events; call it in a locustfile. Of several locustfiles the first call counts.

    `finish(folder)` is called when the run is over and returns a summary whose `exit_code` Locust then exits with;
    `loadkit.report.finish.finish` is one. `decide` may change the ladder while it is walked (`--refine`, 429, knees);
    `loadkit.analysis.decide.decide` does. `defaults` are for options that are not given, by their names with _ for -.
    """
    if _installed:
        return
    _installed.append(finish)
    _tell_of_a_taken_port()
    locust.events.init_command_line_parser.add_listener(_add_options)
    locust.events.init.add_listener(lambda environment, **_: _init(environment, finish, decide, defaults))
    # Registered at import time, so that it runs after the runner's own listener: the numbers are final then.
    locust.events.quitting.add_listener(_quit)


def _tell_of_a_taken_port() -> None:
    """A master that cannot listen is one line and an exit code; Locust makes its runner before it fires any event."""
    create = Environment.create_master_runner

    def create_or_leave(self: Environment, *args: Any, **options: Any) -> Any:
        try:
            return create(self, *args, **options)
        except RPCError as error:
            port = options.get("master_bind_port")
            _leave(
                f"loadkit: the master cannot listen on port {port} ({str(error)[:200]}): "
                "end the other master, or choose a port with --master-bind-port",
                ExitCode.USAGE,
            )

    Environment.create_master_runner = create_or_leave  # type: ignore[method-assign]


def _add_options(parser: Any, **_: Any) -> None:
    add_options(parser.add_argument_group("loadkit", "The plan, as for `loadkit run`."))


def _init(environment: Any, finish: Finish | None, decide: Decide | None, defaults: Mapping[str, str]) -> None:
    """Check, prepare and begin; a failure is one line and an exit code, as it is for `loadkit run`."""
    # A line per request costs time on the loop that stamps the reads.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if isinstance(environment.runner, WorkerRunner):
        signals.on_signals(Worker(environment, lambda line: _say(f"loadkit: {line}")).signalled)
        return
    link = Link(environment.runner) if isinstance(environment.runner, MasterRunner) else None
    try:
        with signals.interruptible():
            if environment.shape_class is None and environment.parsed_options.loadkit_resume is not None:
                raise ConfigError("--resume goes on with the visits of a plan, and this locustfile has no LadderShape")
            _fill(environment.parsed_options, defaults)
            session = _prepare(environment.parsed_options, decide, finish)
    except (ConfigError, FolderError) as error:
        _leave(f"loadkit: {error}", ExitCode.USAGE)
    except TargetError as error:
        _leave(f"loadkit: {error}", ExitCode.TARGET)
    except KeyboardInterrupt:
        _leave("loadkit: stopped", ExitCode.STOPPED)
    environment.loadkit_hosted = Hosted(environment, session, finish, _say, link)


def _fill(options: Any, defaults: Mapping[str, str]) -> None:
    """Give options that were not given the values of the locustfile; a run that is resumed has its own."""
    for name, value in defaults.items():
        if not hasattr(options, PREFIX + name):
            raise ConfigError(f"install() in the locustfile: there is no option --{name.replace('_', '-')}")
        if getattr(options, PREFIX + name) is None and options.loadkit_resume is None:
            setattr(options, PREFIX + name, value)


def _prepare(options: Any, decide: Decide | None, finish: Finish | None) -> Session:
    for name, message in REFUSED.items():
        if getattr(options, name, None):
            raise ConfigError(message)
    request = resolve(options, os.environ, Path.cwd())
    if request.resumed is not None and not request.resumed.todo:
        nothing_left(request.resumed, datetime.now(UTC))
        _say("nothing to do: every visit of this run is done")
        sys.exit(ExitCode.COMPLETE if finish is None else finish(request.resumed.folder.path)["exit_code"])
    for warning in request.warnings:
        _say(f"warning: {warning}")
    if request.dry_run:
        print(plan_text(request.plan, request.target, request.endpoint), end="")
        sys.exit(ExitCode.COMPLETE)
    asked = request.yes or request.resumed is not None  # it was, when the run began
    if not asked and (question := must_ask(request.plan)):
        raise ConfigError(question)
    # So does a table, drawn every two seconds; who wants it asks for it.
    options.only_summary = options.only_summary or not options.print_stats
    return prepare(request, os.environ, Path.cwd(), _say, decide)


def _quit(environment: Any, **_: Any) -> None:
    for name in ("loadkit_hosted", "loadkit_worker"):
        if (ours := getattr(environment, name, None)) is not None:
            ours.quit()


def _leave(line: str, code: int) -> NoReturn:
    _say(line)
    sys.exit(code)


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a closed or full standard error
        print(line, file=sys.stderr, flush=True)
