"""Records in, one summary per (tier, concurrency) out.

Only measured requests that succeeded enter a percentile; failures are counted beside them. Nothing is averaged over
cells, and prefill (TTFT, unit price) and decode (TPOT, ITL) are never mixed into one rate. Rates and prices are
nearest-rank medians over the rounds; throughputs are sums over the measured window.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from loadkit.analysis.parts import Parts
from loadkit.analysis.reading import attempts, names, number, numbers, whole
from loadkit.analysis.spread import median, spread, with_failures
from loadkit.analysis.stability import SLOWING, Stability
from loadkit.analysis.window import Window, interval
from loadkit.measure.load import Load
from loadkit.plan.ladder import Cell
from loadkit.record.names import Flag, Outcome, Phase

DISTRIBUTIONS = ("ttft_ms", "ttft_content_ms", "ttft_sched_ms", "tpot_ms", "e2e_ms")
MEDIANS = ("prefill_tokens_per_s", "decode_tokens_per_s", "unit_price_ms")
STATED = ("server_prefill_ms", "server_decode_ms", "tokenize_ms")  # the server's own clocks
COUNTED_BY_SERVER = "usage"
WITHHOLDS_ITL = (Flag.BURSTY.value, Flag.TOKENS_PER_EVENT_GT_1.value, Flag.EVENTS_ARE_CHARACTERS.value)
LOW_N = 100
MIN_ROUNDS = 3
NOT_THE_SERVERS = (Outcome.OK.value, Outcome.ABORTED.value)
UNKNOWN = "unknown"  # no outcome, or one outside the closed set: a damaged or foreign file
_KNOWN = frozenset(outcome.value for outcome in Outcome)


def strata(records: Iterable[Mapping[str, Any]]) -> list["Stratum"]:
    """The records as cells, ascending by tier, stage, concurrency, then the rate of an open loop. One pass; requests of
    no cell are left out."""
    cells: dict[tuple[int, int, int, float], Stratum] = {}
    for record in records:
        tier, concurrency = number(record, "tier_tokens"), number(record, "concurrency")
        if tier is None or concurrency is None:
            continue
        stage = whole(record, "stage") or 0
        key = (int(tier), stage, int(concurrency), number(record, "rate") or 0.0)
        if key not in cells:
            cells[key] = Stratum(key[0], *key[2:], stage)
        cells[key].add(record)
    return [cells[key] for key in sorted(cells)]


class Stratum:
    """The requests of one cell: add every record, then `summary()`."""

    def __init__(self, tier_tokens: int, concurrency: int, rate: float = 0.0, stage: int = 0) -> None:
        """`rate`: requests/s of an open loop, 0 in a closed one. `stage`: its place in a list of stages, 0 without."""
        self.tier_tokens = tier_tokens
        self.concurrency = concurrency
        self.rate = rate or None
        self.stage = stage or None
        self.load = Load()
        self.arrivals: Mapping[str, Any] | None = None  # counts of the schedule, where the manifest has them
        self.n = 0
        self.ok = 0
        self.window = Window()
        self.outcomes: Counter[str] = Counter()
        self.first_outcomes: Counter[str] = Counter()
        self.retried = 0
        self.flags: Counter[str] = Counter()
        self.rounds: dict[int, array] = {}  # TTFT (ms) of the answers of each round
        self.models: set[tuple[str | None, str | None]] = set()
        self.hub_lag = array("d")
        self.values = {name: array("d") for name in (*DISTRIBUTIONS, *MEDIANS, "prompt_tokens", "output_tokens")}
        self.stated = {name: array("d") for name in STATED}
        self.paces = array("d")  # end of an answer (s on its clock) and its decode tokens/s, in turn
        self.shares = array("d")
        self.per_1k = array("d")
        self.prefilled = array("d")  # prompt tokens computed: those of the unit price
        self.off_target = array("d")  # prompt tokens by usage / tokens the prompt was built for
        self.events_per_read = array("d")
        self.itl = array("d")
        self.stability = Stability()
        self.parts = Parts()
        self.tokens_out = 0.0
        self.tokens_in = 0.0

    def add(self, record: Mapping[str, Any]) -> None:
        """Take one request of this cell, of any phase."""
        measured = record.get("phase") == Phase.MEASURE
        self.window.add(record, measured)
        if not measured:
            return
        self.n += 1
        outcome = outcome_of(record)
        tries = attempts(record)
        self.outcomes[outcome] += 1
        self.first_outcomes[outcome_of(tries[0]) if tries else outcome] += 1
        self.retried += len(tries) > 1
        if flags := names(record, "flags"):
            self.flags.update(flags)
        _append(self.hub_lag, number(record, "hub_lag_max_ms"))
        if self.rate is not None:
            self.load.add(record)
        if outcome == Outcome.OK:
            self._add_answer(record)

    def _add_answer(self, record: Mapping[str, Any]) -> None:
        """Take the numbers of a measured request that succeeded."""
        self.ok += 1
        for name, values in (*self.values.items(), *self.stated.items()):
            _append(values, number(record, name))
        if (rate := number(record, "decode_tokens_per_s")) is not None and (span := interval(record)) is not None:
            self.paces.extend((span[1], rate))
        ttft, e2e, prompt = (number(record, name) for name in ("ttft_ms", "e2e_ms", "prompt_tokens"))
        if ttft is not None and e2e:
            self.shares.append(ttft / e2e)
        self.tokens_in += prompt or 0
        self.tokens_out += number(record, "output_tokens") or 0
        if prompt:
            self._add_prompt(record, prompt, ttft)
        if Flag.EVENTS_ARE_CHARACTERS not in names(record, "flags"):  # gaps between letters are no pace of tokens
            self._add_gaps(record)
        self.parts.add(record)
        if turn := number(record, "round"):
            _append(self.rounds.setdefault(int(turn), array("d")), ttft)
        self.models.add((_text(record, "response_model"), _text(record, "fingerprint")))

    def _add_prompt(self, record: Mapping[str, Any], prompt: float, ttft: float | None) -> None:
        """Take what is known of the prompt's length: against the length asked for, and against the time it took."""
        target = number(record, "target_tokens")
        if target and record.get("prompt_tokens_source") == COUNTED_BY_SERVER:
            self.off_target.append(prompt / target)
        if ttft is None:
            return
        self.per_1k.append(1000 * ttft / prompt)
        computed = prompt - (number(record, "bos_tokens") or 0) - (number(record, "cached_tokens") or 0)
        if computed > 0:
            self.prefilled.append(computed)

    def _add_gaps(self, record: Mapping[str, Any]) -> None:
        """Gaps between token events; an event of k tokens after a gap g counts as k gaps of g / k."""
        gaps, tokens = numbers(record, "itl_ms"), numbers(record, "event_tokens")
        self.stability.add(gaps, tokens)
        if reads := record.get("event_read"):
            _append(self.events_per_read, _per_distinct(reads))
        if len(tokens) != len(gaps) + 1 or max(tokens, default=1) <= 1:
            self.itl.extend(gaps)
            return
        for gap, k in zip(gaps, tokens[1:], strict=True):
            parts = max(int(k), 1)
            self.itl.extend([gap / parts] * parts)

    @property
    def name(self) -> str:
        """What records, manifest and telemetry call the cell."""
        return Cell(self.tier_tokens, self.concurrency, rate=self.rate, stage=self.stage).id

    def answered_rounds(self) -> int:
        """Rounds with an answer; where a visit holds all rounds together, the whole turns of its streams."""
        return len(self.rounds) or self.ok // max(self.concurrency, 1)

    def summary(self) -> dict[str, Any]:
        """The cell of summary.json without its validity. Absent is None; times are ms."""
        withheld = [flag for flag in WITHHOLDS_ITL if self.flags[flag]]
        stability = self.stability.summary(bursty=bool(self.flags[Flag.BURSTY]))
        failed = sum(n for outcome, n in self.outcomes.items() if outcome not in NOT_THE_SERVERS)
        return {
            "cell": self.name,
            "tier_tokens": self.tier_tokens,
            "concurrency": self.concurrency,
            "rate": self.rate,
            "stage": self.stage,
            "arrivals": None if self.rate is None else self.load.summary(self.arrivals),
            "rounds": self.answered_rounds(),
            "n": self.n,
            "ok": self.ok,
            "outcomes": dict(sorted(self.outcomes.items())),
            "first_attempt_outcomes": dict(sorted(self.first_outcomes.items())),
            "retried": self.retried,
            "flags": dict(sorted(self.flags.items())),
            "cell_flags": self._cell_flags(stability["verdict"]),
            "prompt_tokens": _extent(self.values["prompt_tokens"]),
            "prefilled_tokens": median(self.prefilled),
            "output_tokens": _extent(self.values["output_tokens"]),
            **{name: spread(self.values[name]) for name in DISTRIBUTIONS},
            "itl_ms": None if withheld else spread(self.itl),
            "itl_withheld": withheld,
            **self._by_round(),
            "ttft_parts": self.parts.summary(),
            "stability": stability,
            "ttft_ms_with_failures": with_failures(self.values["ttft_ms"], failed),
            "e2e_ms_with_failures": with_failures(self.values["e2e_ms"], failed),
            **{name: median(self.values[name]) for name in MEDIANS},
            "prefill_ms_per_1k": median(self.per_1k),
            "prefill_share": median(self.shares),
            **self._throughput(),
            "peak_in_flight": self.window.peak(),
            "mean_in_flight": self.window.mean(),
            "events_per_read": median(self.events_per_read),
        }

    def _by_round(self) -> dict[str, Any]:
        """The median TTFT (ms) of each round in order, and how far the rounds lie apart."""
        medians = [middle for _, values in sorted(self.rounds.items()) if (middle := median(values)) is not None]
        if not medians:
            return {"rounds_ttft_ms": [], "ttft_ms_of_rounds": None}
        apart = {"median": median(medians), "min": min(medians), "max": max(medians), "n": len(medians)}
        return {"rounds_ttft_ms": medians, "ttft_ms_of_rounds": apart}

    def _cell_flags(self, pace: str | None) -> list[str]:
        """What a reader must know of the cell as a whole."""
        found = []
        if self.rate is None and self.answered_rounds() < MIN_ROUNDS:
            found.append(Flag.TOO_FEW_ROUNDS.value)
        if self.ok < LOW_N:
            found.append(Flag.LOW_N.value)
        if pace == SLOWING:
            found.append(Flag.DECODE_DROP.value)
        return found

    def _throughput(self) -> dict[str, float | None]:
        """Answers and tokens per second over the measured window, failures taking time and giving nothing."""
        seconds = self.window.seconds()
        if not seconds or not self.n:
            return dict.fromkeys(("window_s", "requests_per_s", "output_tokens_per_s", "total_tokens_per_s"))
        return {
            "window_s": seconds,
            "requests_per_s": self.ok / seconds,
            "output_tokens_per_s": self.tokens_out / seconds,
            "total_tokens_per_s": (self.tokens_in + self.tokens_out) / seconds,
        }


def outcome_of(row: Mapping[str, Any]) -> str:
    """The outcome of a request or an attempt, always a name of the closed set or `UNKNOWN`."""
    name = _text(row, "outcome")
    return name if name in _KNOWN else UNKNOWN


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) else None


def _per_distinct(reads: Any) -> float | None:
    """How many entries a list has for each distinct one; None for what is no list of plain values."""
    try:
        return len(reads) / len(set(reads)) if isinstance(reads, list) else None
    except TypeError:
        return None


def _append(values: array, value: float | None) -> None:
    if value is not None:
        values.append(value)


def _extent(values: array) -> dict[str, float | int] | None:
    """Median, minimum and maximum of a count of tokens."""
    if not values:
        return None
    ordered = np.sort(np.array(values))
    return {"median": int(median(values) or 0), "min": int(ordered[0]), "max": int(ordered[-1])}
