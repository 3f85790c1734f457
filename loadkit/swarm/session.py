"""One run in this process: everything its users share, from the first prompt to the last line of the folder."""

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from loadkit.call.choose import open_transport
from loadkit.call.request import Ask, Call, Caller
from loadkit.call.retry import NO_RETRY, RetryBudget, RetryPolicy
from loadkit.plan.endpoint import url_for
from loadkit.plan.ladder import Cell, Plan, Visit
from loadkit.plan.stages import Ticket
from loadkit.prompt.prompt import Prompt, PromptKey
from loadkit.prompt.tier import TierText
from loadkit.protocol import PROTOCOLS
from loadkit.record.errors import FolderError
from loadkit.record.folder import RunFolder
from loadkit.record.jsonl import Writer, header
from loadkit.record.names import Phase
from loadkit.record.record import Record
from loadkit.record.redact import Redactor
from loadkit.swarm import events
from loadkit.swarm.health import InFlight, LagProbe, process_name
from loadkit.swarm.manifest import Manifest
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
        texts: Mapping[int, TierText],
        bos_tokens: int | None,
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
        self.stopped_by: str | None = None  # the signal that asked for it
        self.fault: str | None = None  # why the run could not go on
        self.live_users = 0
        self._environ = environ
        self._texts = texts
        self._bos_tokens = bos_tokens
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
        self._count = 0
        self._closed = False
        self._records = Writer(folder.records_path)
        self._telemetry = Telemetry(
            Writer(folder.telemetry_path),
            self.worker,
            self._probe,
            self._inflight,
            users=lambda: (self._planned_users(), self.live_users),
        )
        self.every_second = self._telemetry.every_second

    def open(self) -> None:
        """Begin: header line, probes, listeners; the record writer listens first, so nothing comes before it."""
        self._records.header(header())
        events.record.add_listener(self._write)
        self._probe.start()
        self._telemetry.start()
        self.manifest.started()

    def without_ladder(self) -> None:
        """The users decide by themselves what to send: the plan gives its options and prompts, not its visits."""
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
        self._records.close()
        events.record.remove_listener(self._write)
        self.manifest.ended(self.stopped_by, self.fault)
        self.target.stop()

    def stop(self, why: str) -> None:
        """Drain: start nothing more, let what is in flight end."""
        self.stopped_by = self.stopped_by or why
        self.visits.stop()

    # -- for users ------------------------------------------------------------------------------------------------

    def enter(self) -> int:
        """A user arrives; returns its slot, the lowest free one."""
        slot = next(n for n in range(len(self._slots) + 1) if n not in self._slots)
        self._slots.add(slot)
        self.live_users += 1
        return slot

    def leave(self, slot: int) -> None:
        """A user goes."""
        self._slots.discard(slot)
        self.live_users -= 1

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
                "target_tokens": length,
                "bos_tokens": self._bos_tokens,
                **labels,
            },
        )

    @property
    def tiers(self) -> tuple[int, ...]:
        """The lengths there are prompts for."""
        return tuple(sorted({cell.target_tokens for cell in self.plan.cells}))

    # -- inside ---------------------------------------------------------------------------------------------------

    def _planned_users(self) -> int:
        current = self.visits.current
        return current.cell.concurrency if current else 0

    def _write(self, record: dict[str, Any], **_: object) -> None:
        """Keep a record; a disk that takes no more ends the run, since what is not kept was not measured."""
        try:
            self._records.write(record)
        except FolderError as error:
            self.fault = self.fault or str(error)
            self.visits.stop()

    def _on_visit(self, visit: Visit, state: str) -> None:
        if state != "open":
            self._telemetry.enter(None)
        self.manifest.visit(visit, state)
        if state == "open":
            self._telemetry.enter(visit.cell.id)
        events.stage.fire(run_id=self.run_id, cell=visit.cell.id, visit=visit.index, state=state)


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
