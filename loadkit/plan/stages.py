"""What each stream of a visit does next: warm-up, measured rounds, drain. Pure state, no clock.

The rule it keeps: from the start of the first measured request to the end of the last, exactly `concurrency` streams
are in flight. So nothing is measured before every stream has started, and a stream that has done its rounds keeps
sending requests that are not counted until the slowest stream has done its own.
"""

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
    (cell, slot, phase), so it and not `round` keys the prompt."""

    phase: Phase
    round: int
    slot: int
    turn: int


@dataclass(slots=True)
class _Slot:
    warmups: int  # still to send
    rounds: list[int]  # still to start
    started: bool = False
    waiting: bool = False
    ticket: Ticket | None = None  # in flight
    turns: dict[Phase, int] | None = None


class Stage:
    """One visit. Slots are 0 .. concurrency-1; each asks `next_request` when it is free and reports `done`."""

    def __init__(self, concurrency: int, rounds: tuple[int, ...], warmup: int) -> None:
        """`warmup` requests are shared out evenly; every slot then measures each of `rounds` once."""
        share, rest = divmod(warmup, concurrency)
        self._slots = [_Slot(share + (i < rest), list(rounds)) for i in range(concurrency)]
        self._open = False  # a measured request has started
        self._stopped = False
        self.planned = concurrency * len(rounds)
        self.measured = 0  # measured requests that have ended, whatever their outcome

    @property
    def in_flight(self) -> int:
        """Tickets given and not yet done."""
        return sum(slot.ticket is not None for slot in self._slots)

    @property
    def finished(self) -> bool:
        """Nothing is in flight and nothing more will be."""
        return self.in_flight == 0 and (self._stopped or self.measured == self.planned)

    def next_request(self, slot: int) -> Ticket | Answer | None:
        """What a free slot does now; None = it is no longer needed in this visit."""
        state = self._slots[slot]
        if state.ticket is not None:
            raise ValueError(f"slot {slot} already has a request in flight")
        if self._stopped or self.measured == self.planned:
            return None
        if state.warmups:
            state.warmups -= 1
            return self._give(slot, Phase.WARMUP)
        if not self._open:
            state.started = True  # it has arrived, even where no warm-up was planned
            others = [other for i, other in enumerate(self._slots) if i != slot]
            if not all(other.started for other in others):
                state.waiting = True
                return WAIT
            if any(other.waiting for other in others):
                # A stream that waited is not in flight: fill up first, the last one to come opens the window.
                return self._give(slot, Phase.WARMUP)
            self._open = True
        if state.rounds:
            return self._give(slot, Phase.MEASURE, state.rounds.pop(0))
        return self._give(slot, Phase.DRAIN) if len(self._slots) > 1 else None

    def _give(self, slot: int, phase: Phase, round_number: int = 0) -> Ticket:
        state = self._slots[slot]
        state.started, state.waiting = True, False
        state.turns = state.turns or dict.fromkeys(Phase, 0)
        state.turns[phase] += 1
        state.ticket = Ticket(phase, round_number, slot, round_number or state.turns[phase])
        return state.ticket

    def done(self, ticket: Ticket) -> None:
        """A request has ended, however it ended."""
        state = self._slots[ticket.slot]
        if state.ticket is not ticket:
            raise ValueError(f"slot {ticket.slot} has no such request in flight")
        state.ticket = None
        self.measured += ticket.phase is Phase.MEASURE

    def stop(self) -> None:
        """Give no more tickets; finished when those in flight are done."""
        self._stopped = True


def stage_for(plan: Plan, visit: Visit) -> Stage:
    """The stage of one visit of a plan."""
    return Stage(visit.cell.concurrency, plan.rounds_of(visit), plan.warmup_of(visit))
