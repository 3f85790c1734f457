"""One run in this process: everything its users share, from the first prompt to the last line of the folder."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gevent import GreenletExit

from loadkit.call.ask import Ask
from loadkit.call.choose import open_transport
from loadkit.call.request import Call, Caller
from loadkit.call.retry import NO_RETRY, RetryBudget, RetryPolicy
from loadkit.plan.budget import Budget, Spent, budget_of
from loadkit.plan.endpoint import url_for
from loadkit.plan.ladder import Cell, Plan, Visit
from loadkit.plan.stages import Ticket
from loadkit.prompt.prompt import Prompt, PromptKey
from loadkit.prompt.public import PublicTier
from loadkit.prompt.tier import TierText
from loadkit.prompt.token_ids import TokenIds
from loadkit.protocol import PROTOCOLS
from loadkit.record.folder import RunFolder
from loadkit.record.names import Phase
from loadkit.record.record import Record
from loadkit.record.redact import Redactor
from loadkit.swarm import events, openloop
from loadkit.swarm.further import Build, Decide, Further
from loadkit.swarm.health import InFlight, LagProbe, process_name
from loadkit.swarm.manifest import Manifest
from loadkit.swarm.pacing import Pacing
from loadkit.swarm.store import Store
from loadkit.swarm.telemetry import Telemetry
from loadkit.swarm.visits import Visits
from loadkit.target.table import Target

if TYPE_CHECKING:
    from loadkit.swarm.boarding import Boarding
    from loadkit.swarm.live import Live


class Session:
    """What the users of one process share. `open` before the first user, `close` after the last."""

    def __init__(
        self,
        *,
        run_id: str,
        plan: Plan,
        target: Target,
        key: str | None,
        texts: Mapping[int, TierText | PublicTier],
        bos_tokens: int | None,
        overhead_tokens: int | None = None,
        folder: RunFolder,
        manifest: Manifest | None,
        environ: Mapping[str, str],
        decide: Decide | None = None,
        build: Build | None = None,
        worker: str | None = None,
        mark: str = "",
        keeper: Any = None,
        metrics: tuple[str, int] | None = None,
        walk: Sequence[Visit] | None = None,
    ) -> None:
        """`decide` may change the plan while it is walked; `build` makes the prompts of lengths it adds.

        worker, mark: names of this process, in records and inside the ids of its requests, where it is one of several.
        keeper: what takes records and telemetry instead of a `Store` of folder and manifest; a worker has no manifest.
        metrics: address and port of the live metrics; None = they are not served.
        walk: the visits to do, in order; None = all of the plan.
        """
        self.run_id = run_id
        self.plan = plan
        self.target = target
        self.folder = folder
        self.manifest = manifest
        self.worker = worker or process_name()
        self.mark = mark
        self.metrics = metrics
        self.live: Live | None = None
        self.boarding: Boarding | None = None  # samples the board that is loaded
        self.visits = Visits(plan, plan.visits() if walk is None else tuple(walk), self._on_visit)
        self.ladder = True
        self.spent_before = Spent()  # tokens of earlier starts of the run
        self.stopped_by: str | None = None  # the signal that asked for it
        self.fault: str | None = None  # why the run could not go on
        self.limited: str | None = None  # the budget that ended it
        self.live_users = 0
        self.when_stopped: Callable[[], None] = lambda: None  # what ends the users where no shape sees it by itself
        self.records = events.record  # told every record; a master has a hook of its own, for those of its workers
        self.samples = events.Hook()  # told every row of telemetry
        self.complete: Callable[[Record], None] = lambda record: None  # a record before it is announced
        self.users: Callable[[], tuple[int, int]] = self._users
        self.about_fleet: Callable[[], Mapping[str, int]] = dict
        self.when_repeated: Callable[[Visit, str, str], None] = lambda visit, state, why: None
        self.gather: Callable[[], None] = lambda: None  # before a visit: returns when all workers are there
        self.disperse: Callable[[], None] = lambda: None  # after the last: returns when their records are here
        # Tier -> length of its prompts, which is less where the tier stands at the window.
        self.targets = {cell.tier_tokens: cell.target_tokens for cell in plan.cells}
        self._environ = environ
        self.texts = dict(texts)
        self.bos_tokens = bos_tokens
        self.overhead_tokens = overhead_tokens
        self._probe = LagProbe()
        self._inflight = InFlight()
        self._budget = RetryBudget()
        self._redactor = Redactor([key] if key else [])
        self._ask = Ask(
            target.endpoint,
            key,
            max_tokens=plan.max_tokens,
            temperature=plan.temperature,
            ignore_eos=plan.ignore_eos,
            target=target.kind,
        )
        self._encode = TokenIds(plan.tokenizer or "").encode if plan.token_ids else None
        self.arrivals = openloop.Arrivals()
        self._slots: set[int] = set()
        self._turns: Counter[int] = Counter()
        self._count = 0
        self.unrecorded = 0  # requests that were begun in this process and have no record yet
        self._closed = False
        streams = max(cell.concurrency for cell in plan.cells)
        if keeper is None:
            assert manifest is not None
            keeper = Store(folder, manifest, streams, on_full=self.fail)
        self.store = keeper
        self._telemetry = Telemetry(
            self.sample,
            self.worker,
            self._probe,
            self._inflight,
            users=lambda: self.users(),
            also=lambda: {**self.about_fleet(), **self.arrivals.take()},
        )
        self.further: Further | None = None
        if decide is not None and build is not None:
            self.further = Further(
                plan, self.visits, self.store, self.texts, decide=decide, build=build, fail=self.fail
            )
            self.visits.between = self.further.on_closed
        if plan.open_loop:
            self.visits.course_of = openloop.courses(plan, self.visits.changed, self.arrived, self.arrivals.came)
        self.every_second = self._telemetry.every_second
        self.every_second(self.store.check)
        # A worker's master has the budgets.
        budget = Budget() if manifest is None else budget_of(plan, target.endpoint)
        self.pacing = Pacing(plan, lambda: self.visits, budget, self.limit)
        self.visits.before = self.pacing.before

    def open(self) -> None:
        """Begin: header line, probes, listeners; the record writer listens first, so nothing comes before it."""
        self.store.begin()
        if self.further is not None:
            self.records.add_first(self.further.on_record)
            self.samples.add_listener(self.further.on_sample)
        self.records.add_first(self.pacing.on_record)
        self.records.add_first(self.store.on_record)
        self.every_second(self.pacing.every_second)
        self.pacing.begin()
        self._probe.start()
        self._telemetry.start()

    def without_ladder(self) -> None:
        """The users decide by themselves what to send: the plan gives its options and prompts, not its visits."""
        self.ladder = False
        self.further = None
        self.visits = Visits(self.plan, (), self._on_visit)
        if self.manifest is not None:
            self.manifest.without_visits()

    def close(self) -> None:
        """End: users go home, the folder is complete. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self.visits.close()
        self._telemetry.stop()
        self._probe.stop()
        self.records.remove_listener(self.store.on_record)
        self.records.remove_listener(self.pacing.on_record)
        if self.further is not None:
            self.records.remove_listener(self.further.on_record)
        if lost := self.store.close_records():
            self.fault = f"{self.fault}; {lost} finished requests are not in the records"
        if self.target.running is not None and not self.target.running.alive():
            self.fail(f"the {self.target.kind} ended by itself while it was loaded")
        self.store.end(self.stopped_by, self.fault)
        self.target.stop()

    def stop(self, why: str) -> None:
        """Drain: start nothing more, let what is in flight end."""
        if not self.visits.over:
            self.stopped_by = self.stopped_by or why
        self._drain()

    def fail(self, fault: str) -> None:
        """Drain because the run cannot go on; the first fault is the one that is told."""
        self.fault = self.fault or fault
        self._drain()

    def limit(self, why: str) -> None:
        """Drain because a budget is used up; the run may be gone on with."""
        if self.limited is None and not self.visits.stopped:
            self.limited = why
            self.store.limited(why)
            self._drain()

    def on_test_stopping(self, **_: object) -> None:
        """Locust stops the test: start nothing more, and let streams go home that wait for a visit."""
        self.visits.close()
        self.disperse()

    def sample(self, row: dict[str, Any]) -> None:
        """Keep a row of telemetry, and tell who listens."""
        self.store.telemetry(row)
        self.samples.fire(row=row)
        if self.live is not None:
            self.live.on_sample(row)

    @property
    def in_flight(self) -> int:
        """Streams in flight in this process."""
        return self._inflight.count

    def arrived(self, visit: Visit, counts: dict[str, int]) -> None:
        """The schedule of an open loop's visit is through; see `openloop.Arrived`."""
        self.store.arrivals(visit, counts)
        if self.further is not None:
            self.further.on_arrivals(visit, counts)

    # -- for users ------------------------------------------------------------------------------------------------

    def enter(self) -> int:
        """A user arrives; returns its slot, the lowest free one."""
        slot = next(n for n in range(len(self._slots) + 1) if n not in self._slots)
        self._slots.add(slot)
        self.live_users += 1
        return slot

    def leave(self, slot: int) -> None:
        """A user goes. One that the open visit needs would be waited for without end, so the run ends with it."""
        self._slots.discard(slot)
        self.live_users -= 1
        self.visits.changed()
        visit = self.visits.current
        started = not self.visits.stopped and not self.visits.ending
        if visit is not None and slot < self.visits.streams and started:
            self.fail(
                f"a user was stopped in the middle of cell {visit.cell.id}: the streams planned are not all there"
            )

    def turn(self, slot: int) -> int:
        """1, 2, … for the requests of a slot, also when another user takes it over: no prompt is sent twice."""
        self._turns[slot] += 1
        return self._turns[slot]

    def pause(self, seconds: float) -> bool:
        """Wait between two attempts; a drain ends the request, since what it waits for would be a new start.

        True where the visit has ended meanwhile: no further attempt then.
        """
        if self.visits.pause(seconds):
            raise GreenletExit
        return self.visits.ending

    def policy(self) -> RetryPolicy:
        """How the next request is tried again. Lower concurrency comes before longer back-off."""
        if not self.plan.retry:
            return NO_RETRY
        return RetryPolicy(lengthens=self.further is None or self.further.lengthens)

    def caller(self, slot: int, on_record: Callable[[Record], None]) -> Caller:
        """A caller with its own transport, for one user; `on_record` gets every record, also of a killed request."""
        endpoint = self.target.endpoint
        url = url_for(endpoint, PROTOCOLS[endpoint.protocol].path)

        def hand_over(record: Record) -> None:
            try:
                on_record(record)
            finally:
                self.unrecorded -= 1

        return Caller(
            ask=self._ask,
            transport=open_transport(url, self._environ),
            budget=self._budget,
            policy=self.policy(),
            rng=random.Random(f"{self.plan.seed}/{self.worker}/{slot}"),
            sleep=self.pause,
            encode=self._encode,
            counter=self._inflight,
            probe=self._probe,
            redactor=self._redactor,
            on_record=hand_over,
            on_first=None if self.further is None else self.further.on_first,
            on_again=self.store.tried,
        )

    def call_for(self, visit: Visit, ticket: Ticket) -> Call:
        """The request of one turn of a visit."""
        warmup = ticket.phase is Phase.WARMUP
        length = self.plan.warmup_tokens(visit.cell) if warmup else visit.cell.target_tokens
        # A cell's visits of one round each warm up once, its repeats each for themselves: with prompts of their own.
        cell = f"{visit.cell.id}/{visit.round}" if warmup and visit.attempt else visit.cell.id
        key = PromptKey(self.plan.seed, cell, ticket.turn, ticket.slot, ticket.phase.value, visit.attempt)
        labels = {"round": ticket.round, "visit": visit.index, "phase": ticket.phase.value, **openloop.labels(ticket)}
        return self.call(visit.cell, length, key, labels, ticket.due_ns)

    def call(
        self, cell: Cell, length: int, key: PromptKey, labels: Mapping[str, Any], due_ns: int | None = None
    ) -> Call:
        """A request with a prompt of `length` tokens, labelled as part of `cell`, planned for `due_ns`."""
        self._count += 1
        text = self.texts[length]

        def prompt() -> Prompt:
            return text.prompt(key)

        known = {
            "run_id": self.run_id,
            "request_id": f"{self.run_id}-{self.mark}{self._count:06d}",
            "worker": self.worker,
            "cell": cell.id,
            "tier_tokens": cell.tier_tokens,
            "concurrency": cell.concurrency,
            "rate": cell.rate,
            "stage": cell.stage,
            # A text of the user's own has its own length, near the tier's.
            "target_tokens": None if self.plan.prompts else length,
            "bos_tokens": self.bos_tokens,
            "overhead_tokens": self.overhead_tokens,
            **labels,
        }
        self.pacing.started(known["request_id"], cell)
        self.store.begun(known)
        self.unrecorded += 1
        return Call(prompt, known, due_ns)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _users(self) -> tuple[int, int]:
        """(planned, live) of the open visit; users beyond those it needs send nothing and are not counted.

        Users who choose for themselves are as many as Locust was told, whatever that is.
        """
        if not self.ladder:
            return self.live_users, self.live_users
        if self.visits.current is None:
            return 0, self.live_users
        planned = self.visits.streams
        return planned, min(planned, self.live_users)

    def _drain(self) -> None:
        self.visits.stop()
        self.when_stopped()

    def _on_visit(self, visit: Visit, state: str) -> None:
        if state != "open":
            self._telemetry.enter(None)
        why = self.visits.why_ended if state == "ended" else None
        self.store.visit(visit, state, why, None if state == "open" else self.visits.measured)
        if state == "open":
            self._telemetry.enter(visit.cell.id)
        try:
            events.stage.fire(run_id=self.run_id, cell=visit.cell.id, visit=visit.index, state=state)
        except BaseException as error:  # noqa: BLE001 - it would end the shape, and with it every visit to come
            self.fail(f"a listener of the stage event raised {type(error).__name__}")


def new_run_id(now: datetime | None = None) -> str:
    """A run id: UTC time and 32 random bits."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%S")
    return f"{random.SystemRandom().getrandbits(32):08x}-{stamp}"


def bind(environment: Any, session: Session) -> None:
    """Make the session the one that users and shape of this Locust environment find."""
    environment.loadkit_session = session


def session_of(environment: Any) -> Session | None:
    """The session bound to Locust's environment, if any."""
    return getattr(environment, "loadkit_session", None)
