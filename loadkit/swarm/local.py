"""Run a session in this process through Locust's own runner, without its command line."""

import locust
from locust.env import Environment

import contextlib
import gc
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loadkit.record.errors import FolderError
from loadkit.record.names import ExitCode
from loadkit.swarm import events, signals
from loadkit.swarm.boarding import Boarding
from loadkit.swarm.live import Live
from loadkit.swarm.progress import Progress
from loadkit.swarm.server_times import ServerTimes
from loadkit.swarm.session import Session, bind
from loadkit.swarm.shape import LadderShape
from loadkit.swarm.users import LadderUser

Finish = Callable[[Path], dict[str, Any]]
"""Reports on a run folder and returns its summary, whose `exit_code` the process exits with."""


def run_local(
    session: Session, progress: Progress, say: Callable[[str], None], finish: Finish | None = None
) -> int | None:
    """Walk the plan to its end, or to the end that a signal asks for; the run folder is complete afterwards.

    Returns the exit code that `finish` gives, None without one. With it the process is taken to be at its end.
    """
    environment = Environment(user_classes=[LadderUser], shape_class=LadderShape(), events=locust.events)
    runner = environment.create_local_runner()

    def abort() -> None:
        # Killing the shape ends the wait below; quitting then ends the users, and each hands over its record first.
        if runner.shape_greenlet is not None:
            runner.shape_greenlet.kill(block=False)

    unwatch = signals.watch(session, abort=abort, say=progress.note)
    try:
        begin(session, environment, progress)
        runner.start_shape()
        try:
            assert runner.shape_greenlet is not None
            runner.shape_greenlet.join()
        finally:
            runner.quit()
            end(session, environment, progress)
        return conclude(session, finish, say)
    finally:
        unwatch()
        if finish is not None:
            signals.ignore()


def begin(session: Session, environment: Environment, progress: Progress) -> None:
    """Open the session and show how it goes."""
    session.records.add_listener(progress.on_record)
    progress.about = lambda: session.about_fleet()
    Live(session, progress.note)
    settle(session, environment)
    session.boarding = Boarding(session, progress.note)
    session.every_second(progress.tick)
    session.when_repeated = progress.on_change
    if session.further is not None:
        session.further.when_changed = progress.on_change
    events.stage.add_listener(progress.on_stage)


def settle(session: Session, environment: Environment) -> None:
    """Bind and open the session, and keep from the streams what would stall the loop."""
    bind(environment, session)
    session.complete = ServerTimes(session).complete
    session.open()
    events.stage.add_listener(_collect)
    # Locust may stop the test by itself: users that are in a task must then see that the run is over.
    environment.events.test_stopping.add_listener(session.on_test_stopping)
    # Locust looks at the stack when it stops a test; the first look reads sources for 30 ms, with streams in flight.
    inspect.stack()
    gc.collect()
    gc.freeze()
    if session.ladder:  # other runs have no pause in which to collect
        gc.disable()


def end(session: Session, environment: Environment, progress: Progress) -> None:
    """Undo `begin`; what the session holds is on disk then."""
    gc.enable()
    events.stage.remove_listener(progress.on_stage)
    events.stage.remove_listener(_collect)
    session.records.remove_listener(progress.on_record)
    environment.events.test_stopping.remove_listener(session.on_test_stopping)
    if session.live is not None:
        session.live.close()
    if session.boarding is not None:
        session.boarding.close()
    session.close()


def conclude(session: Session, finish: Finish | None, say: Callable[[str], None]) -> int | None:
    """Say why the run could not go on, if so, and report; a report that cannot be written is a run not complete."""
    if session.fault:
        say(f"loadkit: {session.fault}")
    if session.limited:
        say(f"loadkit: {session.limited}; --resume goes on")
    if finish is None:
        return _ended(session, None)
    try:
        summary = finish(session.folder.path)
    except FolderError as error:
        if not session.fault:
            say(f"loadkit: {error}")
        return _unreported(session)
    except (BrokenPipeError, SystemExit):  # rich makes the one into the other
        # Who read our output has gone, but the summary is written before anything is printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        summary = json.loads(session.folder.summary_path.read_bytes())
    return _ended(session, summary)


def _unreported(session: Session) -> int:
    """The exit code of a run whose report is not whole: incomplete, or what comes before that."""
    found = [ExitCode.INCOMPLETE, *([ExitCode.STOPPED] if session.stopped_by else [])]
    with contextlib.suppress(OSError, ValueError, KeyError):  # the summary is written first
        found.append(json.loads(session.folder.summary_path.read_bytes())["exit_code"])
    return min((code for code in found if code in ExitCode.CHECKED), key=ExitCode.CHECKED.index)


def _ended(session: Session, summary: dict[str, Any] | None) -> int | None:
    """Show the live metrics the end; returns the exit code."""
    if session.live is not None:
        session.live.end(summary)
    return None if summary is None else summary["exit_code"]


def _collect(*, state: str, **_: object) -> None:
    """Between two visits no stream is in flight, so the collector may have its time."""
    if state != "open":
        gc.collect()
