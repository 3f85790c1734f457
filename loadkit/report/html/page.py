"""report.html: everything put together, in one file that fetches nothing and runs only what was written here.

The page's policy lets no address be fetched and no script run but the one whose hash it names, so that a text of a
server that came through the escaping would still be dead.
"""

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from loadkit import __version__
from loadkit.analysis.bend_words import about
from loadkit.analysis.strata import Stratum
from loadkit.report import bends, findings, rates, words
from loadkit.report.escape import plain
from loadkit.report.html import charts, overview, plan, spread, tables, timeline
from loadkit.report.html.bundle import bundle


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
    script = _script()
    return _template().render(
        policy=_policy(script),
        style=Markup(_file("style.css")),
        script=script,
        specs=_data(specs),
        charts=specs,
        run=plain(str(summary["run_id"] or "without a name")),
        verdict=overview.verdict(summary),
        cards=overview.cards(summary),
        **_words(summary),
        **_tables(summary),
        plan=plan.of_run(manifest),
        versions=plan.versions(manifest),
        manifest=plan.whole(manifest),
        maker=__version__,
    )


def _words(summary: dict[str, Any]) -> dict[str, Any]:
    """The sentences of the page."""
    return {
        **_knee(summary.get("knee")),
        "predicted": _predicted(summary),
        "growth": plain(summary["growth"]["sentence"], limit=1000),
        "findings": _lines((*rates.sentences(summary), *findings.sentences(summary))) if summary["cells"] else [],
        "objectives": _lines(words.objectives(summary)),
        "notes": _lines(words.notes(summary)),
        "totals": plain(words.totals(summary), limit=1000),
        "definitions": words.DEFINITIONS,
    }


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


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("loadkit.report.html", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")


def _file(name: str) -> str:
    return resources.files("loadkit.report.html").joinpath(name).read_text("utf-8")


@cache
def _script() -> Markup:
    return Markup(bundle(_file("page.js"), os.environ))


def _data(specs: Mapping[str, Any]) -> Markup:
    """JSON that may stand in a script element: no character of it can end the element or a line."""
    text = json.dumps(specs, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _policy(script: str) -> str:
    """Content-Security-Policy: nothing is fetched; this script runs, no other."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
