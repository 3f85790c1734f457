"""What tests of the page share: a run full of hostile text, a reader of HTML, and a real browser.

The browser is headless Chromium, spoken to over its DevTools pipe.
"""

import base64
import json
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

from loadkit.analysis.summary import examine
from loadkit.report.html.page import render

# Ends, by its own promise, when the page has drawn its charts.
DRAWN = """new Promise(done => {
  const root = document.documentElement;
  const look = () => root.dataset.charts === WANTED && done(root.dataset.charts);
  new MutationObserver(look).observe(root, {attributes: true});
  look();
})"""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


class Browser:
    """One Chromium process. Its pipe is fd 3 and 4, which a shell makes of standard input and output."""

    def __init__(self, program, profile):
        script = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
        command = ["sh", "-c", script, "sh", program, *FLAGS, f"--user-data-dir={profile}"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.rest = b""
        self.number = 0
        self.events = []

    def send(self, method, session=None, **params):
        """One command and its result; what the browser reports meanwhile is kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        while (answer := self.read()).get("id") != self.number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer}"
        return answer["result"]

    def read(self):
        """The next message of the browser."""
        while b"\0" not in self.rest:
            piece = self.process.stdout.read1(1 << 20)
            assert piece, "the browser ended"
            self.rest += piece
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def until(self, method):
        """Wait for an event, unless it has been reported."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.read())

    def close(self):
        """End the browser and whatever it started."""
        with suppress(AssertionError, OSError):
            self.send("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Page:
    """One page, opened and drawn; `events` are what the browser reported of it."""

    def __init__(self, browser, path, *, dark=False, width=1200, drawn=True):
        self.browser = browser
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.scheme(dark)
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        browser.events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        browser.until("Page.loadEventFired")
        if drawn:
            self.wait("dark" if dark else "light")

    def send(self, method, **params):
        """One command to this page."""
        return self.browser.send(method, self.session, **params)

    def scheme(self, dark):
        """What the reader's system prefers."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def wait(self, scheme):
        """Until the charts are drawn for the scheme."""
        return self.ask(DRAWN.replace("WANTED", json.dumps(scheme)))

    def ask(self, expression):
        """The value of a JavaScript expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def complaints(self):
        """Everything on the console, every exception and every log entry (what the policy blocks is one)."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event for event in self.browser.events if event.get("method") in kinds]

    def requests(self):
        """Every address that the page asked for."""
        sent = [event for event in self.browser.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def refusals(self):
        """Why what the page asked for was not loaded, one reason a request."""
        failed = [event for event in self.browser.events if event.get("method") == "Network.loadingFailed"]
        return [event["params"].get("blockedReason") for event in failed]

    def picture(self):
        """The whole page as PNG bytes."""
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def close(self):
        """Close the page."""
        self.browser.send("Target.closeTarget", targetId=self.target)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Chromium with an empty profile."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    found = Browser(program, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens text as a page: opened(html, dark=False, width=1200)."""
    pages = []

    def make(text, **options):
        path = tmp_path / f"page{len(pages)}.html"
        path.write_text(text, encoding="utf-8")
        pages.append(Page(browser, path, **options))
        return pages[-1]

    yield make
    for page in pages:
        page.close()


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
