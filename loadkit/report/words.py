"""The sentences of a report, shared by the terminal and the Markdown file. Plain text; callers escape and wrap."""

from collections.abc import Mapping
from typing import Any

from loadkit.analysis.strata import WITHHOLDS_ITL
from loadkit.record.jsonl import SCHEMA
from loadkit.record.names import Flag
from loadkit.report import numbers

DEFINITIONS = (
    "TTFT: from the first byte of the request sent to the first generated token.",
    "TPOT: time per output token after the first. E2E: to the last token.",
    "Unit price: TTFT / (prompt tokens - BOS - cached), never from total time.",
    "p99 of fewer than 100 samples is the largest of them and is marked low_n.",
    "Percentiles are nearest-rank over measured requests that succeeded; rates and prices are medians of them.",
    "Throughputs: answers and their tokens over the measured window, warm-up and drain left out.",
)


def validity(summary: dict[str, Any]) -> list[str]:
    """One line for each cell that is not valid, with its reasons; empty when all are."""
    lines = []
    for cell in summary["cells"]:
        status, reasons = cell["validity"]["status"], cell["validity"]["reasons"]
        if status != "valid":
            lines.append(f"{name(cell)} is {status}: {'; '.join(reasons) or 'no reason given'}.")
    return lines


def course(summary: dict[str, Any]) -> list[str]:
    """What kept the run from its end, if anything did, and what is lost of it."""
    run = summary["course"]
    if run is None:
        return ["There is no manifest: how the run ended is not known."]
    lines = [*_stop(run), *_resumes(run.get("resumes") or [])]
    lines += [f"Cell {item['cell']} was {item['change']}: {item['why']}." for item in run.get("changes", ())]
    lines += _unrefined(run.get("refine"), summary["knee"]["length"])
    lines += [f"Cell {item['cell']} was repeated: {'; '.join(item['reasons'])}." for item in run.get("repeated", ())]
    for cell in run["missing"]:
        lines.append(f"{name(cell)}: {cell['n']} of {cell['planned']} measured requests are in the records.")
    if not run["slo_readable"]:
        lines.append("The objectives in the manifest cannot be read: none is judged.")
    return lines


def _unrefined(refine: Mapping[str, int] | None, knee: Mapping[str, Any] | None) -> list[str]:
    """That --refine added nothing, and why; nothing where it did, or was not asked for."""
    if not refine or refine["added"]:
        return []
    bent = knee is not None and knee["kind"] != "none"
    why = "the knee is known to half a step of the ladder" if bent else "there is no knee to narrow"
    return [f"--refine {refine['wanted']} added no tier: {why}."]


def _stop(run: dict[str, Any]) -> list[str]:
    """What stopped the run, or nothing."""
    done = f"{run['visits_done']} of {run['visits']} visits are done"
    if not run["ended"]:
        return [f"The run was cut before its end: {done}."]
    if run["stopped_by"]:
        return [f"Stopped by {run['stopped_by']}: {done}."]
    if run.get("limit") and run["visits_done"] < run["visits"]:
        return [f"Stopped in the middle: {run['limit']}; {done}. `loadkit run --resume` goes on."]
    if run["fault"]:
        return [f"The run could not go on: {run['fault']}; {done}."]
    return [f"The run is incomplete: {done}."] if run["visits_done"] < run["visits"] else []


def _resumes(resumes: list[dict[str, Any]]) -> list[str]:
    """How often the run was resumed and what was repeated, or nothing."""
    if not resumes:
        return []
    times = {1: "once", 2: "twice"}.get(len(resumes), f"{len(resumes)} times")
    after = ", ".join(resume["after"] or "a cut" for resume in resumes)
    repeated = [str(index) for resume in resumes for index in resume["repeated"]]
    lost = "; what was in flight at a cut is not in the records" if any(not r["after"] for r in resumes) else ""
    if not repeated:
        again = "no visit had to be repeated"
    elif len(repeated) == 1:
        again = f"visit {repeated[0]} was repeated"
    else:
        again = f"visits {', '.join(repeated[:-1])} and {repeated[-1]} were repeated"
    return [f"Resumed {times}, after {after}: {again}{lost}."]


def objectives(summary: dict[str, Any]) -> list[str]:
    """One line per objective: the cells that miss it, with what was measured, or that all meet it."""
    names = {cell["cell"]: name(cell) for cell in summary["cells"]}
    lines = []
    for title in dict.fromkeys(item["name"] for item in summary["objectives"]):
        rows = [item for item in summary["objectives"] if item["name"] == title]
        limit = _limit(title, rows[0]["limit"])
        missed = [f"{names[row['cell']]} ({_limit(title, row['value'])})" for row in rows if row["met"] is False]
        unknown = [names[row["cell"]] for row in rows if row["met"] is None]
        text = f"missed in {', '.join(missed)}" if missed else "met" + (" in the other cells" if unknown else "")
        text += f"; not measured in {', '.join(unknown)}" if unknown else ""
        lines.append(f"Objective {title} {limit}: {text}.")
    return lines


def _limit(title: str, value: float) -> str:
    """An objective's number with its unit."""
    return numbers.percent(value) if title == "error_rate" else f"{numbers.number(value)} ms"


def notes(summary: dict[str, Any]) -> list[str]:
    """What a reader must know before using the numbers, apart from validity."""
    cells = summary["cells"]
    lines = []
    if few := [name(c) for c in cells if Flag.TOO_FEW_ROUNDS in c["cell_flags"] and c["n"]]:
        lines.append(f"Fewer than three answered rounds: {', '.join(few)}.")
    for reason in WITHHOLDS_ITL:
        if where := [name(c) for c in cells if reason in c["itl_withheld"]]:
            lines.append(f"ITL percentiles are withheld ({reason}): {', '.join(where)}.")
    if sooner := [name(c) for c in cells if c["implausible_ttft"]]:
        lines.append(f"Answers came sooner than prompts of their length allow: {', '.join(sooner)}.")
    if cached := [name(c) for c in cells if Flag.PREFIX_CACHE_HIT in c["flags"]]:
        lines.append(f"Prompts were answered from a prefix cache ({Flag.PREFIX_CACHE_HIT.value}): {', '.join(cached)}.")
    if bars := summary["error_bars"]:
        ttft, itl = numbers.number(bars["ttft_p99_ms"]), numbers.number(bars["itl_p99_ms"])
        lines.append(
            f"The client's own error at up to {bars['streams']} streams, by its selftest: "
            f"TTFT {ttft} ms and ITL {itl} ms at p99."
        )
    lines += foreign(summary)
    if summary["damaged_lines"]:
        lines.append(f"{summary['damaged_lines']} line(s) of records.jsonl could not be read and are left out.")
    return lines


def foreign(summary: Mapping[str, Any]) -> list[str]:
    """One line where the records say that they are of another schema than this version's."""
    schema = summary["records_schema"]
    if schema in (None, SCHEMA):
        return []
    return [
        f"records.jsonl says it is {schema}; this version reads {SCHEMA}: what it does not know is left out, "
        "and a field may mean something else."
    ]


def errors(summary: dict[str, Any]) -> list[str]:
    """One line for each outcome of each cell that failed, with the server's first message as it came."""
    lines = []
    names = {cell["cell"]: name(cell) for cell in summary["cells"]}
    for error in summary["errors"]:
        where = names.get(error["cell"]) or error["cell"] or "no cell"
        status = f" (HTTP {error['http_status']})" if error["http_status"] else ""
        message = f": {error['message']}" if error["message"] else ""
        lines.append(f"{where}: {error['outcome']} {error['n']}{status}{message}")
    return lines


def totals(summary: dict[str, Any]) -> str:
    """The line of totals, warm-up, failed and retried requests included."""
    all_of = summary["totals"]
    parts = [f"{all_of['requests']} requests with warm-up and drain, {all_of['ok']} ok"]
    if all_of["retried"]:
        parts.append(f"{all_of['retried']} retried")
    for kind in ("prompt", "cached", "output"):
        sources = all_of[f"{kind}_tokens"]
        counted = " + ".join(f"{n} by {source}" for source, n in sources.items()) or "0"
        parts.append(f"{kind} tokens {counted}")
    if all_of["unanswered_prompt_tokens"]:
        parts.append(f"up to {all_of['unanswered_prompt_tokens']} prompt tokens without an answer")
    return "Totals: " + "; ".join(parts) + "."


def name(cell: dict[str, Any]) -> str:
    """A cell as people say it: '4K x 2', or '4K at 2.5/s' in an open loop."""
    tier, rate = numbers.tier(cell["tier_tokens"]), cell.get("rate")
    stage = "" if cell.get("stage") is None else f", stage {cell['stage']}"
    return (f"{tier} x {cell['concurrency']}" if rate is None else f"{tier} at {rate:g}/s") + stage
