"""The ladder, by `loadkit run` and by plain Locust: one plan, every request kept, the planned streams in flight."""

import math
from collections import Counter

import pytest

TIERS, LEVELS, ROUNDS = (32, 48), (1, 3), 2
PLAN = ("--tiers", "32,48", "--concurrency", "1,3", "--rounds", str(ROUNDS), "--max-tokens", "3", "--seed", "7")


@pytest.fixture(scope="module")
def ladder_sim(make_sim):
    """TTFT 60 ms, more or less: streams spend their time at the server, and the last one ends well after the others."""
    return make_sim("--ttft-ms", "60", "--itl-ms", "4", "--jitter", "0.9")


@pytest.fixture(scope="module")
def ladder(ladder_sim, loadkit, locust, locustfiles):
    """The two runs, ended."""
    runs = {
        "loadkit": loadkit(ladder_sim.url, *PLAN, "--no-check"),
        "locust": locust(locustfiles / "ladder.py", ladder_sim.url, *PLAN, "--no-check"),
    }
    for run in runs.values():
        run.code = run.end()
    return runs


@pytest.fixture(params=["loadkit", "locust"])
def run(request, ladder):
    """Each of them in turn."""
    return ladder[request.param]


def test_it_ends_well(run):
    """Nothing on the way was an error, and the process exits as the summary says."""
    assert run.code == run.summary["exit_code"] == (6 if run.saturated else 0), run.err
    assert "Traceback" not in run.err


def test_every_request_that_reached_the_server_is_in_the_records_once(run, ladder_sim):
    """By X-Request-Id the records and the server's own truth are the same."""
    ids = [row["request_id"] for row in run.records]
    assert len(ids) == len(set(ids))
    assert run.sent == ladder_sim.received(run.manifest["run_id"])
    assert {row["outcome"] for row in run.records} == {"ok"}


def test_the_phases_are_those_of_the_plan(run):
    """Per cell: rounds x streams measured, a warm-up per stream, and a drain only where streams wait for another."""
    for tier in TIERS:
        for level in LEVELS:
            phases = Counter(row["phase"] for row in run.records if row["cell"] == f"{tier}x{level}")
            assert phases["measure"] == ROUNDS * level
            assert phases["warmup"] >= level
            assert level > 1 or phases["drain"] == 0
            rounds = Counter(
                row["round"] for row in run.records if row["cell"] == f"{tier}x{level}" and row["phase"] == "measure"
            )
            assert rounds == dict.fromkeys(range(1, ROUNDS + 1), level)


def test_both_write_the_same_kinds_of_records(ladder):
    """Same keys in the same order, same cells, and for the same seed the same prompts in the same places."""
    keys = {name: {tuple(row) for row in run.records} for name, run in ladder.items()}
    assert len(keys["loadkit"]) == 1
    assert keys["loadkit"] == keys["locust"]

    def prompts(run):
        rows = [row for row in run.records if row["phase"] == "measure"]
        return Counter((row["cell"], row["visit"], row["round"], row["prompt_sha256"]) for row in rows)

    assert prompts(ladder["loadkit"]) == prompts(ladder["locust"])
    assert len(prompts(ladder["locust"])) == ROUNDS * sum(LEVELS) * len(TIERS)


def test_the_planned_streams_are_in_flight_while_a_cell_is_measured(run, ladder_sim):
    """At the server: never more than planned, and the time of a missing one nowhere to be found."""
    records = {row["request_id"]: row for row in run.records}
    truth = ladder_sim.requests(run.manifest["run_id"])
    for tier in TIERS:
        spans = [
            (row["received_ns"], row["last_write_ns"], records[row["request_id"]]["phase"] == "measure")
            for row in truth
            if records[row["request_id"]]["cell"] == f"{tier}x3"
        ]
        first = min(start for start, _, measured in spans if measured)
        last = max(end for _, end, measured in spans if measured)
        assert max(sum(a <= start < b for a, b, _ in spans) for start, _, _ in spans) == 3

        def busy(begin, finish, spans=spans):
            inside = sum(min(b, finish) - max(a, begin) for a, b, _ in spans if b > begin and a < finish)
            return inside / (finish - begin)

        # 2 with one stream missing; turning round takes a little. At the end the others drain.
        assert busy(first, last) > 2.5
        others = max(end for _, end, measured in spans if measured and end < last)
        assert busy(others, last) > 2.2 or last - others < 20e6


def test_the_folder_is_complete(run):
    """Every visit is done, the end is stamped, the reports are there, and runs/latest points at it."""
    manifest = run.manifest
    assert {visit["state"] for visit in manifest["visits"]} == {"done"}
    assert len(manifest["visits"]) == ROUNDS * len(TIERS) + len(TIERS)
    assert manifest["ended_at"] > manifest["started_at"]
    assert (manifest["stopped_by"], manifest["fault"]) == (None, None)
    names = {path.name for path in run.folder.iterdir()}
    reports = {"summary.json", "summary.csv", "report.md", "report.html"}
    assert names == {"manifest.json", "records.jsonl", "telemetry.jsonl", *reports}
    assert [path.name for path in (run.cwd / "runs").iterdir() if not path.is_symlink()] == [run.folder.name]


def test_the_numbers_are_those_of_the_records_and_not_rounded(run):
    """Locust rounds its percentiles to two digits; the summary has the nearest-rank values themselves."""
    for cell in run.summary["cells"]:
        rows = [row for row in run.records if row["cell"] == cell["cell"] and row["phase"] == "measure"]
        for name in ("ttft_ms", "e2e_ms", "tpot_ms"):
            values = sorted(row[name] for row in rows if row[name] is not None)
            for q in (50, 90, 99):
                assert cell[name][f"p{q}"] == values[math.ceil(len(values) * q / 100) - 1]
    digits = {len(str(row["ttft_ms"]).replace(".", "")) for row in run.records}
    assert max(digits) > 2


def test_standard_error_has_a_line_per_visit_and_none_per_request(run):
    """Off a terminal the progress is one line per visit; neither httpx nor Locust's tables say anything in between."""
    assert "httpx" not in run.err
    assert "HTTP/1.1 200" not in run.err
    visits = len(run.manifest["visits"])
    progress = [line for line in run.lines if line.startswith("[")]
    assert [line.split("]")[0] for line in progress] == [f"[{n}/{visits}" for n in range(1, visits + 1)]
    assert all("TTFT p50" in line for line in progress)
    assert not any("\r" in line for line in run.lines)


def test_nothing_is_drawn_while_requests_are_in_flight(ladder):
    """Locust's table of statistics appears once, after the last visit."""
    err = ladder["locust"].err
    before = err[: err.rindex("] cell ")]
    assert "# reqs" not in before
    assert "# reqs" in err[len(before) :]
