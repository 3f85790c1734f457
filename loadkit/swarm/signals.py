"""SIGTERM and Ctrl-C: the first drains, the second aborts what is in flight. Both leave a complete folder.

Locust installs its own SIGTERM handler only after a shape has finished, so ours must be there before.
"""

import signal
from collections.abc import Callable

import gevent

from loadkit.swarm.session import Session

DRAINING = "{name}: draining, requests in flight go on to their end (again to abort them)"


def install(
    session: Session, *, drain: Callable[[], None], abort: Callable[[], None], say: Callable[[str], None]
) -> Callable[[], None]:
    """Watch both signals; returns a function that stops watching.

    `drain` is called after the session was told to start nothing more, `abort` must end what is in flight.
    """
    watched = [
        gevent.signal_handler(number, _arrived, session, signal.Signals(number).name, drain, abort, say)
        for number in (signal.SIGTERM, signal.SIGINT)
    ]

    def uninstall() -> None:
        for watcher in watched:
            watcher.cancel()

    return uninstall


def _arrived(
    session: Session, name: str, drain: Callable[[], None], abort: Callable[[], None], say: Callable[[str], None]
) -> None:
    if session.stopped_by is None:
        say(DRAINING.format(name=name))
        session.stop(name)
        drain()
    else:
        say(f"{name} again: aborting")
        abort()
