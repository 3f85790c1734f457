"""The visits of a run as its master has them: shared out to workers, followed, judged, repeated once."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Protocol

from loadkit.measure.validity import Validity
from loadkit.plan.ladder import Plan, Visit
from loadkit.plan.shares import Shares, deal
from loadkit.plan.stages import Ticket
from loadkit.swarm.channel import Data
from loadkit.swarm.judge import Judge
from loadkit.swarm.roster import Member, Roster
from loadkit.swarm.session import Session
from loadkit.swarm.shipped import Shelf


class Tell(Protocol):
    """Sends one message to one worker."""

    def __call__(self, what: str, data: Data | None = None, *, to: Member) -> None: ...


class SharedStage:
    """The course of one visit whose streams are on workers."""

    streams = 0
    opened = True  # no stream here waits for another one

    def __init__(self, shares: Shares, halt: Callable[[], None]) -> None:
        """`halt` tells the workers to start nothing more of it."""
        self.shares = shares
        self.announced: dict[str, Data] = {}  # worker -> what it was told
        self.lost: list[str] = []  # why it may not stand
        self.arrivals: dict[str, dict[str, int]] = {}  # worker -> counts of its part of an open loop's schedule
        self._halt = halt

    @property
    def planned(self) -> int:
        return self.shares.planned or 1  # one without any share is not done

    @property
    def measured(self) -> int:
        return self.shares.measured

    @property
    def finished(self) -> bool:
        return self.shares.finished

    def next_request(self, stream: int) -> None:
        """There are no streams here."""

    def done(self, ticket: Ticket) -> None:
        """There are no streams here."""

    def withdraw(self, ticket: Ticket) -> None:
        """There are no streams here."""

    def enough(self) -> None:
        """Workers know by themselves when the time of an endless visit is over."""

    def stop(self) -> None:
        """Let the workers end what is in flight."""
        self._halt()


class Sharing:
    """Binds itself to the visits of the session, which open and close them as they do where the streams are here."""

    def __init__(self, session: Session, roster: Roster, shelf: Shelf, tell: Tell) -> None:
        self.judge = Judge()
        self._session = session
        self._roster = roster
        self._shelf = shelf
        self._tell = tell
        self._stage: SharedStage | None = None
        self._decide = session.visits.between
        session.visits.course_of = self._course
        session.visits.between = self._between

    @property
    def open(self) -> bool:
        """Whether a visit is open."""
        return self._stage is not None

    def lose(self, member: Member, why: str) -> None:
        """A worker is gone: what it has of the open visit is not waited for, and the visit may not stand."""
        stage = self._stage
        if stage is not None and member.id in stage.shares and member.visit is not None:
            stage.shares.lose(member.id)
            stage.lost.append(f"a worker was lost: {member.name} {why}")
            stage.stop()
            self._session.visits.changed()

    def on_state(self, member: Member, data: Data) -> None:
        """How far a worker is with its share; `again` where it is told for fear that something was lost on the way."""
        if data["finished"] and member.visit == data["visit"]:
            member.visit = None
        stage, visit = self._stage, self._session.visits.current
        if stage is None or visit is None or member.id not in stage.shares:
            return
        if visit.index != data["visit"]:
            if data["again"] and member.visit == visit.index:
                self._tell("stage", stage.announced[member.id], to=member)
            return
        facts = ("started", "full", "measured", "planned", "all_measured", "finished")
        stage.shares.report(member.id, **{name: data[name] for name in facts})
        if data["arrivals"]:
            stage.arrivals[member.id] = data["arrivals"]
        news = stage.shares.news()
        if data["again"]:
            news[member.id] = stage.shares.others(member.id)
        for worker, others in news.items():
            self._tell("others", {"visit": visit.index, "others": list(others)}, to=self._roster[worker])
        self._session.visits.changed()

    def _course(self, plan: Plan, visit: Visit) -> SharedStage:
        """Announce a visit to the workers that get a part of it."""
        slots = deal(visit.cell.concurrency, {member.id: member.live for member in self._roster.there}) or {}
        rounds = list(plan.rounds_of(visit))
        stage = self._stage = SharedStage(Shares(slots, len(rounds)), lambda: self._halt(visit))
        self.judge.clear()
        common = {
            "visit": asdict(visit),
            "rounds": rounds,
            "warmup": plan.warmup_of(visit),
            "endless": plan.soak,
            "texts": self._shelf.refs(),
        }
        for i, (worker, share) in enumerate(slots.items()):
            stage.announced[worker] = {**common, "share": list(share), "part": [i, len(slots)]}
            self._roster[worker].visit = visit.index
            self._tell("stage", stage.announced[worker], to=self._roster[worker])
        if not slots:  # a worker went since the users were counted
            stage.lost.append("the streams planned are not all there")
        return stage

    def _halt(self, visit: Visit) -> None:
        for member in self._roster.there:
            if member.visit == visit.index:
                self._tell("halt", {"visit": visit.index}, to=member)

    def _between(self, visit: Visit, why: str | None) -> None:
        """A visit has closed: repeat it once where it may not stand, else decide about further ones."""
        stage, self._stage = self._stage, None
        assert stage is not None
        if parts := list(stage.arrivals.values()):
            self._session.arrived(visit, {name: sum(part[name] for part in parts) for name in parts[0]})
        verdict = Validity("invalid", stage.lost) if stage.lost else self.judge.verdict(visit.index)
        again = self._repeat(visit, verdict) if verdict.status == "invalid" else None
        # What the telemetry shows the report judges by itself; that a worker was lost it cannot know.
        if again is not None or stage.lost:
            self._session.store.invalid(visit, verdict, again)
        if again is None:
            self._decide(visit, why)
            return
        self._session.when_repeated(again, "repeated", "; ".join(verdict.reasons))

    def _repeat(self, visit: Visit, verdict: Validity) -> Visit | None:
        """The visit once more, as the next one; None where it was a repeat itself or the run ends."""
        if visit.attempt or self._session.visits.stopped:
            return None
        again = replace(visit, index=self._session.store.visit_count, attempt=1, first=True)
        self._session.visits.add(again)
        return again
