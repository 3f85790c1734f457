"""A budget on users that choose for themselves: one process, workers of one machine, workers started apart."""

import pytest

OWN = """
from locust import constant, task
from loadkit.report.finish import finish
from loadkit.swarm import PromptUser, install

class Reader(PromptUser):
    @task(3)
    def short(self):
        self.send("48")

    @task
    def long(self):
        self.send("96")

install(finish)
"""
PLAN = ("--tiers", "48,96", "--max-tokens", "5", "--seed", "5", "--no-metrics")
USERS = ("-u", "6", "-r", "50", "-t", "30s")
BUDGET = 6000


@pytest.fixture(scope="module")
def runs(make_sim, make_fleet, locust, locustfile):
    """Every run of this module, under way at once, each with a server of its own."""
    servers = {name: make_sim("--ttft-ms", "60", "--itl-ms", "4") for name in ("alone", "processes", "apart")}
    file, words = locustfile(OWN), (*PLAN, *USERS, "--budget-tokens", BUDGET)
    alone = locust(file, servers["alone"].url, *words)
    alone.server = servers["alone"]
    found = {"alone": alone}
    found["processes"] = make_fleet(servers["processes"]).processes(*words, file=file)
    found["apart"] = make_fleet(servers["apart"]).hosted(*words, file=file)
    return found


@pytest.mark.parametrize("name", ["alone", "processes", "apart"])
def test_users_of_ones_own_end_at_the_budget(runs, name):
    """Code 3 and a sentence; nothing is cut or lost, and the budget is kept however many workers there are."""
    run = runs[name] if name == "alone" else runs[name].run
    code = run.end()
    spent = sum(row["prompt_tokens"] + row["output_tokens"] for row in run.records)
    assert "Traceback" not in run.err
    assert run.manifest["limit"].startswith("the budget of 6,000 tokens has no room left"), run.err
    assert code == run.summary["exit_code"] == (6 if run.saturated else 3), run.err
    assert run.sent == (run.server if name == "alone" else runs[name].server).received(run.manifest["run_id"])
    assert {row["outcome"] for row in run.records} == {"ok"}
    assert BUDGET - 101 < spent <= BUDGET, "up to the first request that does not fit"
