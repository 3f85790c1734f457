"""What tests of the page share: a run full of hostile text, a reader of HTML, and the page in a real browser."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import count

import pytest

from loadkit.analysis.summary import examine
from loadkit.report.html.page import render


@pytest.fixture
def opened(pages, tmp_path):
    """Opens text as a page and waits for its charts: opened(html, dark=False, width=1200)."""
    paths = (tmp_path / f"page{number}.html" for number in count())

    def make(text, **options):
        path = next(paths)
        path.write_text(text, encoding="utf-8")
        page = pages(path.as_uri(), **options)
        page.wait("dark" if options.get("dark") else "light")
        return page

    return make


ATTACK = "</script><script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>\u2028]]> --> {{ 7 * 7 }}"
VALID = {"status": "valid", "reasons": []}
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Run:
    """What a page is made of: records, manifest, telemetry; hostile text wherever a server may put some."""

    records: list
    manifest: dict
    telemetry: list

    def examine(self):
        """The summary and the strata."""
        return examine(self.records, self.manifest, self.telemetry)

    def page(self):
        """The page as text."""
        summary, strata = self.examine()
        return render(summary, self.manifest, strata, self.telemetry)


@pytest.fixture
def run(request_of):
    """Three rounds of five tiers at 1 and 2 streams: 2048x2 invalid, 1024x2 suspect, 128x2 with refusals."""
    records, visits, telemetry = [], [], []
    for concurrency in (1, 2):
        for i, tier in enumerate((128, 256, 512, 1024, 2048)):
            cell, at = f"{tier}x{concurrency}", 200 * concurrency + 20 * i
            for turn in (0, 1, 2):
                ttft = (20 + 0.3 * tier) * concurrency + turn
                start = at + turn * (ttft + 400) / 1000
                records += [
                    request_of(tier, concurrency, start, ttft + k, round=turn + 1, response_model=ATTACK)
                    for k in range(concurrency)
                ]
            visits.append(
                {"visit": len(visits), "cell": cell, "round": 0, "state": "done", "validity": VALID} | span(at, at + 8)
            )
            telemetry += [sample(at + k, cell, concurrency) for k in range(8)]
    records += [request_of(128, 2, 401.6, round=1, error_message=ATTACK)]
    visits[-1]["validity"] = {"status": "invalid", "reasons": [f"because {ATTACK}"]}
    visits[-2]["validity"] = {"status": "suspect", "reasons": ["lag"]}
    manifest = {
        "run_id": f"run {ATTACK}",
        "started_at": START.isoformat(),
        "ended_at": START.isoformat(),
        "endpoint": {"model": ATTACK, "base_url": "http://example.invalid/v1", "key_env": "LAB_KEY"},
        "plan": {"name": "grid", "slo": "ttft=300ms", "max_tokens": 16, "cells": []},
        "versions": {"loadkit": "0.1.0", "python": "3.11"},
        "host": {"cpus": 2},
        "visits": visits,
        "command": ["loadkit", "run", ATTACK],
    }
    return Run(records, manifest, telemetry)


def span(opened, closed):
    """When a visit was open, in seconds after START."""
    times = {"opened_at": opened, "closed_at": closed}
    return {name: (START + timedelta(seconds=at)).isoformat() for name, at in times.items()}


def sample(at, cell, streams):
    """A row of telemetry: a healthy second."""
    return {
        "kind": "telemetry",
        "timestamp": (START + timedelta(seconds=at)).isoformat(),
        "worker": "w",
        "cell": cell,
        "hub_lag_p99_ms": 0.2 + at % 3 / 10,
        "cpu": 0.25,
        "streams_in_flight": streams,
        "users_planned": streams,
        "users_live": streams,
    }


class Reader(HTMLParser):
    """The page as a browser reads it: tables by id, scripts, text, and what has a class."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tables, self.struck, self.scripts, self.tags, self.meta = {}, {}, [], [], {}
        self.text = ""
        self._table, self._inside = None, ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        self.tags.append((tag, known))
        self._inside = tag
        if tag == "table":
            self._table = known["id"]
            self.tables[self._table], self.struck[self._table] = [], []
        elif tag == "tr":
            self.tables[self._table].append([])
            self.struck[self._table].append("struck" in (known.get("class") or ""))
        elif tag in ("td", "th"):
            self.tables[self._table][-1].append("")
        elif tag == "script":
            self.scripts.append([known, ""])
        elif tag == "meta" and "http-equiv" in known:
            self.meta[known["http-equiv"]] = known["content"]

    def handle_endtag(self, tag):
        self._inside = ""
        if tag == "table":
            self._table = None

    def handle_data(self, data):
        tag = self._inside
        if tag == "script":
            self.scripts[-1][1] += data
        elif tag in ("td", "th") and self._table:
            self.tables[self._table][-1][-1] += data
        if tag not in ("script", "style"):
            self.text += data


@pytest.fixture
def read():
    """Reads a page: read(html) has .tables, .struck, .scripts, .tags, .text and .meta."""
    return Reader


@pytest.fixture
def attack():
    """Text that runs where a page does not escape it."""
    return ATTACK
