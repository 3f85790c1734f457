"""The calculation without its words: which curve serves each entry of the mix, its goodput, the replicas."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from loadkit.analysis.sizing.judged import STREAMS, Cell, Curve, Row, curves
from loadkit.analysis.sizing.mix import Share
from loadkit.analysis.sizing.question import Question
from loadkit.capacity.goodput import Goodput, Point, goodput
from loadkit.capacity.replicas import Load, Replicas, replicas
from loadkit.measure.slo import Slo
from loadkit.plan.errors import ConfigError
from loadkit.plan.tiers import tier_name

SAME_OUTPUT = 0.01  # output lengths that differ by less are one


@dataclass(frozen=True, slots=True)
class Served:
    """An entry of the mix on the curve that serves it. `rows` and `points` belong together: the points are those of
    the rows at this entry's output length; `found` is the goodput of the better kind of loop."""

    share: Share
    curve: Curve
    output_tokens: float
    rows: tuple[Row, ...]
    points: tuple[Point, ...]
    found: Goodput
    notes: tuple[str, ...]

    def row(self, point: Point | None) -> Row | None:
        """The measured load behind a point."""
        return None if point is None else self.rows[self.points.index(point)]

    @property
    def best(self) -> Row | None:
        """The load with the goodput; None where no load holds."""
        return self.row(self.found.best)

    @property
    def rate(self) -> float | None:
        """Goodput in requests/s."""
        return self.found.best.requests_per_s if self.found.best else None

    def residence_s(self, row: Row) -> float:
        """Seconds a request of this output length is in the system at a load."""
        return residence_for(row, self.curve.output_tokens, self.output_tokens)

    @property
    def longer(self) -> float:
        """Output tokens over measured ones."""
        return self.output_tokens / self.curve.output_tokens


@dataclass(frozen=True, slots=True)
class Core:
    """`fleet` is None without a rate, or where an entry of the mix has no goodput."""

    curves: tuple[Curve, ...]
    served: tuple[Served, ...]
    fleet: Replicas | None


def core(cells: Iterable[Cell], question: Question) -> Core:
    """The answer in numbers. ConfigError where the mix cannot be served by what was measured."""
    objectives = question.objectives()
    found = curves(cells, objectives)
    usable = [curve for curve in found if curve.rows]
    if not usable:
        raise ConfigError("no cell can be used: " + (_left_out(found) or "nothing was measured"))
    served = tuple(serve(share, usable, objectives) for share in _mix(question, usable))
    return Core(tuple(found), served, fleet(served, question))


def fleet(served: Sequence[Served], question: Question) -> Replicas | None:
    """Replicas for the whole mix."""
    if question.rate is None or any(entry.rate is None for entry in served):
        return None
    loads = [Load(question.rate * entry.share.share, entry.rate or 0.0) for entry in served]
    return replicas(loads, question.headroom)


def serve(share: Share, usable: Sequence[Curve], objectives: Sequence[Slo]) -> Served:
    """The entry on the curve of its tier, or of the next longer one that was measured."""
    curve = next((curve for curve in usable if curve.tier_tokens >= share.tier_tokens), None)
    if curve is None:
        longest = tier_name(usable[-1].tier_tokens)
        raise ConfigError(
            f"--mix: {tier_name(share.tier_tokens)} is longer than any tier that can be used (up to {longest}): "
            f"measure it, or ask --mix for {longest}"
        )
    notes = []
    if curve.tier_tokens != share.tier_tokens:
        notes.append(
            f"{tier_name(share.tier_tokens)} was not measured: the curve of {tier_name(curve.tier_tokens)} stands for "
            "it, which asks for more than is needed"
        )
    output = float(share.output_tokens or curve.output_tokens)
    if abs(output / curve.output_tokens - 1) <= SAME_OUTPUT:
        output = curve.output_tokens
    else:
        notes.append(_other_length(share, curve, output))
    points = tuple(_at_length(row, curve.output_tokens, output, objectives) for row in curve.rows)
    return Served(share, curve, output, curve.rows, points, _better(curve.rows, points), tuple(notes))


def residence_for(row: Row, measured: float, wanted: float) -> float:
    """Seconds in the system with `wanted` output tokens instead of the measured ones: a gap more or less for each."""
    return max(row.residence_s + (wanted - measured) * row.gap_s, row.ttft_s)


def _at_length(row: Row, measured: float, wanted: float, objectives: Sequence[Slo]) -> Point:
    """The point at another output length: the same streams complete X R / R' requests/s (Little's law)."""
    point = row.point
    if wanted == measured:
        return point
    names = [item.name for item in objectives if item.metric == "e2e"] if wanted > measured else []
    if not row.gap_s or not row.residence_s:
        return replace(point, unjudged=(*point.unjudged, "output length"))
    rate = point.requests_per_s * row.residence_s / residence_for(row, measured, wanted)
    return replace(point, requests_per_s=rate, unjudged=(*point.unjudged, *names))


def _better(rows: Sequence[Row], points: Sequence[Point]) -> Goodput:
    """Goodput of the closed loops and of the open ones; the greater stands."""
    kinds = [
        [p for p, r in zip(points, rows, strict=True) if (r.kind == STREAMS) == closed] for closed in (True, False)
    ]
    found = [goodput(kind) for kind in kinds if kind]
    return max(found, key=lambda each: each.best.requests_per_s if each.best else -1.0)


def _other_length(share: Share, curve: Curve, output: float) -> str:
    text = (
        f"{share.name}: measured with {curve.output_tokens:g} output tokens; requests/s are worked out for {output:g} "
        "by Little's law from the time between tokens at the same load"
    )
    if output < curve.output_tokens:
        text += ", which is an upper bound: shorter answers bring more prefills, and those were not measured"
    return text


def _mix(question: Question, usable: Sequence[Curve]) -> tuple[Share, ...]:
    """What was asked; without a mix every measured tier by itself, which only one of them can answer for a rate."""
    if question.mix:
        return question.mix
    if len(usable) > 1 and question.rate is not None:
        tiers = ", ".join(tier_name(curve.tier_tokens) for curve in usable)
        raise ConfigError(f"the run has several tiers ({tiers}): say with --mix which share of the requests each has")
    return tuple(Share(curve.tier_tokens, 1 / len(usable)) for curve in usable)


def _left_out(found: Iterable[Curve]) -> str:
    reasons = [f"{name} ({reason})" for curve in found for name, reason in curve.left_out]
    return "; ".join(reasons)[:400]
