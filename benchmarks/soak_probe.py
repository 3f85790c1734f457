"""The locustfile of `soak.py`: a run as ever, in which every process notes what it holds.

SOAK_NOTES names a folder; each process appends lines of JSON to a file of its own there.
"""

import locust
from locust.runners import MasterRunner

import gc
import json
import os
import time
from pathlib import Path
from typing import Any

import gevent
import psutil
from greenlet import greenlet

from loadkit.swarm import LadderShape, LadderUser, install  # noqa: F401  Locust finds the classes by their names
from loadkit.swarm.events import stage

PERIOD_S = 2.5


def begin(environment: Any, **_: Any) -> None:
    """After Locust has forked: a process that watches itself."""
    master = isinstance(environment.runner, MasterRunner)
    gevent.spawn(note, "master" if master else "worker")
    if master:
        stage.add_listener(lambda state, **_: once(environment, state))


def once(environment: Any, state: str) -> None:
    """The visit is not repeated: for what is looked at here it does not matter that the machine was busy."""
    if state != "open":
        environment.loadkit_session.visits.stop()


def note(role: str) -> None:
    """Memory (bytes), descriptors and live greenlets, every few seconds."""
    this = psutil.Process()
    with (Path(os.environ["SOAK_NOTES"]) / f"{role}-{this.pid}").open("w") as lines:
        while True:
            held = {"rss": this.memory_info().rss, "descriptors": this.num_fds(), "greenlets": greenlets()}
            print(json.dumps({"at": time.monotonic(), "role": role, **held}), file=lines, flush=True)
            gevent.sleep(PERIOD_S)


def greenlets() -> int:
    """Greenlets that have not ended. What was there at the start is frozen, so there is little to look through."""
    return sum(isinstance(thing, greenlet) and not thing.dead for thing in gc.get_objects())


install()
locust.events.init.add_listener(begin)
