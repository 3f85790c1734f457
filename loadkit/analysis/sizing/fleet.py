"""Goodput and replicas as figures, with the intervals that the bootstrap carries through to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, isfinite

import numpy as np

from loadkit.analysis.sizing import apart, bootstrap
from loadkit.analysis.sizing.core import Core, Served
from loadkit.analysis.sizing.figures import Figure, said
from loadkit.analysis.sizing.judged import STREAMS
from loadkit.analysis.sizing.question import Question
from loadkit.analysis.sizing.samples import Samples
from loadkit.capacity.replicas import Load, Replicas, replicas, whole

NO_REPEATS = "no interval: the table has one number for each load"
TOO_FEW = f"no interval: under {bootstrap.FEWEST} answered requests at the load"
Draws = np.ndarray


@dataclass(frozen=True, slots=True)
class Sure:
    """Draws of the goodput of each entry of the mix; None for one whose requests cannot tell."""

    entries: tuple[Draws | None, ...]
    note: str

    def work(self, core: Core, question: Question) -> Draws | None:
        """Draws of the work in replicas, infinite where an entry has no goodput in a draw."""
        if question.rate is None or any(draws is None for draws in self.entries):
            return None
        with np.errstate(divide="ignore"):
            parts = [
                question.rate * entry.share.share / draws
                for entry, draws in zip(core.served, self.entries, strict=True)
                if draws is not None
            ]
        return np.asarray(np.sum(parts, axis=0))


def sure(core: Core, question: Question, samples: Samples | None) -> Sure:
    """The bootstrap of every entry."""
    if samples is None:
        return Sure(tuple(None for _ in core.served), NO_REPEATS)
    objectives = question.objectives()
    entries = []
    for entry in core.served:
        closed = entry.best is None or entry.best.kind == STREAMS
        rows = [
            (row, point.requests_per_s, samples.of(row.cell))
            for row, point in zip(entry.rows, entry.points, strict=True)
            if (row.kind == STREAMS) == closed and not point.unjudged
        ]
        entries.append(bootstrap.rates(rows, objectives) if entry.best else None)
    return Sure(tuple(entries), TOO_FEW)


def of_entry(entry: Served, draws: Draws | None, note: str) -> list[Figure]:
    """Goodput of one entry, the load it is at, and the streams to cap a replica at."""
    name, best = entry.share.name, entry.best
    if best is None:
        text = "no measured load holds the objectives"
        return [Figure(f"{name}.goodput", "goodput of a replica", None, "requests/s", _GOODPUT, note=text)]
    low, high = ends(draws)
    if low == 0 and draws is not None:
        note = f"in {float((draws == 0).mean()):.0%} of the draws no load holds the objectives"
    inputs = {
        "load": said(best.point.load, best.kind),
        "measured": said(best.point.requests_per_s, "requests/s"),
        "success": f"{best.point.success:.1%}",
    }
    if entry.longer != 1.0:
        inputs |= {
            "time in the system": said(best.residence_s, "s"),
            "at this output length": said(entry.residence_s(best), "s"),
        }
    return [
        Figure(
            f"{name}.goodput",
            "goodput of a replica",
            entry.rate,
            "requests/s",
            _GOODPUT if entry.longer == 1.0 else f"{_GOODPUT}, x time in the system / time at this output length",
            inputs,
            low,
            high,
            note if draws is None or low == 0 else "",
        ),
        Figure(
            f"{name}.cap",
            "requests in flight to cap a replica at",
            best.streams,
            "requests",
            "streams of the load with the goodput; of an open loop the most that were in flight",
            {"load": said(best.point.load, best.kind)},
        ),
    ]


_GOODPUT = "the most requests/s of the measured loads that hold every objective with 99 % success"


def of_fleet(core: Core, question: Question, sure: Sure, streams: float | None) -> list[Figure]:
    """Replicas for the mix: bare, with headroom, with one to spare, and the answer."""
    fleet = core.fleet
    if fleet is None or question.rate is None:
        return []
    draws = sure.work(core, question)
    parts = " + ".join(
        f"{question.rate * entry.share.share:.6g} / {entry.rate or 0:.6g} ({entry.share.name})" for entry in core.served
    )
    work = {"work": said(fleet.work, "replicas")}
    counts = (
        ("replicas.bare", "replicas that carry the load at full use", fleet.bare, "ceil(work)", 1.0, 0),
        (
            "replicas.headroom",
            f"replicas with headroom {question.headroom:g}",
            fleet.with_headroom,
            f"ceil({question.headroom:g} x work)",
            question.headroom,
            0,
        ),
        ("replicas.n_plus_1", "replicas when one may be lost (N + 1)", fleet.n_plus_1, "ceil(work) + 1", 1.0, 1),
    )
    found = [
        Figure(
            "replicas.work",
            "load in replicas",
            fleet.work,
            "replicas",
            "sum over the mix of arrivals/s / goodput",
            {"arrivals/s / goodput": parts},
            *ends(draws),
        ),
        *(
            Figure(key, label, value, "replicas", formula, work, *_counted(draws, factor, spare))
            for key, label, value, formula, factor, spare in counts
        ),
        _recommended(fleet, question, draws, core, sure),
    ]
    return [*found, *_shapes(core, question, streams), *apart.figures(core, question)]


def _recommended(fleet: Replicas, question: Question, draws: Draws | None, core: Core, sure: Sure) -> Figure:
    low, high = _counted(draws, question.headroom, 0)
    spare_low, spare_high = _counted(draws, 1.0, 1)
    note = "" if draws is not None else sure.note
    if draws is not None and high is None:
        note = f"in {float((~np.isfinite(draws)).mean()):.0%} of the draws a tier holds its objectives at no load"
    return Figure(
        "replicas.recommended",
        "replicas to run",
        fleet.recommended,
        "replicas",
        "the greater of the two above",
        {"with headroom": said(fleet.with_headroom), "N + 1": said(fleet.n_plus_1)},
        None if low is None or spare_low is None else max(low, spare_low),
        None if high is None or spare_high is None else max(high, spare_high),
        note,
    )


def _shapes(core: Core, question: Question, streams: float | None) -> list[Figure]:
    """The cap of a replica that serves the whole mix, and replicas where each tier has its own."""
    found = []
    if streams is not None and len(core.served) > 1:
        found.append(
            Figure(
                "replicas.cap",
                "requests in flight to cap a replica of the mix at",
                streams,
                "requests",
                "each tier's own cap by the share of the replica's time it takes (share / goodput), rounded down",
                {entry.share.name: said(entry.best.streams if entry.best else None) for entry in core.served},
            )
        )
        rate = question.rate or 0.0
        own = {
            entry.share.name: replicas([Load(rate * entry.share.share, entry.rate or 1.0)], question.headroom)
            for entry in core.served
        }
        found.append(
            Figure(
                "replicas.separate",
                "replicas where each tier has its own, none to spare",
                fsum(each.with_headroom for each in own.values()),
                "replicas",
                f"sum over the tiers of ceil({question.headroom:g} x work)",
                {name: said(each.with_headroom) for name, each in own.items()},
            )
        )
    return found


def ends(draws: Draws | None) -> tuple[float | None, float | None]:
    """The 90 % interval of draws; an end that is infinite, or both without draws, are None."""
    if draws is None:
        return None, None
    low, high = bootstrap.interval(draws)
    return (low if isfinite(low) else None, high if isfinite(high) else None)


def _counted(draws: Draws | None, factor: float, spare: int) -> tuple[float | None, float | None]:
    """The interval of a number of replicas."""
    low, high = ends(draws)
    return (
        None if low is None else float(whole(low * factor) + spare),
        None if high is None else float(whole(high * factor) + spare),
    )


def recommended_ends(figures: Sequence[Figure]) -> tuple[float | None, float | None]:
    """The interval of the replicas to run, as their figure has it."""
    return next(((each.low, each.high) for each in figures if each.key == "replicas.recommended"), (None, None))
