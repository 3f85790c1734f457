"""The Locust user classes: one to subclass in a locustfile, and the one that walks the ladder.

from locust import between, task

from loadkit.report.finish import finish
from loadkit.swarm import PromptUser, install

class Reader(PromptUser):
    wait_time = between(1, 2)

    @task(3)
    def short(self):
        self.send("128")

    @task
    def long(self):
        self.send("4K")

install(finish)
"""

from locust import User, task
from locust.exception import StopUser
from locust.user.task import LOCUST_STATE_STOPPING

import sys
from contextlib import closing
from typing import Any

from gevent.pool import Group

from loadkit.call.request import Caller
from loadkit.plan.errors import ConfigError
from loadkit.plan.ladder import Cell
from loadkit.plan.tiers import parse_tier, tier_name
from loadkit.prompt.prompt import PromptKey
from loadkit.record.names import ExitCode, Outcome, Phase
from loadkit.record.record import Record
from loadkit.swarm import events
from loadkit.swarm.session import session_of

FAILED_PAUSE_S = 0.1


class PromptUser(User):
    """A user that streams prompts of given lengths. Subclass it with tasks that call `send`.

    The lengths must be among the run's `--tiers`; every request becomes a record of the run folder, phase measure, in
    the cell (tier, live users). Locust's own options (-u, -r, -t, wait_time, weights) mean what they always mean.
    """

    abstract = True

    def __init__(self, environment: Any) -> None:
        """Take a slot and a connection of its own. Not in on_start, which a subclass may have for itself."""
        super().__init__(environment)
        if (worker := getattr(environment, "loadkit_worker", None)) is not None:
            worker.ready.wait()  # Locust may start users before the master has said what for
        session = session_of(environment)
        if session is None:
            print("loadkit: call loadkit.swarm.install() at the end of the locustfile", file=sys.stderr)
            sys.exit(ExitCode.USAGE)
        self.session = session
        self.slot = session.enter()
        self.caller: Caller = session.caller(self.slot, self.report)

    def start(self, group: Group) -> Any:
        """Start; slot and connection are given back however the user ends."""
        greenlet = super().start(group)
        greenlet.link(self._gone)
        return greenlet

    def stop(self, force: bool = False) -> bool:
        """Stop; a second time is no error, since two things may end a test at once."""
        return False if self._state == LOCUST_STATE_STOPPING and not force else super().stop(force)

    def _gone(self, _: object) -> None:
        self.caller.transport.close()
        self.session.leave(self.slot)

    def send(self, tier: str) -> dict[str, Any]:
        """Stream one prompt of a tier ('4K'); returns its record. Raises StopUser when the run is over."""
        session = self.session
        if session.visits.stopped:
            raise StopUser
        tokens = self._tokens(tier)
        turn = session.turn(self.slot)
        cell = Cell(tokens, max(1, session.live_users), session.targets[tokens])
        if not session.pacing.admits(cell):
            raise StopUser
        key = PromptKey(session.plan.seed, f"{tokens}{session.mark}", turn, self.slot, Phase.MEASURE.value)
        labels = {"round": turn, "phase": Phase.MEASURE.value}
        return self.caller.run(session.call(cell, cell.target_tokens, key, labels)).to_json()

    def _tokens(self, tier: str) -> int:
        """Tokens of a tier there are prompts for; a task that asks for another one ends the run."""
        try:
            tokens = parse_tier(tier)
        except ConfigError as error:
            self.session.fail(str(error))
            raise StopUser from error
        if tokens not in self.session.targets:
            known = ",".join(map(tier_name, sorted(self.session.targets)))
            self.session.fail(
                f"a task sends tier {tier_name(tokens)} and there are prompts of {known}: add it to --tiers"
            )
            raise StopUser
        return tokens

    def report(self, record: Record) -> None:
        """Fire the events of one record; a listener that asks for the end of the process ends the run instead.

        A user that is killed meanwhile hands its record over all the same.
        """
        raised: BaseException | None = None
        for hand_over in (self.session.complete, self._announce, self._tell_locust):
            try:
                hand_over(record)
            except BaseException as error:  # noqa: BLE001 - raised below
                raised = events.stronger(raised, error)
        if isinstance(raised, (SystemExit, KeyboardInterrupt)):
            self.session.fail(f"a listener raised {type(raised).__name__}")
            raise StopUser from raised
        if raised is not None:
            raise raised

    def _announce(self, record: Record) -> None:
        events.announce(record.to_json())

    def _tell_locust(self, record: Record) -> None:
        """Fire Locust's own event under fixed names: an id would fill its tables."""
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
                self.caller.policy = self.session.policy()
                record = self.caller.run(self.session.call_for(turn.visit, turn.ticket))
                if record.outcome != Outcome.OK and (turn.ticket.phase is Phase.DRAIN or self.session.plan.soak):
                    # Nothing bounds how many of them there are; a server that refuses at once would be flooded.
                    self.session.visits.pause(FAILED_PAUSE_S)
        raise StopUser
