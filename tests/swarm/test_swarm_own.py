"""A user's own locustfile: users that choose for themselves, under Locust's own -u, -r and -t."""

from collections import Counter

import pytest

OWN = """
from locust import constant_pacing, events, tag, task
from loadkit.report.finish import finish
from loadkit.swarm import PromptUser, install

class Reader(PromptUser):
    weight = 2
    wait_time = constant_pacing(0.2)

    def on_start(self):
        self.name = "reader"

    @task(3)
    def short(self):
        record = self.send("48")
        assert record["outcome"] == "ok" and record["target_tokens"] == 48 and self.name

    @task
    def long(self):
        self.send("96")

class Binge(PromptUser):
    fixed_count = 1

    @task
    def twice(self):
        self.send("48")
        self.send("96")

install(finish)
"""
PLAN = ("--tiers", "48,96", "--max-tokens", "3", "--seed", "5", "--no-check")


@pytest.fixture(scope="module")
def own(make_sim, locust, locustfile):
    """Three users of two classes for three seconds, ended. TTFT 150 ms: some requests are in flight at the end."""
    server = make_sim("--ttft-ms", "150", "--itl-ms", "4")
    run = locust(locustfile(OWN), server.url, *PLAN, "-u", "3", "-r", "10", "-t", "3s")
    run.server = server
    run.code = run.end()
    return run


def test_its_requests_are_all_in_the_folder(own):
    """Also those in flight when the time is over: they end and are kept. No task failed, so records are returned."""
    assert own.code == own.summary["exit_code"] == (6 if own.saturated else 0), own.err
    assert "Traceback" not in own.err
    assert own.sent == own.server.received(own.manifest["run_id"])
    assert {row["outcome"] for row in own.records} == {"ok"}
    assert {row["phase"] for row in own.records} == {"measure"}
    assert len(own.records) > 20
    assert own.manifest["ended_at"]
    assert own.manifest["visits"] == []


def test_classes_tasks_and_tiers_are_its_own(own):
    """Both tiers are asked for, the short one more often; a cell is its tier and the users there were."""
    tiers = Counter(row["tier_tokens"] for row in own.records)
    assert set(tiers) == {48, 96}
    assert tiers[48] > tiers[96]
    assert {row["cell"] for row in own.records} <= {f"{tier}x{users}" for tier in (48, 96) for users in (1, 2, 3)}
    assert {row["target_tokens"] for row in own.records} == {48, 96}


def test_no_prompt_is_sent_twice(own):
    """A repeated prompt would meet its own cached prefix."""
    assert max(Counter(row["prompt_sha256"] for row in own.records).values()) == 1


def test_it_never_counts_as_short_of_users(own):
    """Nobody planned how many users there are, so no cell is invalid for their number."""
    reasons = [reason for cell in own.summary["cells"] for reason in cell["validity"]["reasons"]]
    assert not [reason for reason in reasons if "live users" in reason]
    assert max(row["users_live"] for row in own.telemetry) == 3


def test_a_slot_taken_over_by_another_user_has_new_prompts(sim, locust, locustfile):
    """Users that come and go share slots one after another; their prompts are still all different."""
    text = OWN.replace(
        'self.send("96")', 'self.send("96")\n        from locust.exception import StopUser\n        raise StopUser'
    )
    text = text.replace("install(finish)", """
from gevent import sleep, spawn

@events.test_start.add_listener
def respawn(environment, **_):
    def again():
        while not environment.loadkit_session.visits.stopped:
            sleep(0.2)
            environment.runner.spawn_users({"Binge": 1})
    spawn(again)

install(finish)""")  # fmt: skip
    run = locust(locustfile(text), sim.url, *PLAN, "-u", "1", "-t", "2s")
    run.end()
    hashes = [row["prompt_sha256"] for row in run.records]
    assert len(hashes) > 6
    assert len(set(hashes)) == len(hashes)
    assert run.sent == sim.received(run.manifest["run_id"])


@pytest.mark.parametrize(("tier", "says"), [("4K", "4K"), ("lots", "unknown tier")])
def test_a_tier_there_are_no_prompts_for_ends_the_run_with_one_line(sim, locust, locustfile, tier, says):
    """It names the tier; nothing loops, no traceback; what was sent before is kept; the run is not complete."""
    run = locust(locustfile(OWN.replace("96", tier)), sim.url, *PLAN, "-u", "3", "-r", "10", "-t", "1m")
    assert run.end() == (6 if run.saturated else 3), run.err
    (line,) = [line for line in run.lines if line.startswith("loadkit:")]
    assert says in line
    assert "Traceback" not in run.err
    assert run.sent == sim.received(run.manifest["run_id"])


def test_a_locustfile_that_forgot_install_is_told(locust, locustfile, sim):
    """No options, no session: one line says what is missing."""
    run = locust(locustfile(OWN.replace("install(finish)", "")), None, "-u", "1", "-t", "1s")
    run.end()
    assert "call loadkit.swarm.install()" in run.err


def test_the_example_runs_as_its_docstring_says(sim, locustfiles, start):
    """locustfiles/mix.py: about a dozen lines, and the command in its docstring works as it stands."""
    file = locustfiles / "mix.py"
    text = file.read_text()
    (command,) = [line for line in text.splitlines() if line.startswith("locust -f")]
    words = command.replace("http://127.0.0.1:8000", sim.url).replace("locustfiles/mix.py", str(file)).split()
    words[words.index("-t") + 1] = "3s"
    run = start("-m", *words, "--max-tokens", "3")
    assert run.end() == (6 if run.saturated else 0), run.err
    assert {row["tier_tokens"] for row in run.records} <= {128, 1024}
    assert len(run.records) >= 4
    assert run.sent == sim.received(run.manifest["run_id"])
    code = [line for line in text.split('"""')[2].splitlines() if line]
    assert len(code) <= 15


def test_a_folder_of_locustfiles_runs_too(sim, locust, locustfiles):
    """`-f DIR` loads them all: their options are added once."""
    plan = ("--tiers", "128,1K", "--concurrency", "1", "--rounds", "1", "--max-tokens", "2", "--no-check")
    run = locust(locustfiles, sim.url, *plan, "--dry-run")
    assert run.end() == 0, run.err
    assert "Plan grid" in run.out
