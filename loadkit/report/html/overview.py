"""What stands first in the page: whether the numbers can be used, and what they say in one look."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from loadkit.analysis.bend_words import about
from loadkit.record.names import ExitCode
from loadkit.report import numbers, words
from loadkit.report.escape import plain

Cell = dict[str, Any]

_ENDINGS = {
    ExitCode.COMPLETE: "The run is complete",
    ExitCode.INCOMPLETE: "The run is incomplete: visits are missing, or a cell is invalid",
    ExitCode.SLO_FAILED: "The run is complete and missed an objective",
    ExitCode.TARGET: "The target could not be reached, refused the key, or does not know the model",
    ExitCode.SATURATED: "The run is not to be believed as a whole: in a cell the load generator was too slow",
    ExitCode.STOPPED: "The run was stopped before its end",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the numbers of the run may be used: the worst status of its cells, in words."""

    status: str
    title: str
    text: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Card:
    """One finding at a glance."""

    label: str
    value: str
    note: str


def verdict(summary: dict[str, Any]) -> Verdict:
    """The verdict on all cells together, the reasons of each that is not valid, and how the run went."""
    cells = summary["cells"]
    counts = {status: sum(cell["validity"]["status"] == status for cell in cells) for status in ("suspect", "invalid")}
    gravest_first = {"cells": sorted(cells, key=lambda cell: cell["validity"]["status"] != "invalid")}
    reasons = (*words.validity(gravest_first), *words.course(summary), *_ending(summary))
    many = f"of {len(cells)} cell{'s' * (len(cells) != 1)}"
    if not cells:
        text = "No request of any cell was recorded, so there is nothing to judge."
        return Verdict("invalid", "Nothing was measured", text, tuple(map(plain, reasons)))
    if counts["invalid"]:
        title = f"{counts['invalid']} {many} cannot be used"
        text = "It may be the load generator that was measured there, not the server. Such cells are marked !, are "
        text += "struck out, and are kept out of every fit."
        text += f" {counts['suspect']} more are suspect (marked ?)." if counts["suspect"] else ""
        return Verdict("invalid", title, text, tuple(map(plain, reasons)))
    if counts["suspect"]:
        text = "Times in a suspect cell (marked ?) may be wrong by what its reason says. The others can be used."
        return Verdict(
            "suspect", f"{counts['suspect']} {many} must be read with care", text, tuple(map(plain, reasons))
        )
    text = "The load generator was healthy and kept to its plan in every cell: what is shown here is the server."
    return Verdict("valid", "These numbers can be used", text, tuple(map(plain, reasons)))


def _ending(summary: dict[str, Any]) -> Iterable[str]:
    code = summary["exit_code"]
    if code in _ENDINGS:
        yield f"{_ENDINGS[code]} (exit code {code})."


def cards(summary: dict[str, Any]) -> list[Card]:
    """The knee, TTFT from end to end of the ladder, the price, the speed of decode, the greatest throughput."""
    found = [_knee(summary), *_ladder(summary), _price(summary), _throughput(summary), _answered(summary)]
    return [card for card in found if card]


def _knee(summary: dict[str, Any]) -> Card | None:
    knee = (summary.get("knee") or {}).get("length")
    if not knee:
        return None
    if knee["knee"] is None:
        return Card("Knee in context", "none", str(knee["reason"] or "no bend is shown").replace("_", " "))
    note = str(knee["kind"])
    if knee["ci"]:
        note += f", 90 % interval {about(knee['ci'][0])} to {about(knee['ci'][1])}"
    return Card("Knee in context", f"{about(knee['knee'])} tokens", note)


def usable(summary: dict[str, Any]) -> list[Cell]:
    """The cells that are not invalid."""
    return [cell for cell in summary["cells"] if cell["validity"]["status"] != "invalid"]


def _ladder(summary: dict[str, Any]) -> list[Card]:
    """TTFT and decode of the shortest and the longest tier at the lowest concurrency that answered."""
    cells = [cell for cell in usable(summary) if cell["ttft_ms"]]
    lowest = min((cell["concurrency"] for cell in cells), default=None)
    ladder = [cell for cell in cells if cell["concurrency"] == lowest]
    if not ladder:
        return []
    first, last = ladder[0], ladder[-1]
    at = f"at concurrency {lowest}"
    found = [Card(f"TTFT p50, {words.name(last)}", numbers.duration(last["ttft_ms"]["p50"]), f"{at}, the longest tier")]
    if first is not last:
        note = (
            f"from {numbers.duration(first['ttft_ms']['p50'])} with {numbers.tier(first['tier_tokens'])} tokens, {at}"
        )
        found = [Card(f"TTFT p50, {words.name(last)}", numbers.duration(last["ttft_ms"]["p50"]), note)]
    if last["tpot_ms"] and last["tpot_ms"]["p50"]:
        note = f"TPOT p50 {numbers.number(last['tpot_ms']['p50'])} ms in {words.name(last)}"
        found.append(Card("Decode", f"{numbers.number(1000 / last['tpot_ms']['p50'])} tokens/s", note))
    return found


def _price(summary: dict[str, Any]) -> Card | None:
    growth = summary["growth"]
    if growth["exponent"] is None:
        return None
    first, last = growth["price_first_ms"], growth["price_last_ms"]
    note = f"TTFT grows with the prompt to the power {numbers.number(growth['exponent'])}"
    if last is None:
        return Card("Growth", numbers.number(growth["exponent"]), note)
    return Card(
        "Price of a prompt token", f"{numbers.number(last)} ms", f"{numbers.number(first)} ms when short; {note}"
    )


def _throughput(summary: dict[str, Any]) -> Card | None:
    cells = [cell for cell in usable(summary) if cell["output_tokens_per_s"]]
    if not cells:
        return None
    best = max(cells, key=lambda cell: cell["output_tokens_per_s"])
    value = f"{numbers.number(best['output_tokens_per_s'])} tokens/s"
    return Card("Greatest output", value, f"all streams together, in {words.name(best)}")


def _answered(summary: dict[str, Any]) -> Card | None:
    n, ok = (sum(cell[key] for cell in summary["cells"]) for key in ("n", "ok"))
    return Card("Answered", f"{ok} of {n}", "measured requests that ended ok") if n else None
