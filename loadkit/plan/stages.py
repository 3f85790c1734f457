"""What each stream of a visit does next: warm-up, measured rounds, drain. Pure state, no clock.

The rule it keeps: from the start of the first measured request to the end of the last, exactly `concurrency` streams
are in flight. So nothing is measured before every stream has started, and a stream that has done its rounds keeps
sending requests that are not counted until the slowest stream has done its own.

Where several workers run a visit each has a `Stage` for its share of the slots, and three facts about the other shares
are told to it (`others_*`). They may be told late, which makes warm-up or drain longer; the rule holds all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from loadkit.plan.ladder import Plan, Visit
from loadkit.record.names import Phase


class Answer(Enum):
    """WAIT: another stream has yet to start; ask again after any change."""

    WAIT = "wait"


WAIT = Answer.WAIT


@dataclass(frozen=True, slots=True)
class Ticket:
    """Leave to send one request. `round` goes into the record (0 unless measured); `turn`, from 1, is unique within
    (cell, slot, phase), so it and not `round` keys the prompt. `due_ns`: when an open loop planned to send it."""

    phase: Phase
    round: int
    slot: int
    turn: int
    due_ns: int | None = None


@dataclass(slots=True)
class _Slot:
    warmups: int  # still to send
    rounds: list[int]  # still to start
    started: bool = False
    waiting: bool = False
    ticket: Ticket | None = None  # in flight
    turns: dict[Phase, int] | None = None


class Stage:
    """One visit, or one worker's share of it. Streams are 0 .. streams-1; each asks `next_request` when it is free and
    reports `done`. Told by the master where other workers have a share, true from the start where none has:

    others_started: every stream of the others has started. others_full: and from then on none of them waits.
    others_measured: every measured request of the others has ended.
    """

    def __init__(
        self,
        concurrency: int,
        rounds: tuple[int, ...],
        warmup: int,
        share: Sequence[int] | None = None,
        *,
        endless: bool = False,
    ) -> None:
        """`warmup` requests are shared out evenly; every slot then measures each of `rounds` once.

        share: the slots of the visit that are streams here; None = all, 0 .. concurrency-1.
        endless: every slot measures on until `enough` is called, whatever `rounds` says.
        """
        each, rest = divmod(warmup, concurrency)
        self._ids = tuple(range(concurrency) if share is None else share)
        self._stream = {slot: stream for stream, slot in enumerate(self._ids)}
        self._slots = [_Slot(each + (slot < rest), list(rounds)) for slot in self._ids]
        self._alone = concurrency == 1
        self.opened = False  # a measured request has started: no stream here waits for another one any more
        self._stopped = False
        self._in_flight = 0
        self.others_started = self.others_full = self.others_measured = len(self._ids) == concurrency
        self._endless = endless
        self._given = 0  # measured requests that were started
        self._rounds = len(self._ids) * len(rounds)
        self.measured = 0  # measured requests that have ended, whatever their outcome

    @property
    def planned(self) -> int:
        """Measured requests in all; while it is endless one more than were started."""
        return self._given + 1 if self._endless else max(self._given, self._rounds)

    @property
    def streams(self) -> int:
        """How many streams it needs."""
        return len(self._slots)

    @property
    def started(self) -> bool:
        """Every stream here has started."""
        return all(slot.started for slot in self._slots)

    @property
    def full(self) -> bool:
        """Every stream everywhere has started, and none here waits or will wait before the window opens."""
        return self.others_started and self.started and not any(slot.waiting for slot in self._slots)

    @property
    def all_measured(self) -> bool:
        """Every measured request here has ended."""
        return self.measured == self.planned

    @property
    def in_flight(self) -> int:
        """Tickets given and not yet done."""
        return self._in_flight

    @property
    def finished(self) -> bool:
        """Nothing is in flight and nothing more will be."""
        return self.in_flight == 0 and (self._stopped or (self.all_measured and self.others_measured))

    def next_request(self, stream: int) -> Ticket | Answer | None:
        """What a free stream does now; None = it is no longer needed in this visit."""
        state = self._slots[stream]
        if state.ticket is not None:
            raise ValueError(f"slot {self._ids[stream]} already has a request in flight")
        if self._stopped or (self.all_measured and self.others_measured):
            return None
        if state.warmups:
            state.warmups -= 1
            return self._give(stream, Phase.WARMUP)
        if not self.opened:
            state.started = True  # it has arrived, even where no warm-up was planned
            if not (self.started and self.others_started):
                state.waiting = True
                return WAIT
            if self._waiting_beside(stream) or not self.others_full:
                # A stream that waited is not in flight: fill up first, the last one to come opens the window.
                return self._give(stream, Phase.WARMUP)
            self.opened = True
        if state.rounds:
            return self._give(stream, Phase.MEASURE, state.rounds.pop(0))
        if self._endless:
            return self._give(stream, Phase.MEASURE, (state.turns or {}).get(Phase.MEASURE, 0) + 1)
        return None if self._alone else self._give(stream, Phase.DRAIN)

    def _waiting_beside(self, stream: int) -> bool:
        return any(other.waiting for i, other in enumerate(self._slots) if i != stream)

    def _give(self, stream: int, phase: Phase, round_number: int = 0) -> Ticket:
        state = self._slots[stream]
        state.started, state.waiting = True, False
        state.turns = state.turns or dict.fromkeys(Phase, 0)
        state.turns[phase] += 1
        self._in_flight += 1
        self._given += phase is Phase.MEASURE
        state.ticket = Ticket(phase, round_number, self._ids[stream], round_number or state.turns[phase])
        return state.ticket

    def done(self, ticket: Ticket) -> None:
        """A request has ended, however it ended."""
        self._take_back(ticket)
        self.measured += ticket.phase is Phase.MEASURE

    def withdraw(self, ticket: Ticket) -> None:
        """A request was not sent after all, because the stage is stopped."""
        self._take_back(ticket)
        self._given -= ticket.phase is Phase.MEASURE

    def _take_back(self, ticket: Ticket) -> None:
        state = self._slots[self._stream[ticket.slot]]
        if state.ticket is not ticket:
            raise ValueError(f"slot {ticket.slot} has no such request in flight")
        state.ticket = None
        self._in_flight -= 1

    def enough(self) -> None:
        """No further request is measured; streams are kept up until those in flight have ended."""
        self._endless, self._rounds = False, 0
        for slot in self._slots:
            slot.rounds.clear()

    def stop(self) -> None:
        """Give no more tickets; finished when those in flight are done."""
        self._stopped = True


def stage_for(plan: Plan, visit: Visit, share: Sequence[int] | None = None) -> Stage:
    """The stage of one visit of a plan; of the slots in `share`, where other workers have the rest."""
    return Stage(visit.cell.concurrency, plan.rounds_of(visit), plan.warmup_of(visit), share, endless=plan.soak)
