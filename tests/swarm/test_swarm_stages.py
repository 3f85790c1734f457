"""Runs by stages: a spike of streams in one process and on workers, and one of a rate."""

import pytest

BASE = ("--tiers", "64", "--max-tokens", "5", "--no-metrics", "--seed", "7", "--yes", "--no-check")


@pytest.fixture(scope="module")
def runs(make_sim, loadkit):
    """Every run of this module, under way at once, each with a server of its own."""
    plans = {
        "spike": ("--stages", "1s:1,1s:4,1s:1"),
        "fleet": ("--stages", "1s:2,1s:4", "--workers", "2"),
        "rate": ("--stages", "1s:10rps,1s:40rps,1s:10rps", "--arrivals", "constant"),
    }
    servers = {name: make_sim("--ttft-ms", "60", "--itl-ms", "4") for name in plans}
    runs = {name: loadkit(servers[name].url, *BASE, *words) for name, words in plans.items()}
    for name, run in runs.items():
        run.code, run.received = run.end(), servers[name].received(run.manifest["run_id"])
        assert run.code == 0 or (run.code in (3, 6) and run.saturated), run.err
    return runs


def measured(run, number):
    """The measured requests of a stage that stand, in order of their start."""
    again = {visit["visit"] for visit in run.manifest["visits"] if "repeated_as" in visit}
    rows = [row for row in run.records if row["stage"] == number and row["visit"] not in again]
    return sorted((row for row in rows if row["phase"] == "measure"), key=lambda row: row["start_ms"])


@pytest.mark.parametrize(("name", "loads"), [("spike", [1, 4, 1]), ("fleet", [2, 4])])
def test_each_stage_is_a_cell_of_its_own(runs, name, loads):
    """Its streams and no others, for its second; two stages of one load are two cells; the server got each request
    once."""
    run = runs[name]
    assert run.sent == run.received
    cells = run.summary["cells"]
    assert [(cell["cell"], cell["stage"]) for cell in cells] == [
        (f"64x{load}#{number}", number) for number, load in enumerate(loads, 1)
    ]
    for number, (load, cell) in enumerate(zip(loads, cells, strict=True), 1):
        rows = measured(run, number)
        assert cell["n"] == len(rows) >= load
        assert {row["concurrency"] for row in rows} == {load}
        assert cell["peak_in_flight"] == load
        assert rows[-1]["start_ms"] - rows[0]["start_ms"] < 30_000
    assert {row["stage"] for row in run.records if row["phase"] == "warmup"} >= {1}
    assert len({row["prompt_sha256"] for row in run.records}) == len(run.records)


def test_rates_go_by_the_list(runs):
    """10, 40 and 10 arrivals in a second each, sent or counted as dropped."""
    run = runs["rate"]
    assert run.sent == run.received
    cells = {cell["cell"]: cell for cell in run.summary["cells"]}
    assert list(cells) == ["64@10rps#1", "64@40rps#2", "64@10rps#3"]
    offered = [cell["arrivals"]["offered"] for cell in cells.values()]
    assert offered == [10, 40, 10]
    assert [cell["n"] + cell["arrivals"]["dropped"] for cell in cells.values()] == offered
    seen = [(name, *counts) for row in run.telemetry for name, counts in row.get("arrivals", {}).items()]
    for name, cell in cells.items():
        counted = [sum(row[place] for row in seen if row[0] == name) for place in (1, 2)]
        assert counted == [cell["arrivals"]["offered"], cell["arrivals"]["dropped"]]


def test_the_report_names_stages(runs):
    """A row for each, marked with its place."""
    for mark in ("#1: 1", "#2: 4", "#3: 1"):
        assert mark in runs["spike"].out
