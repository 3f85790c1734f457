"""The plan while it is walked: after each visit cells are added or left out, and a stage of too many 429 is ended.

What is decided comes from a pure function that the caller of the run hands in (`loadkit.analysis.decide.decide`);
here it is asked, and its answer is carried out, while no stream is in flight.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from loadkit.plan.errors import ConfigError, TargetError
from loadkit.plan.further import Change, Decision, Seen, Tally, too_limited
from loadkit.plan.ladder import Cell, Plan, Visit
from loadkit.prompt.counters import CountError
from loadkit.prompt.public import PublicTier
from loadkit.prompt.tier import TierText
from loadkit.record.names import Outcome
from loadkit.swarm.judge import Judge
from loadkit.swarm.store import Store
from loadkit.swarm.visits import Visits
from loadkit.target.texts import facts

Decide = Callable[[Mapping[str, Seen], Plan, Sequence[Visit]], Decision]
Text = TierText | PublicTier
Build = Callable[[Plan], Mapping[int, Text]]
"""The prompts of a plan, as `prepare` built those of the run."""


class Further:
    """Watches the requests of a run and changes its visits. `texts` are the run's prompts by length, and grow.

    `fail` ends the run with one line; `when_changed` is told each change: added, dropped or ended, and why.
    """

    def __init__(
        self,
        plan: Plan,
        visits: Visits,
        store: Store,
        texts: dict[int, Text],
        *,
        decide: Decide,
        build: Build,
        fail: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._visits = visits
        self._store = store
        self._texts = texts
        self._decide = decide
        self._build = build
        self._fail = fail
        self._tally = Tally()
        self._limited = self._first_attempts = 0  # of the open visit
        self._judge = Judge()
        self._backed_down = False
        self._unbuilt = False
        self.when_changed: Callable[[Visit, str, str], None] = lambda visit, state, why: None

    def remember(self, tally: Tally) -> None:
        """What earlier starts of the run have seen."""
        self._tally = tally
        self._backed_down = any(seen.ended for seen in tally.cells.values())

    @property
    def lengthens(self) -> bool:
        """Whether back-off after a 429 may lengthen: concurrency was lowered before, or there is none to lower."""
        visit = self._visits.current
        return self._backed_down or visit is None or visit.cell.concurrency == 1

    def on_record(self, *, record: dict[str, Any], **_: object) -> None:
        """A request has ended."""
        if self._visits.current is not None:
            self._tally.of(self._visits.current.cell)  # knows the length of its prompts, which a record may not
        self._tally.add(record)
        self._judged(record)

    def on_sample(self, *, row: dict[str, Any], **_: object) -> None:
        """A row of telemetry, of this process or of a worker."""
        self._judged(row)

    def _judged(self, row: dict[str, Any]) -> None:
        """A search for a rate has to know whether the client kept up; a ladder goes on whatever it did."""
        if self._plan.rate_search and row["kind"] in ("request", "telemetry"):
            self._judge.take(row)

    def on_arrivals(self, visit: Visit, counts: Mapping[str, int]) -> None:
        """The schedule of an open loop's visit is through."""
        self._tally.of(visit.cell).counts = counts

    def on_first(self, outcome: str | None) -> None:
        """The first attempt of a request has ended; too many 429 end the stage, but that of an open loop or a
        list of stages, which is there to see how a server refuses."""
        visit = self._visits.current
        if visit is None or visit.cell.concurrency == 1 or visit.cell.rate is not None or visit.cell.stage is not None:
            return
        self._first_attempts += 1
        self._limited += outcome == Outcome.RATE_LIMITED
        requests = len(self._plan.rounds_of(visit)) * visit.cell.concurrency + self._plan.warmup_of(visit)
        why = too_limited(self._limited, self._first_attempts, requests)
        if why is not None and not self._visits.ending:
            self._visits.end_current(why)

    def on_closed(self, visit: Visit, why: str | None) -> None:
        """A visit has closed and nothing is in flight; `why` = it was ended before its time."""
        self._limited = self._first_attempts = 0
        verdict = self._judge.verdict(visit.index)
        self._judge.clear()
        if self._visits.stopped:
            return
        if verdict.status == "invalid":
            self._tally.of(visit.cell).unusable = "; ".join(verdict.reasons)
        if why is not None:
            self._tally.of(visit.cell).ended = self._backed_down = True
            self.when_changed(visit, "ended", why)
        try:
            decision = self._decide(self._tally.cells, self._plan, self._visits.left)
        except Exception as error:  # noqa: BLE001 - it would end the shape, and with it every visit to come
            self._fail(f"what decides about further cells raised {type(error).__name__}")
            return
        for change in decision.drop:
            for dropped in self._visits.drop(change.cell.id):
                self._store.visit(dropped, "dropped", change.why)
                self.when_changed(dropped, "dropped", change.why)
        for change in decision.add:
            self._add(change)

    def _add(self, change: Change) -> None:
        """Build the prompts and put the cell next; one whose prompts cannot be built is listed as dropped."""
        known = change.cell.target_tokens in self._texts
        if not known and self._unbuilt:
            return  # it is asked for again after every visit
        fault = None if known else self._fault(change.cell)
        visit = Visit(self._store.visit_count, change.cell, 0, first=True)
        new = [facts(self._texts[change.cell.target_tokens])] if fault is None and not known else []
        self._store.add_visit(visit, change.why, new)
        if fault is None:
            self._visits.add(visit)
            self.when_changed(visit, "added", change.why)
            return
        self._unbuilt = True
        why = f"{change.why}; its prompts cannot be built: {fault}"
        self._store.visit(visit, "dropped", why)
        self.when_changed(visit, "dropped", why)

    def _fault(self, cell: Cell) -> str | None:
        """Build the prompts of a new length; why that failed, or None."""
        try:
            built = self._build(replace(self._plan, cells=(cell,)))
        except (ConfigError, TargetError, CountError) as error:
            return str(error)
        for length, text in built.items():
            self._texts.setdefault(length, text)
        return None
