"""A session under Locust's command line, which has several ways to its end and may take two of them at once."""

import sys
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event

from loadkit.swarm import signals, web
from loadkit.swarm.channel import Link
from loadkit.swarm.fleet import Fleet
from loadkit.swarm.local import Finish, begin, conclude, end
from loadkit.swarm.progress import Progress
from loadkit.swarm.session import Session


class Hosted:
    """Begins a session when Locust is ready to, and ends it however Locust comes to that."""

    def __init__(
        self,
        environment: Any,
        session: Session,
        finish: Finish | None,
        say: Callable[[str], None],
        link: Link | None = None,
    ) -> None:
        """`link`: to the workers, where this is their master."""
        self._environment = environment
        self._session = session
        self._finish = finish
        self._say = say
        self._main = gevent.getcurrent()
        self._halting = False
        if environment.shape_class is None:
            session.without_ladder()
        session.when_stopped = self._halt
        quiet = bool(getattr(environment.parsed_options, "loadkit_quiet", False))
        self._progress = Progress(session.plan, sys.stderr, walk=session.visits.left, quiet=quiet)
        self._fleet: Fleet | None = None
        if link is not None:
            planned = environment.parsed_options.expect_workers
            self._fleet = Fleet(session, environment, link, planned, self._progress.note)
            self._wait_for_workers(environment, planned)
        self._unwatch = signals.watch(session, abort=self._abort, say=self._progress.note)
        if environment.web_ui is not None:
            web.attach(environment.web_ui, session, environment.parsed_options.web_base_path)
        begin(session, environment, self._progress)
        if not environment.stop_timeout:
            # Locust would cut streams that are in flight at the end; they are measured to their own deadlines instead.
            longest = max(cell.target_tokens for cell in session.plan.cells)
            environment.stop_timeout = session.plan.timeouts.for_tier(longest).total or 0

    def _wait_for_workers(self, environment: Any, planned: int) -> None:
        """Give up where not all workers come in time, as an incomplete run does; Locust would exit with 1."""
        options = environment.parsed_options
        if options.headless and (seconds := options.expect_workers_max_wait):
            options.expect_workers_max_wait = 0
            gevent.spawn_later(seconds, self._give_up, planned, seconds)

    def _give_up(self, planned: int, seconds: float) -> None:
        runner = self._environment.runner
        if runner.shape_greenlet is None and runner.user_count == 0 and len(runner.clients.ready) < planned:
            self._session.fail(
                f"{len(runner.clients.ready)} of {planned} workers came in {seconds:g} s (--expect-workers-max-wait): "
                "start the missing ones, or plan fewer"
            )

    def quit(self) -> None:
        """Let users finish, complete the folder, set the exit code."""
        if gevent.getcurrent() is not self._main:
            # Locust's handler of SIGTERM, beside ours, would shut down a second time: leave that to the main greenlet.
            self._halt()
            Event().wait()
        self._complete()

    def _complete(self) -> None:
        self._session.visits.stop()
        self._session.disperse()
        self._environment.runner.quit()
        end(self._session, self._environment, self._progress)
        if self._fleet is not None:
            self._fleet.close(all_ended=False)
        code = conclude(self._session, self._finish, self._say)
        if code is not None:
            self._environment.process_exit_code = code
        self._unwatch()
        signals.ignore()

    def _halt(self) -> None:
        """The session starts nothing more: end Locust too."""
        if not self._halting:
            self._halting = True
            gevent.spawn(self._end_locust)

    def _end_locust(self) -> None:
        """In a headless run the shape ends Locust, where there is one."""
        environment = self._environment
        if environment.shape_class is None:
            environment.runner.quit()
        elif environment.runner.shape_greenlet is not None:
            environment.runner.shape_greenlet.join()
        elif self._fleet is not None and environment.web_ui is None:
            # Locust still waits for workers, where it hears nothing else.
            self._complete()
            gevent.kill(self._main, SystemExit(environment.process_exit_code))
        if environment.web_ui is not None:
            environment.web_ui.stop()

    def _abort(self) -> None:
        """End what is in flight now; every user still hands over its record."""
        environment = self._environment
        environment.stop_timeout = 0
        if self._fleet is not None:
            self._session.visits.stop()
            self._fleet.abort()
            return
        self._session.visits.close()
        if environment.runner.shape_greenlet is not None:
            environment.runner.shape_greenlet.kill(block=False)
        gevent.spawn(environment.runner.quit)
