"""The knees and the map of a run as sentences and as rows of text, for the terminal and the Markdown file alike."""

from collections.abc import Iterable, Mapping
from typing import Any

from loadkit.analysis.bend_words import NAMES, UNITS, about
from loadkit.report import numbers
from loadkit.report.columns import MARKS

HEADERS = ("at", "of", "kind", "knee", "90 % interval", "prob.", "excess")
LEGEND = "TTFT p50 in ms of every tier (rows) and concurrency (columns)"
MARKED = "! invalid, ? suspect, x an objective is missed"


def sentences(knee: Mapping[str, Any]) -> list[str]:
    """The knee in length beside the prediction first, then those in concurrency, then where an objective breaks."""
    rows = [knee["sentence"], *(row["sentence"] for row in knee["concurrency"]), *frontier(knee["map"])]
    return list(dict.fromkeys(rows))


def frontier(found: Mapping[str, Any]) -> list[str]:
    """Up to which concurrency the objectives hold, tier by tier; nothing where there are none."""
    told = [_edge(row) for row in found["frontier"]]
    return [f"Where the objectives hold: {'; '.join(told)}."] if told else []


def _edge(row: Mapping[str, Any]) -> str:
    tier, held, broken = numbers.tier(row["tier_tokens"]), row["max_concurrency_ok"], row["first_broken"]
    if broken is not None:
        upto = f"up to {streams(held)}" if held is not None else "at no concurrency tested"
        return f"at {tier} {upto} ({row['objective']} is missed at {broken})"
    if held is not None:
        return f"at {tier} up to {streams(held)}, the most that could be judged"
    return f"at {tier} not known, a number is missing"


def streams(count: float) -> str:
    """'1 stream', '4 streams'."""
    return f"{about(count)} stream{'' if count == 1 else 's'}"


def rows(knee: Mapping[str, Any], axis: str | None = None) -> list[list[str]]:
    """One row of HEADERS per knee, of one axis or of both."""
    found = []
    if knee["length"] and axis != "concurrency":
        found.append(row("1 stream", "ttft", knee["length"], "length"))
    for each in knee["concurrency"] if axis != "length" else ():
        found.append(row(f"{numbers.tier(each['tier_tokens'])} tokens", each["metric"], each, "concurrency"))
    return found


def row(at: str, metric: str, knee: Mapping[str, Any], axis: str) -> list[str]:
    """One knee in the columns of HEADERS; where there is none the kind says why."""
    of, unit = NAMES[metric], UNITS[axis]
    chance = f"{knee['probability']:.2f}"
    excess = numbers.ABSENT if knee["excess"] is None else f"{100 * knee['excess']:.0f} %"
    if knee["kind"] == "none":
        return [at, of, f"none: {knee['reason'].replace('_', ' ')}", numbers.ABSENT, numbers.ABSENT, chance, excess]
    low, high = knee["ci"]
    interval = f"{about(low)} to {about(high)}"
    return [at, of, knee["kind"], f"{about(knee['knee'])} {unit}", interval, chance, excess]


def ladder_map(summary: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of the map, tier by concurrency: TTFT p50 in ms, marked where a cell is not to be trusted."""
    cells = {(cell["tier_tokens"], cell["concurrency"]): cell for cell in summary["cells"]}
    missed = {item["cell"] for item in summary["objectives"] if item["met"] is False}
    axes = summary["knee"]["map"]
    levels = axes["concurrencies"]
    return ["tier", *map(str, levels)], [
        [numbers.tier(tier), *(_cell(cells.get((tier, level)), missed) for level in levels)] for tier in axes["tiers"]
    ]


def _cell(cell: Mapping[str, Any] | None, missed: Iterable[str]) -> str:
    if cell is None:
        return ""
    text = numbers.number((cell["ttft_ms"] or {}).get("p50")) + MARKS[cell["validity"]["status"]]
    return text + (" x" if cell["cell"] in missed else "")
