"""`loadkit run --workers N`: a master in this process, and worker processes of this machine that live as long as it."""

import locust
from locust.env import Environment

from argparse import Namespace
from collections.abc import Callable
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired

import gevent

from loadkit.prompt.child import python_module
from loadkit.swarm import signals
from loadkit.swarm.channel import Link
from loadkit.swarm.fleet import Fleet
from loadkit.swarm.local import Finish, begin, conclude, end
from loadkit.swarm.progress import Progress
from loadkit.swarm.session import Session
from loadkit.swarm.shape import LadderShape
from loadkit.swarm.users import LadderUser

HOST = "127.0.0.1"
POLL_S = 0.2
STOP_S = 10.0


class Processes:
    """Starts `count` workers and a new one for each that ends before the run does, at most as many again."""

    def __init__(self, count: int, port: int, fleet: Fleet) -> None:
        self._command = [*python_module("loadkit.swarm"), HOST, str(port)]
        self._fleet = fleet
        self._spare = count
        self._running = [self._start() for _ in range(count)]
        self._watcher = gevent.spawn(self._watch)

    def stop(self) -> None:
        """Wait until they have ended, which the master has asked of them; those that do not are killed."""
        self._watcher.kill()
        for process in self._running:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(STOP_S)
            except TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> Popen[bytes]:
        # Ctrl-C in the terminal reaches the whole foreground group: the master alone decides to drain. A worker whose
        # standard input ends knows that its master is gone, however it went.
        return Popen(self._command, stdin=PIPE, stdout=DEVNULL, process_group=0)

    def _watch(self) -> None:
        while not self._fleet.dispersing:
            gevent.sleep(POLL_S)
            for process in list(self._running):
                if (code := process.poll()) is not None and not self._fleet.dispersing:
                    self._running.remove(process)
                    self._fleet.lose_process(process.pid, f"ended with code {code}")
                    if self._spare:
                        self._spare -= 1
                        self._running.append(self._start())
                    elif not self._running:
                        self._fleet.give_up("no worker process keeps running")


def run_fleet(
    session: Session, progress: Progress, say: Callable[[str], None], workers: int, finish: Finish | None = None
) -> int | None:
    """As `run_local`, with the streams on `workers` processes of this machine."""
    environment = Environment(
        user_classes=[LadderUser],
        shape_class=LadderShape(),
        events=locust.events,
        parsed_options=Namespace(headless=True, enable_rebalancing=False),
    )
    runner = environment.create_master_runner(HOST, 0)
    fleet = Fleet(session, environment, Link(runner), workers, progress.note)

    def abort() -> None:
        session.visits.stop()
        fleet.abort()

    unwatch = signals.watch(session, abort=abort, say=progress.note)
    processes = None
    try:
        begin(session, environment, progress)
        processes = Processes(workers, runner.server.port, fleet)
        try:
            runner.start_shape()
            assert runner.shape_greenlet is not None
            runner.shape_greenlet.join()
        finally:
            fleet.disperse()
            runner.quit()
            processes.stop()
            end(session, environment, progress)
            fleet.close(all_ended=True)
        return conclude(session, finish, say)
    finally:
        unwatch()
        if finish is not None:
            signals.ignore()
