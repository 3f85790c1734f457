"""SIGTERM, Ctrl-C and a terminal that goes away: the first drains, the second aborts what is in flight.
Both leave a complete folder.

Locust installs its own SIGTERM handler only after a shape has finished, so ours must be there before.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gevent

from loadkit.swarm.session import Session

WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
DRAINING = "{name}: draining, requests in flight go on to their end (again to abort them)"
ABORTING = "{name} again: aborting"


def watch(session: Session, *, abort: Callable[[], None], say: Callable[[str], None]) -> Callable[[], None]:
    """Watch the signals; returns a function that puts back what was there before.

    `abort` must end what is in flight; it may be called more than once. A signal that comes while the folder is being
    completed changes nothing.
    """

    def arrived(name: str) -> None:
        if session.live is not None and session.live.hurry():
            return
        if session.stopped_by is None:
            say(DRAINING.format(name=name))
            session.stop(name)
        else:
            say(ABORTING.format(name=name))
            abort()

    return on_signals(arrived)


def ignore() -> None:
    """Let no signal change an exit code that is settled, in the last moments of the process."""
    for number in WATCHED:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def interruptible() -> Iterator[None]:
    """While nothing is measured yet there is nothing to drain: the signals raise KeyboardInterrupt here.

    Not by a handler of Python's: the exception would arise in gevent's hub, which prints it first.
    """
    here = gevent.getcurrent()
    restore = on_signals(lambda name: gevent.kill(here, KeyboardInterrupt))
    try:
        yield
    finally:
        restore()


def on_signals(arrived: Callable[[str], None]) -> Callable[[], None]:
    """Call `arrived` with the name of a signal; returns a function that puts back what was there before.

    A signal that is ignored stays so: under nohup a terminal may go away.
    """
    found = {number: signal.getsignal(number) for number in WATCHED}
    before = {number: handler for number, handler in found.items() if handler is not signal.SIG_IGN}
    watchers = [gevent.signal_handler(number, arrived, signal.Signals(number).name) for number in before]

    def restore() -> None:
        for watcher in watchers:
            watcher.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
