"""report.html: everything put together, in one file that fetches nothing and runs only what was written here."""

from collections.abc import Iterable, Mapping
from typing import Any

from loadkit.analysis.bend_words import about
from loadkit.analysis.strata import Stratum
from loadkit.report import bends, board_table, findings, rates, words
from loadkit.report.escape import plain
from loadkit.report.html import charts, overview, plan, shell, spread, tables, timeline


def render(
    summary: dict[str, Any],
    manifest: Mapping[str, Any] | None = None,
    strata: Iterable[Stratum] = (),
    telemetry: Iterable[Mapping[str, Any]] = (),
) -> str:
    """The page as text.

    summary: what summary.json holds. manifest: may be missing or partial. strata: the cells of
    `analysis.strata` whose samples are drawn; without them the page has medians and tables only. telemetry: the rows of
    telemetry.jsonl, read once.
    """
    manifest, found = manifest or {}, list(strata)
    specs = {
        **charts.growth_charts(summary, found),
        **charts.maps(summary),
        **spread.distributions(summary, found),
        **spread.outcomes(summary),
        **timeline.timeline(summary, manifest, telemetry),
    }
    return shell.render(
        "page.html",
        specs,
        run=plain(str(summary["run_id"] or "without a name")),
        verdict=overview.verdict(summary),
        cards=overview.cards(summary),
        **_words(summary),
        **_tables(summary),
        plan=plan.of_run(manifest),
        versions=plan.versions(manifest),
        manifest=plan.whole(manifest),
    )


def _words(summary: dict[str, Any]) -> dict[str, Any]:
    """The sentences of the page."""
    return {
        **_knee(summary.get("knee")),
        "predicted": _predicted(summary),
        "growth": plain(summary["growth"]["sentence"], limit=1000),
        "findings": _lines(_findings(summary)) if summary["cells"] else [],
        "objectives": _lines(words.objectives(summary)),
        "notes": _lines(words.notes(summary)),
        "totals": plain(words.totals(summary), limit=1000),
        "definitions": words.DEFINITIONS,
    }


def _findings(summary: dict[str, Any]) -> Iterable[str]:
    """Sentences on rates, on the board, on price and pace."""
    yield from rates.sentences(summary)
    yield from board_table.sentences(summary)
    yield from findings.sentences(summary)


def _knee(knee: Mapping[str, Any] | None) -> dict[str, Any]:
    """What is said of the knee, of where the objectives break, and of each tier's bend in concurrency."""
    if not knee:
        return {"knee": "", "frontier": [], "queueing": []}
    lead = str(knee["sentence"])
    others = [each["sentence"] for each in knee["concurrency"] if each["sentence"] != lead]
    return {
        "knee": plain(lead, limit=1200),
        "frontier": _lines(bends.frontier(knee["map"])),
        "queueing": _lines(others),
    }


def _predicted(summary: dict[str, Any]) -> str:
    """What the model card says, and where it comes from; empty without one."""
    found = (summary.get("knee") or {}).get("predicted")
    if not found:
        return ""
    text = f"By its model card ({found['source']}) {found['model']} spends as much on attention as on its weights at "
    text += f"{about(found['crossover_tokens'])} tokens, and its TTFT is 25 % above the line at "
    return plain(f"{text}{about(found['k25_tokens'])} tokens. This is arithmetic, not a measurement.", limit=600)


def _tables(summary: dict[str, Any]) -> dict[str, Any]:
    cells = summary["cells"]
    return {
        "groups": [*tables.of_groups(cells), *tables.of_findings(summary)],
        "in_length": tables.knees(summary, "length"),
        "in_concurrency": tables.knees(summary, "concurrency"),
        "errors": tables.errors(summary),
        "every_number": tables.every_number(cells),
        "of_run": tables.of_run(summary),
    }


def _lines(found: Iterable[Any]) -> list[str]:
    return [plain(str(line), limit=1200) for line in found]
