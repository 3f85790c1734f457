"""What is counted while a run goes on, fed with the rows that also go into its folder: records, telemetry, summary.

The master of a fleet feeds it every row of its workers. They come over the run's channel exactly once, so counters
equal the records whatever happens to a worker, and no process but this one has a series to lose or to leave behind.
"""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry

from loadkit.live import labels
from loadkit.live.collector import Collector
from loadkit.live.families import Exemplar, Family, Labels
from loadkit.live.labels import MAX_CELLS, OTHER, USUAL_CODES, code_of
from loadkit.live.samples import Samples
from loadkit.live.table import METRICS
from loadkit.live.workers import Workers, tame
from loadkit.measure import slo
from loadkit.record.names import Outcome, Phase

LATER_SERIES = len(labels.TIMES) * (len(labels.QUANTILES) + 1) + 1  # of a cell, when it has been visited
WORKER_SERIES = 6
KEPT_CELLS = 10_000  # whose place is remembered


@dataclass(frozen=True, slots=True)
class About:
    """The run that is counted. `cells` are (tier, streams or rate); `process` is the name of this one in telemetry."""

    run_id: str
    endpoint: str
    cells: tuple[tuple[int | str, int | str], ...]
    process: str = ""
    workers: int = 1
    slo: str = ""
    model: str = ""
    protocol: str = ""
    host: str = ""
    target: str = ""
    plan: str = ""
    seed: str = ""
    version: str = ""
    locust_version: str = ""

    @property
    def run(self) -> str:
        """The run's id as a label: [a-z0-9-], at most 32 characters."""
        return re.sub(r"[^a-z0-9-]+", "-", self.run_id.lower())[:32] or "run"


class Registry:
    """All metrics of one run. Values of closed sets that a row does not keep to are counted as `other`."""

    def __init__(self, about: About, now: Callable[[], float] = time.time) -> None:
        """`now`: Unix time in seconds."""
        self.about = about
        self.now = now
        self.families = {metric.name: Family(metric, about.run) for metric in METRICS}
        self.slos = [item for item in slo.parse(about.slo) if item.quantile is not None] if about.slo else []
        self._cells: dict[tuple[Any, Any, Any], Labels] = {}
        self._places: set[Labels] = set()
        self._samples: dict[Labels, Samples] = defaultdict(Samples)
        self._workers = Workers(self.families, about.process, now)
        self._begin()
        self.prometheus = CollectorRegistry(auto_describe=False)
        self.prometheus.register(Collector(self.families))

    @property
    def series(self) -> int:
        """Series there are now."""
        return sum(family.series for family in self.families.values())

    @property
    def planned_series(self) -> int:
        """Series there will be when every cell was visited and every worker heard."""
        return self.series + len(self._places) * (LATER_SERIES + len(self.slos)) + self.about.workers * WORKER_SERIES

    # -- rows ------------------------------------------------------------------------------------------------------

    def observe(self, record: Mapping[str, Any]) -> None:
        """A request has ended. Into the histograms go successful ones of phase measure only."""
        place = self._place(record["endpoint"], record["tier_tokens"], labels.load_of(record))
        phase = _of(record["phase"], labels.PHASES)
        outcome = _of(record["outcome"], labels.OUTCOMES)
        self._add("loadkit_requests_total", (*place, phase, outcome, code_of(record["http_status"])))
        for direction, name in zip(labels.DIRECTIONS, ("prompt", "output", "cached"), strict=True):
            if tokens := record[f"{name}_tokens"]:
                self._add("loadkit_tokens_total", (*place, phase, direction), tokens)
        self._attempts(place[:2], record["attempts"])
        if phase != Phase.MEASURE:
            return
        for item in self.slos:
            if (met := item.met_by(record)) is not None:
                self._add("loadkit_slo_total", (*place, item.name))
                self._add("loadkit_slo_ok_total", (*place, item.name), int(met))
        if outcome == Outcome.OK:
            self._times(place, record)

    def stage(self, cell: str, state: str) -> None:
        """A visit of a cell ('4096x2') opened ("open") or closed, now."""
        tier, load = labels.place_of(cell)
        place = self._place(self.about.endpoint, tier, load)
        opened = state == "open"
        self._state("visit" if opened else "idle")
        self._put("loadkit_target_concurrency", (), int(load) if opened and load.isdigit() else 0)
        if opened:
            self._put("loadkit_stage_start_timestamp_seconds", place, self.now())
            return
        for metric, values in self._samples[place].summaries().items():
            self._quantiles(place, metric, values)

    def health(self, row: Mapping[str, Any]) -> None:
        """A row of telemetry, of any kind; one of another kind than telemetry, server and board says nothing here."""
        self._workers.take(row)
        for cell, (offered, dropped) in (row.get("arrivals") or {}).items():
            place = self._place(self.about.endpoint, *labels.place_of(str(cell)))
            self._add("loadkit_arrivals_total", place, offered)
            self._add("loadkit_dropped_arrivals_total", place, dropped)

    def worker_lost(self, worker: str) -> None:
        """A worker is gone, and its gauges with it; what it has counted stays."""
        self._add("loadkit_worker_lost_total", ())
        self._workers.lose(worker)

    def summary(self, summary: Mapping[str, Any]) -> None:
        """The run is over: the report's own quantiles, verdicts and knees stand for what was said while it went on."""
        for cell in summary["cells"]:
            place = self._place(self.about.endpoint, cell["tier_tokens"], labels.load_of(cell))
            for metric in labels.TIMES:
                self._quantiles(place, metric, cell[f"{metric}_ms"])
            for status in labels.VALIDITIES:
                self._put("loadkit_cell_validity", (*place, status), int(cell["validity"]["status"] == status))
        for met in summary["objectives"]:
            if met["met"] is not None:
                place = self._place(self.about.endpoint, *labels.place_of(str(met["cell"])))
                self._put("loadkit_slo_met", (*place, met["name"]), int(met["met"]))
        self._knees(summary["knee"])

    def finished(self) -> None:
        """Nothing more will be counted: the state is linger, and no process has anything in flight."""
        self._state("linger")
        self._workers.forget_all()
        for name in ("loadkit_users", "loadkit_target_users", "loadkit_target_concurrency"):
            self._put(name, (), 0)

    def scraped(self) -> None:
        """Somebody asks for the page now: ages are of this moment, and silent workers are gone."""
        self._put("loadkit_last_scrape_timestamp_seconds", (), self.now())
        self._workers.age()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        about = self.about
        run = about.version, about.locust_version, about.plan, about.seed, about.target
        self._put("loadkit_run_info", run, 1)
        self._put("loadkit_endpoint_info", (about.endpoint, tame(about.model), about.protocol, about.host), 1)
        self.families["loadkit_connect_seconds"].buckets((about.endpoint,))
        for metric in labels.REJECTING:
            self._add("loadkit_rejected_samples_total", (metric,), 0)
        self._add("loadkit_worker_lost_total", (), 0)
        self._put("loadkit_last_scrape_timestamp_seconds", (), 0)
        self._put("loadkit_target_concurrency", (), 0)
        self._state("idle")
        for cell in about.cells:
            self._place(about.endpoint, *cell)

    def _place(self, endpoint: Any, tier: Any, concurrency: Any) -> Labels:
        """The labels of a cell; all its series are there from the first call."""
        key = endpoint, str(tier), str(concurrency)
        if (place := self._cells.get(key)) is None:
            name = self.about.endpoint if endpoint == self.about.endpoint else OTHER
            place = (name, str(tier), str(concurrency))
            if place not in self._places and len(self._places) >= MAX_CELLS:
                place = (name, OTHER, OTHER)
            if place not in self._places:
                self._zero(place)
                self._places.add(place)
            if len(self._cells) < KEPT_CELLS:
                self._cells[key] = place
        return place

    def _zero(self, place: Labels) -> None:
        for name in labels.TIMES:
            self.families[f"loadkit_{name}_seconds"].buckets(place)
        if place[2] == "1":
            self.families["loadkit_prefill_seconds_per_token"].buckets(place[:2])
        for phase in labels.PHASES:
            for outcome, codes in USUAL_CODES.items():
                for code in codes:
                    self._add("loadkit_requests_total", (*place, phase, outcome.value, code), 0)
            for direction in labels.DIRECTIONS:
                self._add("loadkit_tokens_total", (*place, phase, direction), 0)
        for name in ("loadkit_arrivals_total", "loadkit_dropped_arrivals_total"):
            self._add(name, place, 0)
        for code in labels.CODES:
            self._add("loadkit_attempts_total", (*place[:2], code), 0)
        for code in labels.RETRIED_CODES:
            self._add("loadkit_retries_total", (*place[:2], code), 0)
            self._add("loadkit_retry_wait_seconds_total", (*place[:2], code), 0)
        for item in self.slos:
            self._add("loadkit_slo_total", (*place, item.name), 0)
            self._add("loadkit_slo_ok_total", (*place, item.name), 0)
        for status in labels.VALIDITIES:
            self._put("loadkit_cell_validity", (*place, status), 0)

    def _attempts(self, tier: Labels, attempts: list[Mapping[str, Any]]) -> None:
        for attempt in attempts:
            self._add("loadkit_attempts_total", (*tier, code_of(attempt["http_status"])))
        for attempt in attempts[:-1]:
            code = code_of(attempt["http_status"])
            self._add("loadkit_retries_total", (*tier, code))
            self._add("loadkit_retry_wait_seconds_total", (*tier, code), (attempt["wait_ms"] or 0) / 1e3)

    def _times(self, place: Labels, record: Mapping[str, Any]) -> None:
        self._samples[place].add(record)
        ttft = record["ttft_ms"]
        exemplar = Exemplar(str(record["request_id"])[:100], ttft / 1e3, self.now()) if _is_time(ttft) else None
        self._time("ttft", place, ttft, exemplar)
        self._time("e2e", place, record["e2e_ms"])
        if rejected := self.families["loadkit_itl_seconds"].buckets(place).observe_all(record["itl_ms"] or ()):
            self._add("loadkit_rejected_samples_total", ("itl",), rejected)
        if record["tpot_ms"] is not None:  # an answer of one token has none
            self._time("tpot", place, record["tpot_ms"])
        if record["connect_ms"] is not None:
            self._time("connect", place[:1], record["connect_ms"])
        if record["unit_price_ms"] is not None and place[2] == "1":
            self._time("prefill", place[:2], record["unit_price_ms"])

    def _time(self, what: str, at: Labels, value_ms: float | None, exemplar: Exemplar | None = None) -> None:
        name = "loadkit_prefill_seconds_per_token" if what == "prefill" else f"loadkit_{what}_seconds"
        if not self.families[name].buckets(at).observe(value_ms, exemplar):
            self._add("loadkit_rejected_samples_total", (what,))

    def _quantiles(self, place: Labels, metric: str, values: Mapping[str, Any] | None) -> None:
        self._put("loadkit_stage_samples", (*place, metric), values["n"] if values else 0)
        for quantile, level in labels.QUANTILES.items():
            value = values[f"p{level * 100:.0f}"] if values else None
            self._put("loadkit_stage_quantile_seconds", (*place, metric, quantile), value and value / 1e3)

    def _knees(self, knee: Mapping[str, Any]) -> None:
        endpoint = self.about.endpoint
        if length := knee["length"]:
            self._put("loadkit_knee_context_tokens", (endpoint,), length["knee"])
            self._put("loadkit_knee_confidence_ratio", (endpoint, "length"), length["probability"])
        rates = [found for found in knee["concurrency"] if found["metric"] == "throughput"]
        for found in rates:
            self._put("loadkit_knee_concurrency", (endpoint, str(found["tier_tokens"])), found["knee"])
        best = max((found["probability"] for found in rates), default=None)
        self._put("loadkit_knee_confidence_ratio", (endpoint, "concurrency"), best)

    def _state(self, state: str) -> None:
        for name in labels.STATES:
            self._put("loadkit_phase", (name,), int(name == state))

    def _add(self, name: str, at: Labels, amount: float = 1) -> None:
        self.families[name].add(at, amount)

    def _put(self, name: str, at: Labels, value: Any) -> None:
        self.families[name].set(at, value)


def _of(value: Any, known: tuple[str, ...]) -> str:
    return value if value in known else OTHER


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < float("inf")
