"""The tables of a capacity answer as headers and rows of text, with units in the headers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadkit.plan.tiers import tier_name
from loadkit.report.numbers import ABSENT, percent

Answer = Mapping[str, Any]
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
MARKS = {"valid": "", "suspect": " ?", "invalid": " !"}
OF_TIER = ("prefill_ms_per_1k", "price_per_million", "cost_output", "cost_total", "cost_request", "listed_request")


def exact(value: float | None) -> str:
    """Five digits that mean something, none of a whole number dropped: 1.6287, 26.880, 12345; '-' for None."""
    if value is None:
        return ABSENT
    if value == int(value) and abs(value) < 1e15:
        return f"{value:.0f}"
    size = abs(value)
    if size >= 1e4:
        return f"{value:.0f}"
    return f"{value:.5g}" if size >= 1e-4 else f"{value:.3g}"


def ranged(figure: Mapping[str, Any]) -> str:
    """A figure's 90 % interval; an end that no number of replicas reaches is 'no end'."""
    low, high = figure["low"], figure["high"]
    if low is None and high is None:
        return ABSENT
    return f"{exact(low)} to {'no end' if high is None else exact(high)}"


def value_of(figure: Mapping[str, Any]) -> str:
    """A figure's value with its unit; a share as a percentage."""
    if figure["value"] is None:
        return ABSENT
    if not figure["unit"]:
        return percent(figure["value"])
    return f"{exact(figure['value'])} {figure['unit']}"


def points(answer: Answer) -> Table:
    """Every measured load, in the order of tiers; `*` marks the goodput of its tier."""
    objectives = [item["name"] for item in answer["objectives"]]
    cost = any(point["cost_output"] is not None for point in answer["points"])
    unit = _currency(answer)
    headers = ("tier", "load", "requests/s", *(_named(answer, name) for name in objectives), "success")
    headers += ("in flight by Little", "output tokens/s", *((f"{unit}/1M output",) if cost else ()), "holds")
    rows = []
    for point in answer["points"]:
        load = exact(point["load"]) + ("/s" if point["kind"] != "streams" else "")
        seen = [_limit(answer, name, point["values"][name]) for name in objectives]
        row = (tier_name(point["tier_tokens"]) + MARKS[point["validity"]], load, exact(point["requests_per_s"]), *seen)
        row += (percent(point["success"]), exact(point["in_flight"]), exact(point["output_tokens_per_s"]))
        row += (exact(point["cost_output"]),) if cost else ()
        rows.append((*row, "goodput *" if point["goodput"] else "yes" if point["holds"] else "no"))
    return headers, rows


def _named(answer: Answer, name: str) -> str:
    return name if name == "error_rate" else f"{name} ms"


def _limit(answer: Answer, name: str, value: float | None) -> str:
    return percent(value) if name == "error_rate" else exact(value)


def _currency(answer: Answer) -> str:
    found = [figure["unit"] for figure in answer["figures"] if figure["key"].endswith((".cost_output", "cost.hour"))]
    return found[0] if found else "cost"


def tiers(answer: Answer) -> Table:
    """One row for each entry of the mix."""
    by_key = {figure["key"]: figure for figure in answer["figures"]}
    rows: list[tuple[str, ...]] = []
    for tier in answer["tiers"]:
        goodput = by_key[f"{tier['name']}.goodput"]
        load = "-" if tier["load"] is None else f"{exact(tier['load'])} {tier['kind']}"
        rows.append(
            (
                tier["name"],
                exact(tier["output_tokens"]),
                percent(tier["share"]),
                exact(tier["arrivals_per_s"]),
                exact(tier["goodput"]),
                ranged(goodput),
                load,
                tier["binds"] + ("" if tier["binds_at"] is None else f" at {exact(tier['binds_at'])}"),
            )
        )
    headers: tuple[str, ...] = ("tier", "output tokens", "share", "arrivals/s", "goodput/s")
    return (*headers, "90 % interval", "at load", "bound by"), rows


def prices(answer: Answer) -> Table:
    """Time and money of each entry of the mix, side by side; a column that no entry has is left out."""
    by_key = {figure["key"]: figure for figure in answer["figures"]}
    names = [tier["name"] for tier in answer["tiers"]]
    having = [key for key in OF_TIER if any(f"{name}.{key}" in by_key for name in names)]
    unit = _currency(answer)
    titles = {
        "prefill_ms_per_1k": "prefill ms per 1K prompt tokens",
        "price_per_million": f"listed {_listed_unit(answer)} per 1M prompt tokens",
        "cost_output": f"{unit} per 1M output tokens",
        "cost_total": f"{unit} per 1M tokens of both",
        "cost_request": f"{unit} per request",
        "listed_request": f"listed {_listed_unit(answer)} per request",
    }
    rows = [
        (name, *(exact((by_key.get(f"{name}.{key}") or {"value": None})["value"]) for key in having)) for name in names
    ]
    return ("tier", *(titles[key] for key in having)), rows if having else []


def _listed_unit(answer: Answer) -> str:
    found = [figure["unit"] for figure in answer["figures"] if figure["key"].endswith(".price_per_million")]
    return found[0] if found else "price"


def totals(answer: Answer) -> Table:
    """The figures that stand in no other table: those of the whole load, and the rest of each tier's."""
    of_tiers = {tier["name"] for tier in answer["tiers"]}
    rows: list[tuple[str, ...]] = []
    for figure in answer["figures"]:
        name, _, kind = figure["key"].rpartition(".")
        if name in of_tiers and kind in ("goodput", *OF_TIER):
            continue
        label = f"{name}: {figure['label']}" if name in of_tiers else figure["label"]
        note = f" ({figure['note']})" if figure["note"] else ""
        rows.append((label, value_of(figure) + note, ranged(figure)))
    return ("", "value", "90 % interval"), rows


def variants(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Sensitivity or what-if; what there is to know of a row is among the sentences."""
    names = ("replicas", "work", "streams", "cost_hour")
    found = [(row["change"], *(exact(row[name]) for name in names)) for row in rows]
    return ("changed", "replicas", "work", "cap of a replica", "cost per hour"), found


@dataclass(frozen=True, slots=True)
class Explained:
    """One number of --explain: what it is, its formula, and its inputs with units."""

    head: str
    formula: str
    inputs: str


def explained(answer: Answer) -> list[Explained]:
    """Every figure of the answer; the columns of measured loads come straight from the cells of the run."""
    found = []
    for figure in answer["figures"]:
        inputs = "; ".join(f"{name} = {value}" for name, value in figure["inputs"].items())
        interval = "" if ranged(figure) == ABSENT else f" ({ranged(figure)})"
        note = f" [{figure['note']}]" if figure["note"] else ""
        head = f"{figure['key']}: {figure['label']} = {value_of(figure)}{interval}{note}"
        found.append(Explained(head, figure["formula"], inputs))
    return found


COLUMNS = (
    ("requests/s", "answered requests over the seconds of the measured window; in an open loop what was achieved"),
    ("objectives", "the statistic that the objective names, over the measured and answered requests of the load"),
    ("success", "answered requests over all that loadkit did not stop itself"),
    (
        "in flight by Little",
        "requests/s x (mean TTFT + (output tokens - 1) x mean TPOT): the planned streams, if consistent",
    ),
    ("output tokens/s", "output tokens of the answers over the seconds of the measured window"),
    ("cost per 1M output", "price of a replica per hour / (output tokens/s x 3600) x 1,000,000"),
    ("work", "sum over the mix of arrivals/s / goodput, in replicas"),
    ("replicas in a changed row", "the greater of ceil(headroom x work) and ceil(work) + 1"),
    ("cost per hour in a changed row", "replicas x price of a replica"),
    ("90 % interval", "nearest-rank 5 % and 95 % of 400 bootstrap draws of the requests of every load, the seed fixed"),
)
