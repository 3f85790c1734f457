"""A page on Locust's web UI, /llm: TTFT, TPOT and outcomes of every cell so far, and what the run is worth.

Locust's own tables have one time per request, which is its whole duration; TTFT is nowhere in them, so that their
Aggregated row stays what it says. Everything here is text that is escaped, whoever it comes from.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from loadkit.measure.quantile import of_sorted
from loadkit.measure.validity import worst
from loadkit.swarm.session import Session
from loadkit.swarm.tally import CellRow, Tally

PATH = "/llm"
TITLE = "TTFT, TPOT and outcomes by cell"
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
RENEWED_S = 5
LONGEST = 300  # characters of a text
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "Cache-Control": "no-store",
}
STYLE = """
body{font:14px/1.5 system-ui,sans-serif;margin:2em;color-scheme:light dark}
table{border-collapse:collapse;margin:0 0 2em}
th,td{padding:.2em .8em;text-align:right;border-bottom:1px solid #8884}
th:first-child,td:first-child{text-align:left}
.suspect{color:#a60}.invalid{color:#c22}
"""


def attach(web_ui: Any, session: Session, base_path: str = "") -> None:
    """Serve the page on Locust's `environment.web_ui`, behind its login where it has one, and link to it from the
    UI's page of downloads, which is where Locust has a place for links. Before the first request.

    base_path: what Locust was told as --web-base-path.
    """
    tally = Tally(session)

    def llm() -> tuple[str, dict[str, str]]:
        return page(session, tally), HEADERS

    web_ui.app.add_url_rule(base_path.rstrip("/") + PATH, "llm", web_ui.auth_required_if_enabled(llm))
    links = web_ui.template_args.setdefault("extended_csv_files", [])
    links.append({"href": f".{PATH}", "title": TITLE})


def page(session: Session, tally: Tally) -> str:
    """The page as it is now."""
    rows = tally.rows()
    endpoint = session.target.endpoint
    about = f"run {session.run_id}, endpoint {endpoint.name}, model {endpoint.model or '-'}"
    outcomes = sorted({name for row in rows for name in row.part.outcomes})
    body = [
        f'<p><a href="./">Locust</a></p><h1>{TITLE}</h1><p>{text(about)}</p>',
        *verdict(session, tally, rows),
        "<h2>Latency</h2>",
        table(["cell", "state", "visits", "n", *_named("TTFT"), *_named("TPOT"), "validity"], map(_times, rows)),
        "<p>ms; nearest-rank over n measured answers.</p><h2>Outcomes</h2>",
        table(
            ["cell", "requests", *outcomes],
            ([row.cell, row.part.outcomes.total(), *(row.part.outcomes[name] for name in outcomes)] for row in rows),
        ),
        "<p>All requests, with warm-up and drain.</p>",
    ]
    head = f'<meta charset="utf-8"><meta http-equiv="refresh" content="{RENEWED_S}"><title>{TITLE}</title>'
    return (
        f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{"".join(body)}</body></html>'
    )


def verdict(session: Session, tally: Tally, rows: Sequence[CellRow]) -> Iterable[str]:
    """What the run is worth so far, and why it is not worth more."""
    if not session.ladder:
        yield "<p>Validity is told by the report at the end: users choose for themselves what to send.</p>"
        return
    found, left, unjudged = worst(*(row.validity for row in rows)), tally.left, sum(row.unjudged for row in rows)
    so_far = f"so far, {_visits(left)} to go" if left else "no visit is to go"
    yield f'<p class="{found.status}">The run is <strong>{found.status}</strong>: {so_far}.</p>'
    if unjudged:
        yield f"<p>{_visits(unjudged)} from before the run was resumed: the report judges them at the end.</p>"
    lines = [f"stopped by {session.stopped_by}" if session.stopped_by else None, session.fault, session.limited]
    lines += [f"cell {row.cell}: {reason}" for row in rows for reason in row.validity.reasons]
    yield "".join(f"<p>{text(line)}</p>" for line in lines if line)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table; every cell of it is escaped."""
    lines = [f"<tr>{''.join(f'<th>{text(name)}</th>' for name in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{text(value)}</td>' for value in row)}</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"


def text(value: object) -> str:
    """Anything as text of a page, clipped."""
    return escape(str(value)[:LONGEST])


def _named(what: str) -> list[str]:
    return [f"{what} {name}" for name in QUANTILES]


def _times(row: CellRow) -> list[object]:
    visits = f"{row.closed}/{row.visits}" if row.visits else "-"
    times = [_ms(of_sorted(values, q)) for values in (row.part.ttft, row.part.tpot) for q in QUANTILES.values()]
    judged = row.validity.status if row.closed and not row.unjudged else "-"
    return [row.cell, row.state, visits, len(row.part.ttft), *times, judged]


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _visits(count: int) -> str:
    return f"{count} visit{'s' if count != 1 else ''}"
