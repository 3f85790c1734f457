"""The master of a run on several workers: it announces every visit, says who has which streams, and writes what comes.

Workers are told everything they act on (`worker.py` is the other side). A visit in which a worker was lost, or that is
not valid for another reason, is repeated once when the fleet is whole again; Locust may hand users round meanwhile, but
no stream sends anything that no stage asked for.
"""

from locust import runners
from locust.exception import RPCError

import time
from collections.abc import Callable, Mapping
from typing import Any

from gevent.event import Event

from loadkit.record.errors import FolderError, reason
from loadkit.record.merge import adopt
from loadkit.swarm import events
from loadkit.swarm.briefing import brief_of
from loadkit.swarm.channel import Batch, Data, Inbox, Link
from loadkit.swarm.guard import guard, passed_over
from loadkit.swarm.portions import Portions
from loadkit.swarm.roster import Member, Roster
from loadkit.swarm.session import Session
from loadkit.swarm.sharing import Sharing
from loadkit.swarm.shipped import Shelf

WAIT_S = 0.25  # who waits looks again so often, whatever it is told
WHOLE_AGAIN_S = 30.0  # how long a run waits for a lost worker to come back, or for another one
NEVER = -(10**9)  # missed heartbeats, counted down
COMPLETE_S = 30.0  # how long the last records of a worker are waited for when it has nothing in flight


class Fleet:
    """Binds itself to the session of the master. `planned` workers make it whole."""

    def __init__(
        self,
        session: Session,
        environment: Any,
        link: Link,
        planned: int,
        say: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.planned = planned
        self.dispersing = False
        self._dispersed = Event()
        self._session = session
        self._environment = environment
        self._say = say
        self._now = now
        self._roster = Roster(self._on_lost, now)
        self._inbox = Inbox()
        self._shelf = Shelf(session.folder.path, session.texts)
        self._sharing = Sharing(session, self._roster, self._shelf, self._tell)
        ledger = session.pacing.ledger
        self._portions = Portions(
            max(0.0, 1 - ledger.budget.share_of(ledger.spent)),
            planned,
            there=lambda: {member.id for member in self._roster.there},
            tell=lambda worker, what, data: self._tell(what, data, to=self._roster[worker]),
            end=session.pacing.tell,
        )
        self._changed = Event()
        self._bind()
        environment.events.heartbeat_sent.add_listener(self._on_heartbeat)
        # A minute after a worker went Locust forgets it and hands its users round, whatever is being measured.
        runners.HEARTBEAT_DEAD_INTERNAL = NEVER
        guard(environment.runner)
        self._link = link
        link.run_id = session.run_id
        link.start(self._on_message)

    def _bind(self) -> None:
        """The session has no streams of its own: it asks here for what it needs of them."""
        session = self._session
        session.records = events.Hook()
        session.gather, session.disperse = self.gather, self.disperse
        session.users, session.about_fleet = self._users, self._about
        session.folder.spools_path.mkdir(exist_ok=True)

    # -- for the shape ---------------------------------------------------------------------------------------------

    def gather(self) -> None:
        """Wait until the fleet is whole and none of it is busy with an earlier visit; a run for which that does not
        come to be ends, and says so."""
        visits, since = self._session.visits, self._now()
        while not visits.stopped and not self._whole():
            if any(member.visit is not None for member in self._roster.there):
                since = self._now()  # requests in flight end by their own deadlines
            if self._now() - since > WHOLE_AGAIN_S:
                self._session.fail(
                    f"{len(self._roster.there)} of {self.planned} workers are there after {WHOLE_AGAIN_S:.0f} s: "
                    "start the missing ones, or plan fewer"
                )
            self._wait()

    def _whole(self) -> bool:
        there = self._roster.there
        return len(there) >= self.planned and all(member.visit is None for member in there)

    def disperse(self) -> None:
        """Wait until every worker that is there has handed over its last row; they leave when Locust says so.

        Locust may come to its end in two ways at once: both wait.
        """
        if not self.dispersing:
            self.dispersing = True
            try:
                self._disperse()
            finally:
                self._dispersed.set()
        self._dispersed.wait()

    def _disperse(self) -> None:
        going, since = self._roster.there, self._now()
        self._session.store.describe("workers", {"planned": self.planned, "names": self._roster.names})
        if self._sharing.open and not self._session.stopped_by:
            self._session.fail("Locust stopped the test in the middle of a cell, as it does when no worker is heard of")
        elif not going and self._session.visits.left and not (self._session.limited or self._session.stopped_by):
            self._session.fail("no worker is left")
        while missing := [member for member in going if not (member.complete or member.lost)]:
            for member in missing:
                self._tell("end", {"keep": self._session.store.unwritten}, to=member)
            if self._now() - since > COMPLETE_S + (self._environment.stop_timeout or 0):
                names = ", ".join(member.name for member in missing)
                self._session.fail(f"the last records of {names} did not arrive: `loadkit merge` adds them from spools")
                break
            self._wait()

    def abort(self) -> None:
        """Cut what is in flight; the records of it still come."""
        for member in self._roster.there:
            self._tell("abort", to=member)

    def close(self, *, all_ended: bool) -> None:
        """The run is over. What dead workers left in spools on this machine is taken in; the spools go where no worker
        lives that might go on writing into them (`all_ended`)."""
        self._roster.stop()
        self._link.stop()
        self._environment.events.heartbeat_sent.remove_listener(self._on_heartbeat)
        self._shelf.clear()
        folder = self._session.folder
        try:
            found = adopt(folder, remove=all_ended)
            if found.records:
                self._say(f"{found.records} requests of lost workers were found in their spools")
            if found.live:
                self._say(f"{found.live} lost workers have not ended: `loadkit merge` adds what they had in flight")
        except FolderError as error:
            self._say(f"the spools of lost workers are left in {folder.spools_path}: {error}")

    # -- workers that come and go ----------------------------------------------------------------------------------

    def lose_process(self, pid: int, why: str) -> None:
        """A worker of this machine has ended."""
        for member in self._roster.there:
            if member.name.endswith(f"-{pid}"):
                self._roster.lose(member, why)

    def give_up(self, why: str) -> None:
        """There will be no more workers."""
        self._session.fail(why)
        self._wake()

    def _on_lost(self, member: Member, why: str) -> None:
        self._count()
        if not self.dispersing:
            self._say(f"worker {member.name} was lost: {why}")
            if self._session.live is not None:
                self._session.live.on_lost(member.name)
        self._sharing.lose(member, why)
        self._wake()

    def _on_heartbeat(self, client_id: str, **_: object) -> None:
        self._roster.heard(client_id)

    # -- messages --------------------------------------------------------------------------------------------------

    def _on_message(self, sender: str, what: str, data: Data) -> None:
        run, mine = data["run"], self._session.run_id
        if what == "hello" and run is None:
            self._brief(sender)
        elif run != mine:
            self._link.send("leave", {"why": f"this master runs {mine}"}, to=sender)
        elif what == "text":  # the bytes of a text, for a worker on another machine
            self._link.send("text", {"length": data["length"], **self._shelf.packed(data["length"])}, to=sender)
        elif what == "ready":
            self._roster.join(sender, str(data["name"])[:100])
        elif what == "leaving":
            self._on_leaving(sender, data)
        elif (member := self._roster.get(sender)) is not None:
            self._roster.heard(sender)
            self._welcome(member)
            HANDLERS[what](self, member, data)
        self._wake()

    def _brief(self, worker: str) -> None:
        try:
            brief = brief_of(self._session, self._shelf)
        except OSError as error:
            self._session.fail(f"the prompts for the workers cannot be written: {reason(error)}")
        else:
            self._link.send("brief", brief, to=worker)

    def _welcome(self, member: Member) -> None:
        """A worker that was lost is heard again; what it has in flight of an old visit comes to its end."""
        if member.lost and not member.left:
            member.lost = False
            self._count()
            self._say(f"worker {member.name} is back")
            if member.visit is not None:  # it was not there to be told
                self._tell("halt", {"visit": member.visit}, to=member)

    def _on_users(self, member: Member, data: Data) -> None:
        if member.live != (live := int(data["live"])):  # it is told every second
            member.live = live
            self._count()

    def _on_rows(self, member: Member, data: Data) -> None:
        for row in self._inbox.take(member.id, Batch(data["first"], data["data"])):
            try:
                self._take(row)
            except (LookupError, TypeError, ValueError, AttributeError) as error:  # the rows after it still count
                passed_over("row", member.name, error)
        self._tell("ack", {"number": self._inbox.have(member.id)}, to=member)

    def _take(self, row: dict[str, Any]) -> None:
        """A row of a worker: a record goes where those of this process would, anything else into the telemetry."""
        session = self._session
        if row["kind"] != "request":
            session.sample(row)
            self._sharing.judge.take(row)
            return
        if row["run_id"] != session.run_id:
            raise ValueError("it is a record of another run")
        session.records.fire(record=row)
        self._sharing.judge.take(row)
        if session.further is not None and row["attempts"]:
            session.further.on_first(row["attempts"][0]["outcome"])

    def _on_state(self, member: Member, data: Data) -> None:
        self._sharing.on_state(member, data)

    def _on_budget(self, member: Member, data: Data) -> None:
        if not self._session.visits.stopped:
            self._portions.ask(member.id, data["have"], data["need"], data["name"])

    def _on_returned(self, member: Member, data: Data) -> None:
        self._portions.returned(member.id, data["number"], data["have"])

    def _on_last(self, member: Member, data: Data) -> None:
        member.complete = self._inbox.have(member.id) >= data["number"]

    def _on_leaving(self, sender: str, data: Data) -> None:
        """A worker goes by its own decision; what is wrong with it is wrong with the run."""
        if data["fault"]:
            self._session.fail(f"worker {str(data['name'])[:100]}: {str(data['fault'])[:800]}")
        if (member := self._roster.get(sender)) is not None:
            member.left = True
            self._roster.lose(member, f"left ({str(data['why'])[:200]})")

    def _tell(self, what: str, data: Data | None = None, *, to: Member) -> None:
        try:
            self._link.send(what, data, to=to.id)
        except RPCError:
            self._roster.lose(to, "cannot be reached")

    # -- counting --------------------------------------------------------------------------------------------------

    def _count(self) -> None:
        self._session.live_users = sum(member.live for member in self._roster.there)

    def _users(self) -> tuple[int, int]:
        """(planned, live) of the open visit, over all workers."""
        visit, live = self._session.visits.current, self._session.live_users
        return (visit.cell.concurrency, min(visit.cell.concurrency, live)) if visit else (0, live)

    def _about(self) -> Mapping[str, int]:
        return {"workers_planned": self.planned, "workers_live": len(self._roster.there)}

    def _wait(self) -> None:
        self._changed.wait(WAIT_S)

    def _wake(self) -> None:
        changed, self._changed = self._changed, Event()
        changed.set()


HANDLERS: dict[str, Callable[[Fleet, Member, Data], None]] = {
    "users": Fleet._on_users,
    "rows": Fleet._on_rows,
    "state": Fleet._on_state,
    "budget": Fleet._on_budget,
    "returned": Fleet._on_returned,
    "last": Fleet._on_last,
}
