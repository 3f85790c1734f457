"""Hook a run into Locust's own command line: `locust -f locustfiles/ladder.py --headless` runs the same plan.

Nothing happens at import: options are added when Locust asks for them, everything else after it has forked and parsed.
"""

import locust

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent

from loadkit.plan.errors import ConfigError, TargetError
from loadkit.plan.options import add_options, resolve
from loadkit.plan.text import must_ask, plan_text
from loadkit.record.errors import FolderError
from loadkit.record.names import ExitCode
from loadkit.swarm import signals
from loadkit.swarm.local import begin, end
from loadkit.swarm.prepare import prepare
from loadkit.swarm.progress import Progress
from loadkit.swarm.session import Session, session_of

Finish = Callable[[Path], dict[str, Any]]


def install(finish: Finish | None = None) -> None:
    """Register with Locust's events; call it once in a locustfile.

    `finish(folder)` is called when the run is over and returns a summary whose `exit_code` Locust then exits with;
    `loadkit.report.finish.finish` is one.
    """
    locust.events.init_command_line_parser.add_listener(_add_options)
    locust.events.init.add_listener(_init)
    # Registered at import time, so that it runs after the runner's own listener: the numbers are final then.
    locust.events.quitting.add_listener(lambda environment, **_: _quit(environment, finish))


def _add_options(parser: Any, **_: Any) -> None:
    add_options(parser.add_argument_group("loadkit", "The plan, as for `loadkit run`."))


def _init(environment: Any, **_: Any) -> None:
    """Check, prepare and bind; a failure is one line and an exit code, as it is for `loadkit run`."""
    try:
        request = resolve(environment.parsed_options, os.environ, Path.cwd())
        if request.dry_run:
            print(plan_text(request.plan, request.target, request.endpoint), end="")
            sys.exit(ExitCode.COMPLETE)
        if not request.yes and (question := must_ask(request.plan)):
            raise ConfigError(question)
        session = prepare(request, os.environ, Path.cwd(), _say)
    except (ConfigError, FolderError) as error:
        _say(f"loadkit: {error}")
        sys.exit(ExitCode.USAGE)
    except TargetError as error:
        _say(f"loadkit: {error}")
        sys.exit(ExitCode.TARGET)
    _watch(environment, session)


def _watch(environment: Any, session: Session) -> None:
    if environment.shape_class is None:
        session.without_ladder()
    progress = Progress(session.plan, sys.stderr)
    begin(session, environment, progress)
    environment.loadkit_progress = progress
    if not environment.stop_timeout:
        # Locust would cut streams that are in flight at the end; they are measured to their own deadlines instead.
        longest = max(cell.target_tokens for cell in session.plan.cells)
        environment.stop_timeout = session.plan.timeouts.for_tier(longest).total or 0
    signals.install(session, drain=lambda: _drain(environment), abort=lambda: _abort(environment, session), say=_say)


def _drain(environment: Any) -> None:
    """A shape sees by itself that the run is over; without one the runner is asked to let its users finish."""
    if environment.shape_class is None:
        gevent.spawn(environment.runner.quit)


def _abort(environment: Any, session: Session) -> None:
    """End what is in flight now; every user still hands over its record."""
    environment.stop_timeout = 0
    session.visits.close()
    if environment.runner.shape_greenlet is not None:
        environment.runner.shape_greenlet.kill(block=False)
    gevent.spawn(environment.runner.quit)


def _quit(environment: Any, finish: Finish | None) -> None:
    """The run is over, however Locust came to that: let users finish, complete the folder, set the exit code."""
    session = session_of(environment)
    if session is None:
        return
    session.visits.stop()
    environment.runner.quit()
    end(session, environment.loadkit_progress)
    if session.fault:
        _say(f"loadkit: {session.fault}")
    if finish is not None:
        environment.process_exit_code = finish(session.folder.path)["exit_code"]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
