"""A knee in one plain sentence: kind, place with interval and probability, or why there is none; and the prediction."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

NOTHING = "No knee was looked for: nothing was measured at concurrency 1, nor one length at four concurrencies."
NAMES = {"ttft": "TTFT", "latency": "latency", "throughput": "throughput"}
UNITS = {"length": "tokens", "concurrency": "streams"}
LONGEST_NAME = 60
SURE = 0.9  # below this probability a knee is told as probable
MOST_NAMED = 6

_PLACES = {
    "smooth": "{name} {surely}bends at {knee} {unit} ({how})",
    "hinge": "{name} {surely}bends at {knee} {unit} ({how})",
    "break": "{name} {surely}jumps between {below} and {above} {unit} ({how})",
    "saturation": "{name} {surely}reaches 90 % of its maximum at {knee} {unit} ({how})",
    "peak": "{name} {surely}has its maximum at {knee} {unit} and falls from there ({how})",
}
_NONE = {
    "linear": "{name} is linear",
    "concave": "{name} grows ever more slowly",
    "stairs": "{name} climbs in stairs, as where prompts are padded to whole chunks",
    "excess_below_gate": "{name} bends by less than 25 % up to there",
    "still_rising": "{name} is still rising there",
}
_ONE_SIDED = {
    "already_superlinear": "the knee lies below all that was tested: test smaller values",
    "already_saturated": "the knee lies below all that was tested: test smaller values",
    "one_tier_below": "a single tested value lies below it: test more there",
    "one_tier_above": "a single tested value lies above it: test more there",
}


def in_length(knee: Mapping[str, Any], expected: Mapping[str, Any] | None, models: Sequence[str]) -> str:
    """The knee in length beside the K25 that the model card predicts, in tokens; `models`: the names of the model."""
    return sentence(knee, "length", "ttft", more=f"; {_prediction(knee, expected, models)}")


def in_concurrency(knee: Mapping[str, Any]) -> str:
    """A knee in concurrency; its `tier_tokens` and `metric` say of what."""
    return sentence(knee, "concurrency", knee["metric"], lead=f"at {knee['tier_tokens']} tokens ")


def sentence(knee: Mapping[str, Any], axis: str, metric: str, *, lead: str = "", more: str = "") -> str:
    """One sentence on a knee as `bends.entry` gives it, then what was left out; `more` stands before the full stop."""
    told = _none(knee, axis, metric) if knee["kind"] == "none" else _found(knee, axis, metric)
    text = f"{lead}{told}{more}."
    return " ".join([text[0].upper() + text[1:], *_doubts(knee)])


def _found(knee: Mapping[str, Any], axis: str, metric: str) -> str:
    name, unit, (low, high) = NAMES[metric], UNITS[axis], knee["ci"]
    chance = _probability(knee["probability"])
    how = f"{knee['kind']}, 90 % interval {about(low)} to {about(high)}, probability {chance}"
    gap = {"below": "", "above": ""}
    for below, above in pairwise(knee["x"]):
        if below <= knee["knee"] <= above:
            gap = {"below": f"{below:.0f}", "above": f"{above:.0f}"}
    surely = "" if knee["probability"] >= SURE else "probably "
    told = _PLACES[knee["kind"]].format(name=name, surely=surely, unit=unit, knee=about(knee["knee"]), how=how, **gap)
    if metric != "throughput" and knee["excess"] is not None:
        told += f": at {knee['x'][-1]:.0f} {unit} it is {100 * knee['excess']:.0f} % above the line of the lower tiers"
    return "; ".join(filter(None, [told, _ONE_SIDED.get(knee["reason"], "")]))


def _none(knee: Mapping[str, Any], axis: str, metric: str) -> str:
    name, unit, reason, x = NAMES[metric], UNITS[axis], knee["reason"], knee["x"]
    if reason == "too_few_rounds":
        return f"no verdict on a knee of {name}: 3 answered rounds at 4 values are needed"
    if reason == "too_many_tiers":
        return f"no verdict on a knee of {name}: {len(x)} different values are too many to tell apart: round them"
    if reason not in _NONE:
        have = {0: "none is", 1: "1 is"}.get(len(x), f"{len(x)} are")
        return f"no verdict on a knee of {name}: 4 values are needed and {have} usable"
    chance = _probability(knee["probability"])
    return (
        f"no knee between {x[0]:.0f} and {x[-1]:.0f} {unit} (probability {chance}): {_NONE[reason].format(name=name)}"
    )


def _prediction(knee: Mapping[str, Any], expected: Mapping[str, Any] | None, models: Sequence[str]) -> str:
    if expected is None:
        return f"no model card is known for {models[0][:LONGEST_NAME]}" if models else "the model is not known"
    told = f"the model card of {expected['model'][:LONGEST_NAME]} predicts about {about(expected['k25_tokens'])} tokens"
    x = knee["x"]
    outside = bool(x) and not x[0] <= expected["k25_tokens"] <= x[-1]
    return told + (", outside the measured range" if outside else "")


def _doubts(knee: Mapping[str, Any]) -> Iterable[str]:
    """What the reader must know of the cells: how many are suspect, which were left out."""
    if knee["suspect"]:
        yield f"{knee['suspect']} of the {len(knee['x'])} cells used are suspect."
    rows = [f"{_place(row)} ({row['reason']})" for row in knee["dropped"]]
    more = f" and {len(rows) - MOST_NAMED} more" if len(rows) > MOST_NAMED else ""
    if rows:
        yield f"Left out: {', '.join(rows[:MOST_NAMED])}{more}."


def _place(row: Mapping[str, Any]) -> str:
    """What a row of `dropped` was measured at."""
    return about(next(row[key] for key in ("tier_tokens", "concurrency", "x") if key in row))


def _probability(share: float) -> str:
    """Two digits, but never a certainty there is not: above 0.99 and below 0.01."""
    return "above 0.99" if share > 0.995 else "below 0.01" if share < 0.005 else f"{share:.2f}"


def about(value: float) -> str:
    """Three digits that mean something; a whole number up to 99999 with all of its own."""
    if value >= 100:
        return f"{value:.0f}" if value == round(value) < 1e5 else f"{float(f'{value:.3g}'):.0f}"
    return f"{value:.3g}"
