"""A user's own locustfile: users that choose for themselves, under Locust's own -u, -r and -t."""

from collections import Counter

import pytest

OWN = """
import gc
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
        self.send("256")

@events.test_stop.add_listener
def told(**_):
    print("collector on:", gc.isenabled())

class Binge(PromptUser):
    fixed_count = 1

    @task
    def twice(self):
        self.send("48")
        self.send("256")

install(finish)
"""
PLAN = ("--tiers", "48,256", "--max-tokens", "3", "--seed", "5", "--no-check")


# Users that leave after each task, and others that take their places.
COMING_AND_GOING = OWN.replace('self.send("256")', 'self.send("256")\n        raise StopUser').replace(
    "install(finish)",
    """
from gevent import sleep, spawn
from locust.exception import StopUser

@events.test_start.add_listener
def respawn(environment, **_):
    def again():
        while not environment.loadkit_session.visits.stopped:
            sleep(0.2)
            environment.runner.spawn_users({"Binge": 1})
    spawn(again)

install(finish)""",
)


@pytest.fixture(scope="module")
def runs(make_sim, sim, start, locust, locustfile, locustfiles, tmp_path_factory):
    """Every run of this module, under way at once."""
    slow = make_sim("--ttft-ms", "150", "--itl-ms", "4")  # some requests are in flight when the time is over
    lab = tmp_path_factory.mktemp("lab") / "endpoints.toml"
    lab.write_text(f'[endpoints.lab]\nbase_url = "{slow.url}"\nmodel = "sim"\nwindow = 256\n')
    three = ("-u", "3", "-r", "10")
    mix = locustfiles / "mix.py"
    (command,) = [line for line in mix.read_text().splitlines() if line.startswith("locust -f")]
    words = command.replace("http://127.0.0.1:8000", sim.url).replace("locustfiles/mix.py", str(mix)).split()
    words[words.index("-t") + 1] = "3s"
    return {
        "own": locust(locustfile(OWN), None, "--endpoints", lab, *PLAN, *three, "-t", "3s"),
        "mix": start("-m", *words, "--max-tokens", "3"),
        "coming and going": locust(locustfile(COMING_AND_GOING), sim.url, *PLAN, "-u", "1", "-t", "2s"),
        "4K": locust(locustfile(OWN.replace("256", "4K")), sim.url, *PLAN, *three, "-t", "1m"),
        "lots": locust(locustfile(OWN.replace("256", "lots")), sim.url, *PLAN, *three, "-t", "1m"),
        "forgotten": locust(locustfile(OWN.replace("install(finish)", "")), None, "-u", "1", "-t", "1s"),
        "folder": locust(locustfiles, sim.url, "--tiers", "128,1K", "--concurrency", "1", "--dry-run"),
        "slow": slow,
    }


@pytest.fixture(scope="module")
def own(runs):
    """Three users of two classes for three seconds, ended."""
    run = runs["own"]
    run.code = run.end()
    run.server = runs["slow"]
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
    assert set(tiers) == {48, 256}
    assert tiers[48] > tiers[256]
    assert {row["cell"] for row in own.records} <= {f"{tier}x{users}" for tier in (48, 256) for users in (1, 2, 3)}
    # The endpoint's window is 256: prompts of that tier leave room for three output tokens and the template.
    assert {(row["tier_tokens"], row["target_tokens"]) for row in own.records} == {(48, 48), (256, 189)}


def test_no_prompt_is_sent_twice(own):
    """A repeated prompt would meet its own cached prefix."""
    assert max(Counter(row["prompt_sha256"] for row in own.records).values()) == 1


def test_it_never_counts_as_short_of_users(own):
    """Nobody planned how many users there are, so no cell is invalid for their number."""
    reasons = [reason for cell in own.summary["cells"] for reason in cell["validity"]["reasons"]]
    assert not [reason for reason in reasons if "live users" in reason]
    assert max(row["users_live"] for row in own.telemetry) == 3
    assert all(row["users_planned"] == row["users_live"] for row in own.telemetry)


def test_the_garbage_collector_goes_on(own):
    """Between two visits of a ladder there is time to collect; such a run has no visits, and may last for hours."""
    assert "collector on: True" in own.out


def test_a_slot_taken_over_by_another_user_has_new_prompts(runs, sim):
    """Users that come and go share slots one after another; their prompts are still all different."""
    run = runs["coming and going"]
    run.end()
    hashes = [row["prompt_sha256"] for row in run.records]
    assert len(hashes) > 6
    assert len(set(hashes)) == len(hashes)
    assert run.sent == sim.received(run.manifest["run_id"])


@pytest.mark.parametrize(("tier", "says"), [("4K", "4K"), ("lots", "unknown tier")])
def test_a_tier_there_are_no_prompts_for_ends_the_run_with_one_line(runs, sim, tier, says):
    """It names the tier; nothing loops, no traceback; what was sent before is kept; the run is not complete."""
    run = runs[tier]
    assert run.end() == (6 if run.saturated else 3), run.err
    (line,) = [line for line in run.lines if line.startswith("loadkit:")]
    assert says in line
    assert "Traceback" not in run.err
    assert run.sent == sim.received(run.manifest["run_id"])


def test_a_locustfile_that_forgot_install_is_told(runs):
    """One line says what is missing, exit code 2."""
    run = runs["forgotten"]
    assert run.end() == 2
    assert "loadkit: call loadkit.swarm.install() at the end of the locustfile" in run.err
    assert "Traceback" not in run.err


def test_the_example_runs_as_its_docstring_says(runs, sim, locustfiles):
    """locustfiles/mix.py: about a dozen lines, and the command in its docstring works as it stands."""
    run = runs["mix"]
    assert run.end() == (6 if run.saturated else 0), run.err
    assert {row["tier_tokens"] for row in run.records} <= {128, 1024}
    assert len(run.records) >= 4
    assert run.sent == sim.received(run.manifest["run_id"])
    code = (locustfiles / "mix.py").read_text().split('"""')[2]
    assert len([line for line in code.splitlines() if line]) <= 15


def test_a_folder_of_locustfiles_runs_too(runs):
    """`-f DIR` loads them all: their options are added once."""
    run = runs["folder"]
    assert run.end() == 0, run.err
    assert "Plan grid" in run.out
    assert "Traceback" not in run.err
