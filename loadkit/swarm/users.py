"""The Locust user classes: one to subclass in a locustfile, and the one that walks the ladder.

from locust import between, task

from loadkit.swarm import PromptUser, install

class Reader(PromptUser):
    wait_time = between(1, 2)

    @task(3)
    def short(self):
        self.send("128")

    @task
    def long(self):
        self.send("4K")

install()
"""

from locust import User, task
from locust.exception import StopUser

from contextlib import closing
from typing import Any

from loadkit.call.request import Caller
from loadkit.plan.ladder import Cell
from loadkit.plan.tiers import parse_tier
from loadkit.prompt.prompt import PromptKey
from loadkit.record.names import Outcome, Phase
from loadkit.record.record import Record
from loadkit.swarm import events
from loadkit.swarm.session import session_of


class PromptUser(User):
    """A user that streams prompts of given lengths. Subclass it with tasks that call `send`.

    The lengths must be among the run's `--tiers`; every request becomes a record of the run folder, phase measure, in
    the cell (tier, live users). Locust's own options (-u, -r, -t, wait_time, weights) mean what they always mean.
    """

    abstract = True

    def on_start(self) -> None:
        """Take a slot and a connection of its own."""
        session = session_of(self.environment)
        assert session is not None, "call loadkit.swarm.install() in the locustfile"
        self.session = session
        self.slot = self.session.enter()
        self.caller: Caller = self.session.caller(self.slot, self.report)
        self._sent = 0

    def on_stop(self) -> None:
        """Give both back."""
        self.caller.transport.close()
        self.session.leave(self.slot)

    def send(self, tier: str) -> dict[str, Any]:
        """Stream one prompt of a tier ('4K'); returns its record. Raises StopUser when the run is over."""
        if self.session.visits.stopped:
            raise StopUser
        length = parse_tier(tier)
        self._sent += 1
        cell = Cell(length, max(1, self.session.live_users))
        key = PromptKey(self.session.plan.seed, f"{length}", self._sent, self.slot, Phase.MEASURE.value)
        labels = {"round": self._sent, "phase": Phase.MEASURE.value}
        return self.caller.run(self.session.call(cell, length, key, labels)).to_json()

    def report(self, record: Record) -> None:
        """Fire our events and then Locust's own for one record, under fixed names: an id would fill its tables."""
        events.announce(record.to_json())
        self.environment.events.request.fire(
            request_type="LLM",
            name=record.cell,
            response_time=record.e2e_ms if record.e2e_ms is not None else record.done_ms or 0.0,
            response_length=record.bytes_received or 0,
            exception=None if record.outcome == Outcome.OK else Failed(record.outcome),
            context={},
        )


class Failed(Exception):
    """A request that did not end ok; its text is the outcome, from a closed set."""


class LadderUser(PromptUser):
    """Walks the plan: sends what the open visit asks of its slot, and waits between visits."""

    @task
    def walk(self) -> None:
        """All turns of this stream until the run is over."""
        with closing(self.session.visits.turns(self.slot)) as turns:
            for turn in turns:
                self.caller.run(self.session.call_for(turn.visit, turn.ticket))
        raise StopUser
