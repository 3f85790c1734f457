"""Whether the cells of a run may be used, from everything the run folder holds.

What was judged while the run went on stands in the manifest, visit by visit, and wins: it saw every sample. Without it
telemetry rows inside the measured windows are judged by the rules of `measure.validity`. Without those the records
remain: the worst lag of a request bounds the p99 from above, so it can clear a cell or make it suspect, never invalid.

A telemetry row has `timestamp` and `at_ms` (end of the time it covers), `worker`, `cell` (the open visit's, or
None), `hub_lag` (a histogram on the wire), `cpu` (share of a core), `users_planned` and `users_live`; a row may lack
any of them.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from loadkit.analysis.consistency import Consistency, own_users, think_s
from loadkit.analysis.reading import names, number, numbers
from loadkit.analysis.repeats import standing
from loadkit.analysis.strata import Stratum
from loadkit.analysis.window import clock_of, seconds_of
from loadkit.measure.histogram import LAG_BOUNDS_S, Histogram
from loadkit.measure.quantile import nearest_rank
from loadkit.measure.validity import ORDER, Validity, cell_validity, client_health, worst
from loadkit.record.names import Flag

ROW_SECONDS = 1.0
SUSPECT_FLAGS = (Flag.CLIENT_SATURATED, Flag.PREFIX_CACHE_HIT, Flag.PROMPT_TRUNCATED, Flag.THROTTLED, Flag.UNLOCKED)


class Health:
    """The run's evidence on its own load generator; ask `of(stratum, cell)` for each cell."""

    def __init__(self, manifest: Mapping[str, Any], telemetry: Iterable[Mapping[str, Any]]) -> None:
        self.saturated = False  # a cell asked for so far was invalid because of the load generator
        self._against_itself = Consistency(manifest)
        self._suspect_flags = _suspect_flags(manifest)
        self._thinks = bool(think_s(manifest)) or own_users(manifest)
        self._judged: dict[str, list[Validity]] = defaultdict(list)
        for visit in standing(manifest):
            if verdict := _verdict(visit.get("validity")):
                self._judged[str(visit.get("cell"))].append(verdict)
        own = (row for row in telemetry if row.get("kind", "telemetry") == "telemetry")  # not of a server or a board
        timed = [(at, row) for row in own if (at := seconds_of(row, "at_ms")) is not None]
        # Rows are cut where a visit opens and closes; a run without visits has rows of no cell, told apart by time.
        self._named = any(row.get("cell") is not None for _, row in timed)
        self._rows: dict[tuple[str, str | None], list[tuple[float, Mapping[str, Any]]]] = defaultdict(list)
        for at, row in sorted(timed, key=itemgetter(0)):
            self._rows[clock_of(row, "at_ms"), self._place(row.get("cell"))].append((at, row))

    def of(self, stratum: Stratum, cell: Mapping[str, Any]) -> Validity:
        """The verdict on one cell of the summary, with every reason that was found."""
        of_records = of_requests(cell, self._suspect_flags, thinks=self._thinks)
        of_records += self._against_itself.of(stratum, cell)
        if judged := self._judged.get(cell["cell"]):
            return worst(*judged, *of_records)
        itl = (cell["itl_ms"] or cell["tpot_ms"] or {}).get("p50")
        rows = self._inside(stratum, ROW_SECONDS)
        if not rows:
            return worst(_lag_bound(stratum, itl), *of_records)
        workers = _by_worker(rows)
        health = [client_health(_lag_p99(mine), itl, _mean(mine, "cpu")) for mine in workers.values()]
        self.saturated |= any(verdict.status == "invalid" for verdict in health)
        return worst(*health, *self._users(stratum), *of_records)

    def _place(self, cell: Any) -> str | None:
        return str(cell) if self._named else None

    def _inside(self, stratum: Stratum, reach_s: float) -> list[Mapping[str, Any]]:
        """The rows inside the measured windows of the cell, or up to reach_s after them."""
        cell = self._place(stratum.name)
        found = {}
        for clock, start, end in stratum.window.spans():
            rows = self._rows.get((clock, cell), [])
            first = bisect_left(rows, start, key=itemgetter(0))
            last = bisect_right(rows, end + reach_s, key=itemgetter(0))
            found.update({(clock, i): rows[i][1] for i in range(first, last)})
        return list(found.values())

    def _users(self, stratum: Stratum) -> list[Validity]:
        """Planned against live users in the rows wholly inside the windows; a window too short for one says nothing."""
        rows = [row for row in self._inside(stratum, 0.0) if number(row, "users_live") is not None]
        counts = [(number(row, "users_planned") or stratum.concurrency, number(row, "users_live") or 0) for row in rows]
        verdicts = [cell_validity(int(planned), [int(live)], 0) for planned, live in counts]
        seconds = [end - start for _, start, end in stratum.window.spans()]
        if not verdicts and max(seconds, default=0.0) > 2 * ROW_SECONDS:
            return [cell_validity(stratum.concurrency, [], 0)]
        return verdicts


def of_requests(
    cell: Mapping[str, Any], suspect_flags: Sequence[Flag] = SUSPECT_FLAGS, *, thinks: bool = False
) -> list[Validity]:
    """What the requests of a cell say against it: flags, and other streams in flight than planned.

    thinks: streams pause between their requests, so that fewer of them may be in flight.
    """
    found = [
        Validity("suspect", [f"{cell['flags'][flag.value]} of {cell['n']} requests carry {flag.value}"])
        for flag in suspect_flags
        if flag.value in cell["flags"]
    ]
    peak, planned = cell["peak_in_flight"], cell["concurrency"]
    if peak is not None and peak < planned and cell["rate"] is None and not thinks:
        found.append(Validity("suspect", [f"at most {peak} streams were in flight where {planned} were planned"]))
    if peak is not None and peak > planned:
        found.append(Validity("suspect", [f"{peak} streams were in flight at once where {planned} were planned"]))
    if (early := cell["implausible_ttft"]) and Flag.PREFIX_CACHE_HIT in suspect_flags:
        found.append(Validity("suspect", [_sooner(early, cell["ok"])]))
    if Flag.MODEL_DRIFT in cell["cell_flags"]:
        found.append(Validity("suspect", ["the answers name more than one model or fingerprint in this run"]))
    return found


def _sooner(early: Mapping[str, Any], answers: int) -> str:
    """What is said of answers that `analysis.plausible` found."""
    return (
        f"{early['count']} of {answers} answers came sooner than a prompt of this length allows "
        f"({early['fastest_ms']:.3g} ms where the rest of the run gives {early['floor_ms']:.3g} ms), "
        "as from a prefix cache"
    )


def _lag_bound(stratum: Stratum, itl_ms: float | None) -> Validity:
    """The verdict from the worst lag inside each request, where no sample of the second by second kind is left."""
    if not stratum.n:
        return Validity("suspect", ["nothing was measured"])
    verdict = client_health(nearest_rank(stratum.hub_lag, 0.99), itl_ms, 0.0)
    if verdict.status != "invalid":
        return verdict
    return Validity("suspect", [f"{reason} at its worst inside a request" for reason in verdict.reasons])


def _by_worker(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    workers: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        workers[str(row.get("worker"))].append(row)
    return workers


def _lag_p99(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """The p99 of lag (ms) over all samples of the rows, to the width of a bucket; None where nothing was sampled.

    The largest p99 of any second would be too strict: three late wake-ups would condemn an hour.
    """
    merged = Histogram(LAG_BOUNDS_S)
    for row in rows:
        if not numbers(row, "hub_lag"):
            continue
        try:
            merged.merge(Histogram.from_wire(LAG_BOUNDS_S, row["hub_lag"]))
        except (KeyError, TypeError, ValueError):
            continue
    p99 = merged.quantile(0.99)
    return None if p99 is None else p99 * 1e3


def _mean(rows: Iterable[Mapping[str, Any]], name: str) -> float | None:
    values = [value for row in rows if (value := number(row, name)) is not None]
    return sum(values) / len(values) if values else None


def _suspect_flags(manifest: Mapping[str, Any]) -> tuple[Flag, ...]:
    """Flags that make a cell suspect; cache hits are what a run with a shared prefix wants to see."""
    plan = manifest.get("plan")
    wanted = Flag.PREFIX_CACHE_HIT if isinstance(plan, Mapping) and number(plan, "shared_prefix") else None
    return tuple(flag for flag in SUSPECT_FLAGS if flag is not wanted)


def _verdict(value: Any) -> Validity | None:
    """A verdict as the manifest holds it, {status, reasons}; None for anything else."""
    if not isinstance(value, Mapping) or value.get("status") not in ORDER:
        return None
    return Validity(value["status"], names(value, "reasons"))
