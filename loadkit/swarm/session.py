"""One run in this process: everything its users share, from the first prompt to the last line of the folder."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from gevent import GreenletExit

from loadkit.call.choose import open_transport
from loadkit.call.request import Ask, Call, Caller
from loadkit.call.retry import NO_RETRY, RetryBudget, RetryPolicy
from loadkit.plan.endpoint import url_for
from loadkit.plan.ladder import Cell, Plan, Visit
from loadkit.plan.stages import Ticket
from loadkit.prompt.prompt import Prompt, PromptKey
from loadkit.prompt.public import PublicTier
from loadkit.prompt.tier import TierText
from loadkit.protocol import PROTOCOLS
from loadkit.record.folder import RunFolder
from loadkit.record.names import Phase
from loadkit.record.record import Record
from loadkit.record.redact import Redactor
from loadkit.swarm import events
from loadkit.swarm.health import InFlight, LagProbe, process_name
from loadkit.swarm.manifest import Manifest
from loadkit.swarm.store import Store
from loadkit.swarm.telemetry import Telemetry
from loadkit.swarm.visits import Visits
from loadkit.target.table import Target


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
        manifest: Manifest,
        environ: Mapping[str, str],
    ) -> None:
        self.run_id = run_id
        self.plan = plan
        self.target = target
        self.folder = folder
        self.manifest = manifest
        self.worker = process_name()
        self.visits = Visits(plan, plan.visits(), self._on_visit)
        self.ladder = True
        self.stopped_by: str | None = None  # the signal that asked for it
        self.fault: str | None = None  # why the run could not go on
        self.live_users = 0
        self.when_stopped: Callable[[], None] = lambda: None  # what ends the users where no shape sees it by itself
        # Tier -> length of its prompts, which is less where the tier stands at the window.
        self.targets = {cell.tier_tokens: cell.target_tokens for cell in plan.cells}
        self._environ = environ
        self._texts = texts
        self._bos_tokens = bos_tokens
        self._overhead_tokens = overhead_tokens
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
        self._slots: set[int] = set()
        self._turns: Counter[int] = Counter()
        self._count = 0
        self._closed = False
        streams = max(cell.concurrency for cell in plan.cells)
        self._store = Store(folder, manifest, streams, on_full=self.fail)
        self._telemetry = Telemetry(
            self._store.telemetry,
            self.worker,
            self._probe,
            self._inflight,
            users=lambda: (self._planned_users(), self.live_users),
        )
        self.every_second = self._telemetry.every_second
        self.every_second(self._store.check)

    def open(self) -> None:
        """Begin: header line, probes, listeners; the record writer listens first, so nothing comes before it."""
        self._store.begin()
        events.record.add_first(self._store.on_record)
        self._probe.start()
        self._telemetry.start()

    def without_ladder(self) -> None:
        """The users decide by themselves what to send: the plan gives its options and prompts, not its visits."""
        self.ladder = False
        self.visits = Visits(self.plan, (), self._on_visit)
        self.manifest.without_visits()

    def close(self) -> None:
        """End: users go home, the folder is complete. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self.visits.close()
        self._telemetry.stop()
        self._probe.stop()
        events.record.remove_listener(self._store.on_record)
        if lost := self._store.close_records():
            self.fault = f"{self.fault}; {lost} finished requests are not in the records"
        if self.target.running is not None and not self.target.running.alive():
            self.fail(f"the {self.target.kind} ended by itself while it was loaded")
        self._store.end(self.stopped_by, self.fault)
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

    def on_test_stopping(self, **_: object) -> None:
        """Locust stops the test: start nothing more, and let streams go home that wait for a visit."""
        self.visits.close()

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
        visit = self.visits.current
        if visit is not None and slot < visit.cell.concurrency and not self.visits.stopped:
            self.fail(
                f"a user was stopped in the middle of cell {visit.cell.id}: the streams planned are not all there"
            )

    def turn(self, slot: int) -> int:
        """1, 2, … for the requests of a slot, also when another user takes it over: no prompt is sent twice."""
        self._turns[slot] += 1
        return self._turns[slot]

    def pause(self, seconds: float) -> None:
        """Wait between two attempts; a drain ends the request, since what it waits for would be a new start."""
        if self.visits.pause(seconds):
            raise GreenletExit

    def caller(self, slot: int, on_record: Callable[[Record], None]) -> Caller:
        """A caller with its own transport, for one user; `on_record` gets every record, also of a killed request."""
        endpoint = self.target.endpoint
        url = url_for(endpoint, PROTOCOLS[endpoint.protocol].path)
        return Caller(
            ask=self._ask,
            transport=open_transport(url, self._environ),
            budget=self._budget,
            policy=RetryPolicy() if self.plan.retry else NO_RETRY,
            rng=random.Random(f"{self.plan.seed}/{self.worker}/{slot}"),
            sleep=self.pause,
            counter=self._inflight,
            probe=self._probe,
            redactor=self._redactor,
            on_record=on_record,
        )

    def call_for(self, visit: Visit, ticket: Ticket) -> Call:
        """The request of one turn of a visit."""
        warmup = ticket.phase is Phase.WARMUP
        length = self.plan.warmup_tokens(visit.cell) if warmup else visit.cell.target_tokens
        key = PromptKey(self.plan.seed, visit.cell.id, ticket.turn, ticket.slot, ticket.phase.value)
        labels = {"round": ticket.round, "visit": visit.index, "phase": ticket.phase.value}
        return self.call(visit.cell, length, key, labels)

    def call(self, cell: Cell, length: int, key: PromptKey, labels: Mapping[str, Any]) -> Call:
        """A request with a prompt of `length` tokens, labelled as part of `cell`."""
        self._count += 1
        text = self._texts[length]

        def prompt() -> Prompt:
            return text.prompt(key)

        return Call(
            prompt,
            {
                "run_id": self.run_id,
                "request_id": f"{self.run_id}-{self._count:06d}",
                "worker": self.worker,
                "cell": cell.id,
                "tier_tokens": cell.tier_tokens,
                "concurrency": cell.concurrency,
                # A text of the user's own has its own length, near the tier's.
                "target_tokens": None if self.plan.prompts else length,
                "bos_tokens": self._bos_tokens,
                "overhead_tokens": self._overhead_tokens,
                **labels,
            },
        )

    # -- inside ---------------------------------------------------------------------------------------------------

    def _planned_users(self) -> int:
        """As the open visit plans; users who choose for themselves are as many as Locust was told, whatever that is."""
        if not self.ladder:
            return self.live_users
        current = self.visits.current
        return current.cell.concurrency if current else 0

    def _drain(self) -> None:
        self.visits.stop()
        self.when_stopped()

    def _on_visit(self, visit: Visit, state: str) -> None:
        if state != "open":
            self._telemetry.enter(None)
        self._store.visit(visit, state)
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
