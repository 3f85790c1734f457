"""The page /llm on Locust's web UI, over real HTTP: its numbers are those of the records, its texts only text."""

import json
import re
import signal
import socket
import urllib.error
import urllib.request
from collections import Counter
from html.parser import HTMLParser

import pytest

from loadkit.measure.quantile import nearest_rank

HOSTILE = "<script>alert(1)</script>\"'&amp;<img src=x onerror=alert(2)>"
PLAN = ("--tiers", "32,64", "--concurrency", "2", "--rounds", "4", "--max-tokens", "4", "--no-check", "--no-retry")
LAW = (
    "--ttft-ms",
    "20",
    "--itl-ms",
    "4",
    "--error-rate",
    "0.3",
    "--error-status",
    "503",
    "--seed",
    "5",
    "--model",
    HOSTILE,
)


class Page(HTMLParser):
    """Tags, tables as lists of rows, and all text of an HTML page."""

    def __init__(self, html):
        super().__init__()
        self.html, self.tags, self.tables, self.text = html, Counter(), [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_data(self, data):
        if self.lasttag in ("td", "th"):
            self.tables[-1][-1][-1] += data
        self.text += data

    def rows(self, index):
        """A table as {first column: {column: text}}."""
        head, *rows = self.tables[index]
        return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


class Web:
    """A run under `locust` with its web UI, alone or as the master of two workers."""

    def __init__(self, start, locustfile, server, *, workers, base=""):
        with socket.create_server(("127.0.0.1", 0)) as web, socket.create_server(("127.0.0.1", 0)) as bind:
            port, master = web.getsockname()[1], str(bind.getsockname()[1])
        words = ["--web-host", "127.0.0.1", "--web-port", port, "--autostart"]
        words += ["--web-base-path", base] if base else []
        words += ["--master", "--master-bind-port", master, "--expect-workers", workers] if workers else []
        words += ["--url", server.url, "--model", HOSTILE, *PLAN]
        self.root = f"http://127.0.0.1:{port}{base}"
        self.run = start("-m", "locust", "-f", locustfile, *words)
        where = ("--worker", "--master-host", "127.0.0.1", "--master-port", master)
        self.workers = [start("-m", "locust", "-f", locustfile, *where) for _ in range(workers)]

    def get(self, path):
        with urllib.request.urlopen(self.root + path, timeout=20) as answer:
            self.headers = answer.headers
            return answer.read().decode()

    def page(self):
        return Page(self.get("/llm"))

    def done(self):
        """The page, when no visit is to go."""
        page = self.page()
        return page if "no visit is to go" in page.text else None

    @property
    def standing(self):
        """The records of visits that were not repeated, as they are when the machine is busy."""
        left_out = {visit["visit"] for visit in self.run.manifest["visits"] if "repeated_as" in visit}
        return [record for record in self.run.records if record["visit"] not in left_out]


@pytest.fixture(scope="module", params=[0, 2], ids=["local", "master"])
def ended(request, start, locustfiles, make_sim, until):
    """A run whose last visit is done, while its web UI still answers: what that says, and then the run folder."""
    base = "" if request.param else "/load"
    server = make_sim(*LAW, "--model", HOSTILE)
    web = Web(start, locustfiles / "ladder.py", server, workers=request.param, base=base)
    web.run.said("cell 32x2")
    web.llm = until(web.done, "the last visit is done")
    web.policy = web.headers["Content-Security-Policy"]
    web.index = web.get("/")
    # Workers report to Locust's own tables every few seconds.
    received = sum(server.received(web.run.manifest["run_id"]).values())

    def settled():
        stats = json.loads(web.get("/stats/requests"))
        return stats if stats["stats"][-1]["num_requests"] >= received else None

    web.stats = until(settled, "Locust's own tables are complete")
    web.run.signal(signal.SIGTERM)
    web.code = web.run.end()
    for worker in web.workers:
        worker.end()
    return web


def test_the_times_of_a_cell_are_those_of_its_records(ended):
    """n and nearest-rank quantiles of TTFT and TPOT over measured answers, per cell, as the page rounds them."""
    table = ended.llm.rows(0)
    assert list(table) == ["32x2", "64x2"]
    for cell, shown in table.items():
        ok = [r for r in ended.standing if r["cell"] == cell and (r["phase"], r["outcome"]) == ("measure", "ok")]
        assert shown["n"] == str(len(ok))
        for what in ("ttft", "tpot"):
            for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
                assert shown[f"{what.upper()} {name}"] == f"{nearest_rank([r[f'{what}_ms'] for r in ok], q):.1f}"
        assert (shown["state"], shown["visits"]) == ("done", "1/1")


def test_every_request_is_among_the_outcomes(ended):
    """Outcomes of all phases, per cell; a failed one is there under its name."""
    for cell, shown in ended.llm.rows(1).items():
        found = Counter(r["outcome"] for r in ended.standing if r["cell"] == cell)
        counts = {name: int(value) for name, value in shown.items() if name not in ("cell", "requests")}
        assert int(shown["requests"]) == found.total()
        assert {name: count for name, count in counts.items() if count} == dict(found)
    assert len({r["outcome"] for r in ended.standing}) > 1


def test_the_verdict_is_the_one_of_the_report(ended):
    """Each cell has the status of the summary, or less where the page looked at fewer rules; the run has the worst."""
    order = ["valid", "suspect", "invalid"]
    shown = {cell: row["validity"] for cell, row in ended.llm.rows(0).items()}
    reported = {cell["cell"]: cell["validity"]["status"] for cell in ended.run.summary["cells"]}
    assert set(shown) == set(reported)
    assert all(order.index(shown[cell]) <= order.index(reported[cell]) for cell in shown)
    assert all("invalid" in (shown[cell], "-") for cell in shown if reported[cell] == "invalid")
    worst = max(shown.values(), key=order.index)
    assert f"The run is {worst}: no visit is to go." in ended.llm.text


def test_the_aggregated_row_knows_nothing_of_ttft(ended):
    """Locust's tables have each request once, under its cell, with its whole duration; TTFT is no entry."""
    *entries, total = ended.stats["stats"]
    records = [r for r in ended.run.records if r["attempts"]]
    assert {(entry["method"], entry["name"]) for entry in entries} == {("LLM", "32x2"), ("LLM", "64x2")}
    assert total["name"] == "Aggregated"
    assert total["num_requests"] == len(records)
    assert total["num_failures"] == sum(r["outcome"] != "ok" for r in records)
    slowest = max(r["e2e_ms"] if r["e2e_ms"] is not None else r["done_ms"] for r in records)
    assert total["max_response_time"] == pytest.approx(slowest, abs=1)


def test_a_hostile_name_is_text(ended):
    """The model's name is shown as it is and is no markup; nothing on the page may run or be fetched."""
    assert HOSTILE in ended.llm.text
    assert ended.llm.tags["script"] == ended.llm.tags["img"] == 0
    assert "<script" not in ended.llm.html
    assert ended.policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_locusts_ui_links_to_the_page(ended):
    """Its page of downloads gets the link from the arguments of the template."""
    arguments = json.loads(re.search(r"window\.templateArgs = (\{.*\})", ended.index)[1])
    assert {"href": "./llm", "title": "TTFT, TPOT and outcomes by cell"} in arguments["extended_csv_files"]
    assert HOSTILE not in ended.index


def test_the_run_ends_as_without_the_page(ended):
    """A signal after the last visit: the folder is complete and no listener raised."""
    assert ended.code == ended.run.summary["exit_code"]
    assert "Traceback" not in ended.run.err
    assert "a listener raised" not in ended.run.err
    assert ended.run.manifest["stopped_by"] is None


def test_the_page_shows_a_run_under_way(start, locustfiles, make_sim):
    """While a visit is open its cell is running, later ones are planned, and the verdict is one so far."""
    server = make_sim("--ttft-ms", "200", "--itl-ms", "4", "--model", HOSTILE)
    web = Web(start, locustfiles / "ladder.py", server, workers=0)
    server.reached(received=4)
    shown = web.page()
    assert shown.rows(0)["32x2"]["state"] == "running"
    assert shown.rows(0)["64x2"]["state"] == "planned"
    assert shown.rows(0)["64x2"]["TTFT p50"] == shown.rows(0)["64x2"]["validity"] == "-"
    assert "The run is valid: so far, 2 visits to go." in shown.text
    with pytest.raises(urllib.error.HTTPError, match="404"):
        web.get("/llm/other")
    web.run.signal(signal.SIGTERM)
    assert web.run.end() == web.run.summary["exit_code"]


def test_users_who_choose_for_themselves_have_a_page_too(start, locustfiles, make_sim, until):
    """Cells come to be as they are sent, and nothing is judged before the report."""
    server = make_sim("--ttft-ms", "20", "--itl-ms", "4")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ("--web-host", "127.0.0.1", "--web-port", port, "--autostart", "-u", "2", "-r", "2")
    options = ("--url", server.url, "--tiers", "128,1K", "--max-tokens", "2", "--no-check")
    run = start("-m", "locust", "-f", locustfiles / "mix.py", *words, *options)
    server.reached(received=4)

    def measured():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/llm", timeout=20) as answer:
            shown = Page(answer.read().decode())
        return shown if sum(int(row["n"]) for row in shown.rows(0).values()) >= 2 else None

    shown = until(measured, "two answers on the page")
    assert all(row["validity"] == row["state"] == "-" for row in shown.rows(0).values())
    assert "told by the report" in shown.text
    run.signal(signal.SIGTERM)
    run.end()
    assert "Traceback" not in run.err
