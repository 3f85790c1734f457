"""Each cell of a run as loadkit and eight other tools would print it, and why their numbers differ."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from loadkit.analysis.peers.marks import Marks, marks_of
from loadkit.analysis.peers.rules import LINEAR, NEAREST, PEERS, WEIGHTED, Peer, Rule
from loadkit.analysis.reading import number, whole
from loadkit.analysis.spread import nearest_rank
from loadkit.analysis.strata import outcome_of
from loadkit.plan.ladder import Cell
from loadkit.record.names import Outcome, Phase

SCHEMA = "loadkit-definitions/1"
METRICS = ("ttft_ms", "itl_ms", "tpot_ms", "output_tokens_per_s")
OURS = "loadkit"
TOLD_FROM = 0.005  # a difference under this share is rounding
_METHODS = {
    LINEAR: "its p50 lies between two values (numpy linear), loadkit's is one of them (nearest-rank)",
    WEIGHTED: "its p50 is weighted by tokens",
    NEAREST: "",
}
_OWN_FORMULAS = {
    "ttft_ms": "first token - first byte sent",
    "itl_ms": "gaps between events, each spread over its tokens, pooled",
    "tpot_ms": "(last token - first token) / (n - tokens of the first event)",
    "output_tokens_per_s": "output tokens / window",
}


class Definitions:
    """Passes the records of a run on and counts them as each tool would; then `compare(summary)`.

    Only measured requests that loadkit calls ok are counted.
    """

    def __init__(self) -> None:
        self._tallies: dict[str, list[_Tally]] = {}

    def watch(self, records: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """The records as they pass."""
        for record in records:
            if record.get("phase") == Phase.MEASURE and outcome_of(record) == Outcome.OK:
                self._add(record)
            yield record

    def _add(self, record: Mapping[str, Any]) -> None:
        tier, streams, marks = number(record, "tier_tokens"), number(record, "concurrency"), marks_of(record)
        if tier is None or streams is None or marks is None:
            return
        name = Cell(int(tier), int(streams), rate=number(record, "rate"), stage=whole(record, "stage")).id
        if name not in self._tallies:
            self._tallies[name] = [_Tally(peer) for peer in PEERS]
        for tally in self._tallies[name]:
            tally.add(marks)

    def compare(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """{schema, damaged_lines, cells: [{cell, tier_tokens, concurrency, validity, n, tools: [...]}]}.

        A tool is {name, percentile, beyond_marks, <metric>: {p50, mean, n, formula, cause}}; ms and tokens per second.
        `cause` is None where the number is loadkit's. The window of a rate is that of the summary. `beyond_marks` says
        what would change the tool's number and no mark can show.
        """
        cells = [_cell(cell, self._tallies.get(cell["cell"], [])) for cell in summary["cells"]]
        return {"schema": SCHEMA, "damaged_lines": summary["damaged_lines"], "cells": cells}


class _Tally:
    """The samples of one tool in one cell, and how often each of its reasons applied."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.rules = dict(zip(METRICS, (peer.ttft, peer.itl, peer.tpot, peer.tokens), strict=True))
        self.samples = {name: array("d") for name in METRICS}
        self.weights = {name: array("d") for name in METRICS}
        self.causes: dict[str, dict[str, None]] = {name: {} for name in METRICS}

    def add(self, marks: Marks) -> None:
        """Take one request."""
        for name, rule in self.rules.items():
            found = rule.samples(marks)
            self.samples[name].extend(found)
            self.weights[name].extend([rule.weight(marks)] * len(found))
            for reason in rule.reasons:
                if reason.text not in self.causes[name] and reason.applies(marks):
                    self.causes[name][reason.text] = None

    def row(self, ours: Mapping[str, Mapping[str, Any]], window_s: float | None) -> dict[str, Any]:
        """What the tool prints of the cell, with the cause of each difference from ours."""
        return {
            "name": self.peer.name,
            "percentile": self.peer.percentile,
            "beyond_marks": self.peer.beyond,
            **{name: self._metric(name, rule, ours[name], window_s) for name, rule in self.rules.items()},
        }

    def _metric(self, name: str, rule: Rule, ours: Mapping[str, Any], window_s: float | None) -> dict[str, Any]:
        values = np.array(self.samples[name])
        if name == "output_tokens_per_s":
            plain = middle = mean = float(values.sum()) / window_s if window_s and len(values) else None
        elif len(values):
            plain, mean = nearest_rank(np.sort(values), 0.5), float(values.mean())
            middle = _middle(values, np.array(self.weights[name]), self.peer.percentile)
        else:
            plain = middle = mean = None
        found = {"p50": middle, "mean": mean, "n": len(values), "formula": rule.formula}
        return {**found, "cause": rule.absent or self._cause(name, plain, middle, ours["p50"])}

    def _cause(self, name: str, plain: float | None, theirs: float | None, own: float | None) -> str | None:
        """Why theirs is not our own: what it measures (plain = its nearest-rank median), how it takes the median."""
        causes = list(self.causes[name]) if _apart(plain, own) else []
        if _apart(theirs, plain):
            causes.append(_METHODS[self.peer.percentile])
        if not causes and theirs is None and own is not None:
            return "no request has the marks it needs"
        return "; ".join(causes) or None


def _apart(a: float | None, b: float | None) -> bool:
    """Whether the numbers differ by more than rounding."""
    if a is None or b is None:
        return (a is None) != (b is None)
    return abs(a - b) > TOLD_FROM * abs(b)


def _cell(cell: Mapping[str, Any], tallies: list[_Tally]) -> dict[str, Any]:
    ours = {name: _own(cell, name) for name in METRICS}
    own_row = {"name": OURS, "percentile": "nearest-rank", "beyond_marks": None, **ours}
    return {
        **{name: cell[name] for name in ("cell", "tier_tokens", "concurrency", "rate", "validity")},
        "n": cell["ok"],
        "tools": [own_row, *(tally.row(ours, cell["window_s"]) for tally in tallies)],
    }


def _own(cell: Mapping[str, Any], name: str) -> dict[str, Any]:
    """loadkit's own number of the cell, from its summary."""
    formula = _OWN_FORMULAS[name]
    if name == "output_tokens_per_s":
        return {"p50": cell[name], "mean": cell[name], "n": cell["ok"], "formula": formula, "cause": None}
    spread = cell[name] or {}
    withheld = f"withheld: {', '.join(cell['itl_withheld'])}" if name == "itl_ms" and cell["itl_withheld"] else None
    found = {"p50": spread.get("p50"), "mean": spread.get("mean"), "n": spread.get("n", 0)}
    return {**found, "formula": formula, "cause": withheld}


def _middle(values: np.ndarray, weights: np.ndarray, method: str) -> float:
    """The median as the tool takes it."""
    if method == LINEAR:
        return float(np.quantile(values, 0.5))
    order = np.argsort(values, kind="stable")
    if method == WEIGHTED:
        reached = np.cumsum(weights[order])
        return float(values[order][np.searchsorted(reached, 0.5 * reached[-1])])
    return nearest_rank(values[order], 0.5)
