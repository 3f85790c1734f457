"""The knees of a run: in length at concurrency 1, in concurrency at fixed length, and the map of both.

The two directions are kept apart: a bend in length is prefill, a bend in concurrency is queueing. The repeats are one
number per round, so that the streams of one round do not pass for independent readings; requests without a round count
one by one. Cells that are invalid, gave no answer or have fewer than three rounds stay out of every fit and are named
in `dropped`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadkit.analysis import bend_words
from loadkit.analysis.frontier import frontier
from loadkit.analysis.knee import Knee, locate
from loadkit.analysis.knee.read import ladder
from loadkit.analysis.spread import median
from loadkit.analysis.strata import Stratum
from loadkit.capacity.predict import predict
from loadkit.record.names import Flag, Outcome

MIN_LEVELS = 4
MIN_ROUNDS = 3
BELOW = ("already_superlinear", "already_saturated")
ABOVE = ("excess_below_gate", "still_rising")

Pair = tuple[Stratum, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Point:
    """One cell on an axis: `x` in real prompt tokens or streams, the repeats in ms or tokens per second."""

    x: float
    repeats: Sequence[float]
    suspect: bool


def bends(found: Iterable[Stratum], cells: list[dict[str, Any]], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The `knee` of summary.json: {length, concurrency, map, predicted, sentence}.

    found, cells: the strata of a run and their summaries with validity, in the same order. A knee has the fields that
    `entry` says and its own `sentence`; `predicted` is what the model card says (`capacity.predict`), None without one.
    """
    pairs = list(zip(found, cells, strict=True))
    models = list(_models(pairs, manifest))
    expected = predict(models, _part(manifest, "target"))
    length = _in_length(pairs)
    if length is not None:
        length["sentence"] = bend_words.in_length(length, expected, models)
    levels = list(_in_concurrency(pairs))
    return {
        "length": length,
        "concurrency": levels,
        "map": frontier(cells, manifest),
        "predicted": expected,
        "sentence": next((knee["sentence"] for knee in (length, *levels) if knee), bend_words.NOTHING),
    }


def entry(points: Sequence[Point], axis: str, metric: str, dropped: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The fields of `Knee`, and how it came about.

    `x`: the tokens or streams used; `censored`: below or above, the side of the tiers on which a knee lies unseen, or
    None; `suspect`: how many of the cells used are suspect; `dropped`: the cells left out and why.
    """
    x, repeats = [point.x for point in points], [point.repeats for point in points]
    used = [float(place) for place in ladder(x, repeats)[0]]
    found = locate(x, repeats, axis=axis, metric=metric)
    if found.reason == "too_few_tiers" and _short_of_rounds(len(used), dropped):
        found = Knee("none", None, None, 0.0, None, None, Flag.TOO_FEW_ROUNDS.value)
    return {
        **asdict(found),
        "ci": None if found.ci is None else list(found.ci),
        "x": used,
        "censored": "below" if found.reason in BELOW else "above" if found.reason in ABOVE else None,
        "suspect": sum(point.suspect for point in points),
        "dropped": list(dropped),
    }


def _short_of_rounds(used: int, dropped: Iterable[Mapping[str, Any]]) -> bool:
    """Whether there would be enough tiers if each had enough rounds."""
    return used + sum(row["reason"].startswith(Flag.TOO_FEW_ROUNDS.value) for row in dropped) >= MIN_LEVELS


def _in_length(pairs: Sequence[Pair]) -> dict[str, Any] | None:
    """The knee of TTFT over real prompt tokens at concurrency 1; None where nothing ran at concurrency 1."""
    single = [(stratum, cell) for stratum, cell in pairs if cell["concurrency"] == 1]
    points: list[Point] = []
    dropped: list[dict[str, Any]] = []
    for stratum, cell in single:
        tokens = (cell["prompt_tokens"] or {}).get("median", 0)
        why = _unusable(cell) or ("" if tokens > 0 else "no_prompt_tokens")
        if why:
            dropped.append({"tier_tokens": cell["tier_tokens"], "reason": why})
        else:
            points.append(_point(tokens, _medians(stratum), cell))
    return entry(points, "length", "ttft", dropped) if single else None


def _in_concurrency(pairs: Sequence[Pair]) -> Iterator[dict[str, Any]]:
    """Per tier with MIN_LEVELS levels or more: the knee of TTFT and the one of throughput, over streams."""
    levels = Counter(cell["tier_tokens"] for _, cell in pairs)
    for tier in (tier for tier, count in levels.items() if count >= MIN_LEVELS):
        mine = [(stratum, cell) for stratum, cell in pairs if cell["tier_tokens"] == tier]
        why = {cell["concurrency"]: _unusable(cell) for _, cell in mine}
        dropped = [{"concurrency": level, "reason": reason} for level, reason in why.items() if reason]
        usable = [(stratum, cell) for stratum, cell in mine if not why[cell["concurrency"]]]
        waits = [_point(cell["concurrency"], _means(stratum), cell) for stratum, cell in usable]
        rates = [_point(cell["concurrency"], [cell["output_tokens_per_s"] or 0.0], cell) for _, cell in usable]
        for metric, points in (("ttft", waits), ("throughput", rates)):
            found = {"tier_tokens": tier, "metric": metric, **entry(points, "concurrency", metric, dropped)}
            yield {**found, "sentence": bend_words.in_concurrency(found)}


def _unusable(cell: Mapping[str, Any]) -> str:
    """Why a cell stays out of every fit, or nothing."""
    if cell["validity"]["status"] == "invalid":
        return "invalid"
    if not cell["ttft_ms"]:
        failed = {name: n for name, n in cell["outcomes"].items() if name != Outcome.OK}
        return max(failed, key=failed.__getitem__, default="no_answer")
    if cell["rounds"] < MIN_ROUNDS:
        return f"{Flag.TOO_FEW_ROUNDS.value}: {cell['rounds']} of {MIN_ROUNDS}"
    return ""


def _point(x: float, repeats: Sequence[float], cell: Mapping[str, Any]) -> Point:
    return Point(float(x), repeats, cell["validity"]["status"] == "suspect")


def _medians(stratum: Stratum) -> Sequence[float]:
    """The median TTFT of each round in ms."""
    return [middle for values in _rounds(stratum) if (middle := median(values)) is not None]


def _means(stratum: Stratum) -> Sequence[float]:
    """The mean TTFT of each round in ms: what waits for a slot follows Little's law in the mean. The median does not:
    where six streams share four slots most of them wait not at all or a whole service time."""
    return [sum(values) / len(values) for values in _rounds(stratum)]


def _rounds(stratum: Stratum) -> Iterable[Sequence[float]]:
    """TTFT in ms by round; each request is one where the records name no rounds."""
    return [values for values in stratum.rounds.values() if values] or [[v] for v in stratum.values["ttft_ms"]]


def _models(pairs: Iterable[Pair], manifest: Mapping[str, Any]) -> Iterator[str]:
    """The names the model goes by, the likeliest to be in a catalogue first."""
    answered = {name for stratum, _ in pairs for name, _ in stratum.models if name}
    known = [_part(manifest, key).get("model") for key in ("endpoint", "target")]
    yield from dict.fromkeys([*sorted(answered), *(name for name in known if isinstance(name, str) and name)])


def _part(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = manifest.get(name)
    return value if isinstance(value, Mapping) else {}
