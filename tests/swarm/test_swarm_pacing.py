"""Budgets that stop a run in the middle, streams that pause, and cells that are measured for a time."""

import pytest

BASE = ("--tiers", "64", "--max-tokens", "5", "--no-metrics", "--seed", "7")
PRICES = """
[endpoints.lab]
base_url = "{url}"
model = "sim"
price_input = 1.0
price_output = 10.0
currency = "EUR"
"""


@pytest.fixture(scope="module")
def servers(make_sim):
    """One server for each run of this module, started together."""
    names = ("tokens", "cost", "time", "soak", "think", "fleet", "quiet", "soak file", "prefix file")
    return {name: make_sim("--ttft-ms", "60", "--itl-ms", "4") for name in names}


@pytest.fixture(scope="module")
def runs(servers, loadkit, locust, locustfiles, tmp_path_factory):
    """Every run of this module, under way at once."""
    file = tmp_path_factory.mktemp("endpoints") / "endpoints.toml"
    file.write_text(PRICES.format(url=servers["cost"].url))
    many = ("--concurrency", "3", "--rounds", "500")
    url = {name: server.url for name, server in servers.items()}
    runs = {
        "tokens": loadkit(url["tokens"], *BASE, *many, "--budget-tokens", "1000"),
        "cost": loadkit(None, "--endpoints", file, *BASE, *many, "--budget-cost", "0.0015"),
        "time": loadkit(url["time"], *BASE, *many, "--max-duration", "5s"),
        "soak": loadkit(url["soak"], *BASE, "--concurrency", "1,3", "--duration", "2s", "--yes"),
        "think": loadkit(url["think"], *BASE, "--concurrency", "3", "--rounds", "12", "--think", "0.1s..0.3s"),
        "fleet": loadkit(url["fleet"], *BASE, *many, "--budget-tokens", "3000", "--workers", "2"),
        "quiet": loadkit(url["quiet"], *BASE, "--concurrency", "2", "--quiet", "--slo", "ttft=1ms"),
        "soak file": locust(
            locustfiles / "soak.py", url["soak file"], *BASE, "--concurrency", "2", "--duration", "1s", "--yes"
        ),
        "prefix file": locust(
            locustfiles / "shared_prefix.py", url["prefix file"], *BASE, "--concurrency", "1", "--rounds", "2"
        ),
    }
    for run in runs.values():
        run.code = run.end()
        assert "Traceback" not in run.err
    return runs


def code_of(run, code):
    """The exit code a run should have; a machine that was too busy to measure says so instead."""
    assert run.code == run.summary["exit_code"] == (6 if run.saturated else code), run.err
    return run


def ends_of(rows):
    """When these requests ended, one after another."""
    return sorted(row["start_ms"] + row["done_ms"] for row in rows)


def spent(run):
    """Prompt and output tokens of all requests, as they were counted."""
    return sum(row["prompt_tokens"] for row in run.records), sum(row["output_tokens"] for row in run.records)


@pytest.mark.parametrize(
    ("name", "budget"), [("tokens", "1,000 tokens"), ("cost", "0.0015 EUR"), ("time", "5 s"), ("fleet", "3,000 tokens")]
)
def test_a_budget_stops_the_run_in_the_middle(runs, servers, name, budget):
    """Code 3; manifest, report and terminal say which; what was in flight came to its end and nothing was lost."""
    run = code_of(runs[name], 3)
    why = f"the budget of {budget} {'is used up' if name == 'time' else 'has no room left'}"
    assert run.manifest["limit"].startswith(why)
    assert run.manifest["ended_at"]
    assert run.manifest["stopped_by"] is None
    assert f"Stopped in the middle: {why}" in (run.folder / "report.md").read_text()
    assert f"loadkit: {why}" in run.err
    assert {row["outcome"] for row in run.records} == {"ok"}
    assert run.sent == servers[name].received(run.manifest["run_id"])
    assert [row["state"] for row in run.manifest["visits"]] == ["stopped"]


def test_no_request_passes_the_budget(runs):
    """What was spent lies at most one request of each stream below it, and never above."""
    prompt, output = spent(runs["tokens"])
    assert 1000 - 3 * 69 - 69 <= prompt + output <= 1000
    prompt, output = spent(runs["cost"])
    assert (prompt * 1.0 + output * 10.0) / 1e6 <= 0.0015
    assert 3000 - 69 < sum(spent(runs["fleet"])) <= 3000, "workers spend to the last request that fits"


def test_a_spent_budget_is_raised_or_nothing_goes_on(runs, start):
    """It goes for the run and not for each start of it: one line, code 2; with a higher one the run goes on."""
    run = runs["tokens"]
    words = ("-m", "loadkit.cli.main", "run", "--resume", run.folder, "--no-metrics")
    before = run.manifest
    refused = start(*words)
    assert refused.end() == 2
    assert "give a higher --budget-tokens to go on" in refused.err
    assert run.manifest == before
    more = start(*words, "--budget-tokens", "2000")
    assert more.end() == run.summary["exit_code"] == (6 if run.saturated else 3)
    assert 1000 < sum(spent(run)) <= 2000
    assert "Resumed once, after a budget: visit 0 was repeated." in (run.folder / "report.md").read_text()


def test_a_soak_goes_on_until_its_time_is_over(runs, servers):
    """As many requests as come; all streams are up to the end, and what is reported is what was measured."""
    run = code_of(runs["soak"], 0)
    for cell, level in (("64x1", 1), ("64x3", 3)):
        rows = [row for row in run.records if row["cell"] == cell and row["phase"] == "measure"]
        starts, ends = sorted(row["start_ms"] for row in rows), ends_of(rows)
        # The time counts from when the last stream comes back from its warm-up, and ends inside a request of it or
        # between two of them.
        warm = ends_of(row for row in run.records if row["cell"] == cell and row["phase"] == "warmup")[-level]
        between = max(start - end for end, start in zip(ends, starts[level:], strict=False))
        assert ends[-1] - warm >= 2000 - between
        assert starts[-1] - starts[0] <= 5000
        (visit,) = [row for row in run.manifest["visits"] if row["cell"] == cell]
        assert visit["state"] == "done"
        assert visit["measured"] == len(rows) >= 4 * level
        (found,) = [item for item in run.summary["cells"] if item["cell"] == cell]
        assert (found["n"], found["peak_in_flight"]) == (len(rows), level)
    assert run.sent == servers["soak"].received(run.manifest["run_id"])


def test_streams_pause_between_their_requests(runs):
    """Never before the first, never less than was asked for; that fewer are in flight makes no cell suspect."""
    run = code_of(runs["think"], 0)
    times = sorted((row["start_ms"], row["start_ms"] + row["done_ms"]) for row in run.records)
    busy = sum(end - start for start, end in times)
    assert times[2][0] - times[0][0] < 100  # the first of each stream
    thought = 3 * (max(end for _, end in times) - times[0][0]) - busy
    assert thought >= 100 * (len(times) - 3)
    (cell,) = run.summary["cells"]
    assert cell["n"] == 36
    assert cell["mean_in_flight"] < 2
    assert not any("in flight" in reason for reason in cell["validity"]["reasons"])
    assert run.manifest["plan"]["think_s"] == [0.1, 0.3]


def test_a_quiet_run_says_what_one_has_to_know(runs):
    """A line for the verdict, one for the objective that is missed, and the folder, and nothing on standard error."""
    run = code_of(runs["quiet"], 4)
    assert run.err == ""
    lines = run.out.splitlines()
    verdict = "the load generator was saturated" if run.saturated else "an objective is missed"
    assert lines[0].startswith(f"{verdict}: 1 cell")
    assert lines[-1] == f"Run folder: {run.cwd / 'runs' / run.folder.name}"
    assert len(lines) == 2 + (not run.saturated)
    assert (run.folder / "report.html").exists()


def test_the_soak_locustfile(runs):
    """Its cells have a duration, here another than its own."""
    run = code_of(runs["soak file"], 0)
    assert run.manifest["plan"]["duration_s"] == 1.0
    (cell,) = run.summary["cells"]
    assert cell["n"] == run.manifest["visits"][0]["measured"] >= 2


def test_the_shared_prefix_locustfile(runs):
    """Most of every prompt is the same, and that the server takes it from a cache is what is wanted."""
    run = code_of(runs["prefix file"], 0)
    assert run.manifest["plan"]["shared_prefix"] == 0.8
    assert [cell["n"] for cell in run.summary["cells"]] == [2]


def test_a_default_for_no_option_is_one_line(locust, locustfile, sim):
    """A locustfile that misspells one is told so when the run begins."""
    text = "from loadkit.swarm import LadderShape, LadderUser, install\ninstall(duratoin='1s')\n"
    run = locust(locustfile(text), sim.url, *BASE)
    assert run.end() == 2
    assert "there is no option --duratoin" in run.err
