"""A worker: it does what the master announces, keeps every row in its spool, and leaves when the master is gone.

Nothing comes from its own options but the address of the master; keys come from its own environment. The other side is
`fleet.py`. Started by `loadkit run --workers N` as `python -m loadkit.swarm HOST PORT`, or by a locustfile under
`locust --worker`.
"""

from locust import argument_parser  # first: it patches what every other import may use
from locust.exception import RPCError

import functools
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gevent
from gevent.event import Event

from loadkit.plan.budget import budget_of
from loadkit.plan.errors import ConfigError
from loadkit.plan.ladder import Cell, Visit
from loadkit.plan.stages import Stage
from loadkit.record.errors import FolderError
from loadkit.record.names import ExitCode
from loadkit.swarm import shipped
from loadkit.swarm.allowance import Allowance
from loadkit.swarm.briefing import session_of
from loadkit.swarm.channel import Batch, Data, Link, Outbox, Shipper
from loadkit.swarm.local import settle
from loadkit.swarm.openloop import OpenLoop, stage_of
from loadkit.swarm.session import Session

HELLO_S = 0.5
REPORT_S = 1.0  # a state that may have been lost on the way is told again
MASTER_LOST_S = 10.0  # without a heartbeat of the master
FLUSH_S = 20.0


class Worker:
    """Binds itself to the Locust environment of a worker process, which it ends. `say` tells people."""

    def __init__(self, environment: Any, say: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self.session: Session | None = None
        self.code: int = ExitCode.COMPLETE
        self.ready = Event()
        self._environment = environment
        self._runner = environment.runner
        self._say = say
        self._now = now
        self._main = gevent.getcurrent()
        self._heard = now()
        self._name = f"{socket.gethostname()}-{os.getpid()}"
        self._outbox = Outbox()
        self._stage: Stage | OpenLoop | None = None
        self._visit: int | None = None
        self._halted: int | None = None
        self._over = False
        self._gone = Event()  # the master does not live
        self._ending = False
        self._report = Event()
        self._told: Data = {}
        self._fetch = shipped.Fetch(lambda length: self._link.send("text", {"length": length}))
        # Locust makes its parser anew for every option in every order to spawn, which holds the loop for a third of a
        # second, and longer than a master waits where the machine is busy.
        argument_parser.default_args_dict = functools.cache(argument_parser.default_args_dict)
        argument_parser.default_args_dict()
        environment.loadkit_worker = self
        environment.events.heartbeat_received.add_listener(self._on_heartbeat)
        self._link = Link(self._runner)
        self._link.start(self._on_message)
        self._shipper = Shipper(self._outbox, self._ship)
        for loop in (self._greet, self._reporting, self._watch):
            gevent.spawn(loop)

    def leave(self, why: str, code: int, fault: str | None = None) -> None:
        """End by our own decision: what is in flight ends, the rows are sent if anybody takes them, the spool stays."""
        if self._ending:
            return
        self._ending = True
        self.code = code
        self._say(f"worker {self._name} leaves: {why}")
        gevent.spawn(self._leave, why, fault)

    def quit(self) -> None:
        """Locust shuts the process down: at once in its main greenlet, where we have let it come to its end."""
        if gevent.getcurrent() is not self._main:
            # Locust's handler of SIGTERM, beside ours, would not wait for what is in flight.
            Event().wait()

    def signalled(self, name: str) -> None:
        """A signal: the first ends what is in flight in peace, the second cuts it."""
        if self._ending:
            self.abort()
        self.leave(name, ExitCode.STOPPED)

    def master_gone(self) -> None:
        """The process that started this one has ended."""
        self._gone.set()
        self.leave("its master has ended", ExitCode.INCOMPLETE)

    def abort(self) -> None:
        """Cut what is in flight; every user still hands over its record."""
        if self.session is not None:
            self.session.visits.close()
        self._runner.user_greenlets.kill(block=False)

    # -- messages --------------------------------------------------------------------------------------------------

    def _on_message(self, _: str, what: str, data: Data) -> None:
        self._heard = self._now()
        if self._link.run_id not in (None, data["run"]):
            self.leave(f"a message of run {str(data['run'])[:60]} came", ExitCode.INCOMPLETE)
        elif what in HANDLERS:
            HANDLERS[what](self, data)

    def _on_brief(self, data: Data) -> None:
        # A slow master answers every hello; what takes its time here, such as prompts to fetch, is begun once.
        if self._link.run_id is not None or self._ending:
            return
        self._link.run_id = data["run"]
        gevent.spawn(self._begin, data)

    def _on_stage(self, data: Data) -> None:
        if self._visit != data["visit"]["index"] and not self._ending:
            self._visit, self._stage, self._over = data["visit"]["index"], None, False
            gevent.spawn(self._run, data)

    def _on_others(self, data: Data) -> None:
        if self._stage is not None and data["visit"] == self._visit:
            self._stage.others_started, self._stage.others_full, self._stage.others_measured = data["others"]
            assert self.session is not None
            self.session.visits.changed()

    def _on_halt(self, data: Data) -> None:
        self._halted = data["visit"]
        if self.session is not None and data["visit"] == self._visit:
            self.session.visits.end_current("the master ends it")
        self._told = {}
        self._report.set()

    def _on_budget(self, data: Data) -> None:
        if self.session is not None and self.session.pacing.allowance is not None:
            self.session.pacing.allowance.given(data["share"])

    def _on_reclaim(self, data: Data) -> None:
        if self.session is not None and self.session.pacing.allowance is not None:
            have = self.session.pacing.allowance.give_back(data["number"])
            self._link.send("returned", {"number": data["number"], "have": have})

    def _on_ack(self, data: Data) -> None:
        self._outbox.acknowledged(data["number"])

    def _on_text(self, data: Data) -> None:
        self._fetch.arrived(data["length"], data)

    def _on_end(self, data: Data) -> None:
        if not self._ending:
            self._ending = True
            gevent.spawn(self._end, data["keep"])

    def _on_abort(self, _: Data) -> None:
        self.abort()

    def _on_leave(self, data: Data) -> None:
        self.leave(str(data.get("why"))[:200], ExitCode.INCOMPLETE)

    # -- the run ---------------------------------------------------------------------------------------------------

    def _greet(self) -> None:
        """Until the master answers: it may not listen yet."""
        while self._link.run_id is None and not self._ending:
            with suppress(RPCError):
                self._link.send("hello", {"name": self._name})
            gevent.sleep(HELLO_S)

    def _begin(self, data: Data) -> None:
        """Everything a run needs, from the brief; users that Locust has started meanwhile wait for it."""
        try:
            session, self._spool = session_of(
                data, self._fetch, self._outbox, name=self._name, mark=f"w{self._runner.worker_index}-"
            )
        except (ConfigError, FolderError) as error:
            self.leave(str(error), ExitCode.USAGE, fault=str(error))
            return
        self.session = session
        session.when_stopped = self._on_stopped
        session.visits.when_changed = self._report.set
        settle(session, self._environment)
        self._link.send("ready", {"name": self._name})
        self._share_budget(session)
        self.ready.set()
        self._report.set()

    def _run(self, data: Data) -> None:
        """Our share of one visit, from its announcement to its last request."""
        session = self.session
        assert session is not None
        visit = Visit(**{**data["visit"], "cell": Cell(**data["visit"]["cell"])})
        try:
            for length, ref in data["texts"].items():  # prompts that were built since the run began
                if int(length) not in session.texts:
                    session.texts[int(length)] = self._fetch(int(length), ref)
        except ConfigError as error:
            self.leave(str(error), ExitCode.USAGE, fault=str(error))
            return
        stage = self._stage = _stage(session, visit, data)
        if self._halted == visit.index:
            stage.stop()
        session.visits.run(visit, stage)
        self._shipper.send_all()  # before it is told that the visit is over: the master judges it then
        self._over = True
        self._report.set()

    def _share_budget(self, session: Session) -> None:
        """Where a budget is limited, our requests wait for a share of it."""

        def ask(question: Data) -> None:
            with suppress(RPCError):  # asked again
                self._link.send("budget", question)

        whole = budget_of(session.plan, session.target.endpoint)
        if whole.tokens is not None or whole.cost is not None:
            session.pacing.allowance = Allowance(
                whole, session.pacing.ledger, ask, lambda: session.visits.stopped or session.visits.ending
            )
            session.pacing.allowance.ahead()

    def _on_stopped(self) -> None:
        """Nothing more may be started here, for a fault or a signal of our own."""
        session = self.session
        assert session is not None
        why = session.fault or session.stopped_by or "stopped"
        self.leave(why, ExitCode.STOPPED if session.stopped_by else ExitCode.INCOMPLETE, session.fault)

    def _end(self, keep: bool) -> None:
        """The master ends the run: what is in flight ends, every row is handed over, Locust's word is waited for.

        keep: the spool stays, because the master could not write everything.
        """
        session = self.session
        if session is not None:
            self._close(session)
            if self._shipper.flush(FLUSH_S) and not keep:
                self._spool.remove()
        since = self._now()
        while self._now() - since < FLUSH_S and not self._gone.is_set():
            with suppress(RPCError):
                self._link.send("last", {"number": self._outbox.last})
            self._gone.wait(REPORT_S)
        self._runner.quit()

    def _leave(self, why: str, fault: str | None) -> None:
        with suppress(RPCError):
            self._link.send("leaving", {"why": why, "fault": fault, "name": self._name})
        if self.session is not None:
            self._close(self.session)
            self._shipper.flush(1.0)
            self._spool.close()
        self._environment.process_exit_code = self.code
        self._runner.quit()

    def _close(self, session: Session) -> None:
        """Wait for what is in flight, which ends by its own deadlines, and for the last rows."""
        session.visits.stop()
        while session.unrecorded or session.visits.current is not None:
            gevent.sleep(0.02)
        session.close()

    # -- loops -----------------------------------------------------------------------------------------------------

    def _reporting(self) -> None:
        """Tell how far our share is and how many streams are here, when it has changed and now and then."""
        while True:
            if not self._report.wait(REPORT_S):
                self._told = {}
            self._report.clear()
            if self.session is None or not self.ready.is_set():
                continue
            now: Data = {"live": self.session.live_users, "state": self._state()}
            again = not self._told
            with suppress(RPCError):
                if now["live"] != self._told.get("live"):
                    self._link.send("users", {"live": now["live"]})
                if now["state"] != self._told.get("state"):
                    self._link.send("state", {**now["state"], "again": again})
            self._told = now
            gevent.sleep(0)

    def _state(self) -> Data:
        """How far our share is; all false while its prompts are on their way."""
        stage = self._stage
        return {
            "visit": self._visit,
            "started": stage is not None and stage.started,
            "full": stage is not None and stage.full,
            "measured": 0 if stage is None else stage.measured,
            "planned": 0 if stage is None else stage.planned,
            "all_measured": stage is not None and stage.all_measured,
            "finished": self._over,
            "arrivals": stage.counts if isinstance(stage, OpenLoop) else None,
        }

    def _on_heartbeat(self, **_: object) -> None:
        self._heard = self._now()

    def _watch(self) -> None:
        """A master that is not heard of is lost; time in which this process itself stood still does not count."""
        last = self._now()
        while True:
            gevent.sleep(0.25)
            now = self._now()
            self._heard += max(0.0, now - last - 0.5)
            last = now
            if self._link.run_id is not None and now - self._heard > MASTER_LOST_S:
                self.leave(f"the master said nothing for {MASTER_LOST_S:.0f} s", ExitCode.INCOMPLETE)

    def _ship(self, batch: Batch) -> None:
        self._link.send("rows", {"first": batch.first, "data": batch.data})


def _stage(session: Session, visit: Visit, data: Data) -> Stage | OpenLoop:
    """Our share of a visit as it was announced."""
    if visit.cell.rate is not None:
        part = stage_of(session.plan, visit, len(data["share"]), *data["part"])
        return OpenLoop(
            visit, part, changed=session.visits.changed, arrived=session.arrived, came=session.arrivals.came
        )
    rounds = tuple(data["rounds"])
    return Stage(visit.cell.concurrency, rounds, data["warmup"], data["share"], endless=data["endless"])


HANDLERS: dict[str, Callable[[Worker, Data], None]] = {
    "brief": Worker._on_brief,
    "stage": Worker._on_stage,
    "others": Worker._on_others,
    "halt": Worker._on_halt,
    "ack": Worker._on_ack,
    "budget": Worker._on_budget,
    "reclaim": Worker._on_reclaim,
    "text": Worker._on_text,
    "end": Worker._on_end,
    "abort": Worker._on_abort,
    "leave": Worker._on_leave,
}
