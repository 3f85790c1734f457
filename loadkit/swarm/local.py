"""Run a session in this process through Locust's own runner, without its command line."""

import locust
from locust.env import Environment

import gc
from collections.abc import Callable

from loadkit.swarm import events, signals
from loadkit.swarm.progress import Progress
from loadkit.swarm.session import Session, bind
from loadkit.swarm.shape import LadderShape
from loadkit.swarm.users import LadderUser


def run_local(session: Session, progress: Progress, say: Callable[[str], None]) -> None:
    """Walk the plan to its end, or to the end that a signal asks for; the run folder is complete afterwards."""
    environment = Environment(user_classes=[LadderUser], shape_class=LadderShape(), events=locust.events)
    runner = environment.create_local_runner()
    begin(session, environment, progress)
    runner.start_shape()
    shape = runner.shape_greenlet
    assert shape is not None
    # Killing the shape ends the wait below; quitting then ends the users, and each hands over its record first.
    unwatch = signals.install(session, drain=lambda: None, abort=lambda: shape.kill(block=False), say=say)
    try:
        shape.join()
    finally:
        runner.quit()
        unwatch()
        end(session, progress)


def begin(session: Session, environment: Environment, progress: Progress) -> None:
    """Bind and open the session, and keep the garbage collector away from the streams."""
    bind(environment, session)
    session.open()
    session.every_second(progress.tick)
    events.stage.add_listener(progress.on_stage)
    events.record.add_listener(progress.on_record)
    gc.collect()
    gc.freeze()
    gc.disable()


def end(session: Session, progress: Progress) -> None:
    """Undo `begin`; what the session holds is on disk then."""
    gc.enable()
    events.stage.remove_listener(progress.on_stage)
    events.record.remove_listener(progress.on_record)
    session.close()
