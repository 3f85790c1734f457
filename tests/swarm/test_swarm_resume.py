"""A run that was killed or stopped, gone on with: what was finished is kept, what was half done is done again."""

import signal
from collections import Counter

import pytest

TIERS, LEVELS, ROUNDS = (32, 48), (1, 3), 2
PLAN = ("--tiers", "32,48", "--concurrency", "1,3", "--rounds", str(ROUNDS), "--max-tokens", "3", "--seed", "7")
MORE = ("--no-check", "--no-metrics")
SHORT = ("--max-tokens", "4")


@pytest.fixture(scope="module")
def again(start):
    """again(run, *options, verb): `loadkit run --resume` of the folder of a run."""

    def begin(run, *options, words=("-m", "loadkit.cli.main", "run")):
        return start(*words, "--resume", run.folder, "--no-metrics", *options)

    return begin


@pytest.fixture(scope="module")
def killed(make_sim, loadkit, again):
    """A run that was killed in the first visit of three streams, and then once more in the next one, and went on."""
    sim = make_sim("--ttft-ms", "150", "--itl-ms", "4")
    run = loadkit(sim.url, *PLAN, *MORE)
    run.sim = sim
    sim.reached(received=11, in_flight=3)  # a warm-up and two rounds of two cells alone, and some of the next
    run.process.kill()
    run.process.wait()
    run.first = (run.folder / "records.jsonl").read_bytes()
    run.before = run.manifest
    with (run.folder / "records.jsonl").open("ab") as file:
        file.write(b'{"kind":"request","run_id":"')
    run.second = again(run)
    sim.reached(received=sim.stats()["received"] + 14, in_flight=3)
    run.second.process.kill()
    run.second.process.wait()
    run.between = run.manifest
    run.third = again(run)
    run.code = run.third.end()
    return run


def test_it_was_cut_in_mid_visit(killed):
    """Both times one visit was open, and at the second start another one than at the first."""
    first, second = ([row["state"] for row in manifest["visits"]] for manifest in (killed.before, killed.between))
    assert first == ["done"] * 4 + ["open", "planned"]
    assert "open" in second
    assert killed.before["ended_at"] is None


def test_a_killed_run_comes_to_its_end(killed):
    """Every cell has all its requests, and the exit code is that of a complete run."""
    assert killed.code == killed.summary["exit_code"] == (6 if killed.saturated else 0), killed.third.err
    cells = {cell["cell"]: (cell["n"], cell["ok"]) for cell in killed.summary["cells"]}
    wanted = {f"{tier}x{level}": (ROUNDS * level,) * 2 for tier in TIERS for level in LEVELS}
    assert cells == wanted
    assert killed.summary["course"]["missing"] == []
    assert "Traceback" not in killed.second.err + killed.third.err


def test_what_was_finished_is_kept_as_it_was(killed):
    """The file only grew; visits that were done were not sent again."""
    assert (killed.folder / "records.jsonl").read_bytes().startswith(killed.first)
    done = [row["visit"] for row in killed.before["visits"] if row["state"] == "done"]
    kept = Counter(row["visit"] for row in killed.records if row["visit"] in done and row["phase"] == "measure")
    assert kept == dict.fromkeys(done, 1)
    assert [killed.manifest["visits"][index]["state"] for index in done] == ["done"] * len(done)


def test_both_tries_of_a_visit_are_told_apart(killed):
    """The old one points at the one that stands for it, and its records are in no number of the cell."""
    visits = killed.manifest["visits"]
    cut = [row for row in visits if "repeated_as" in row]
    assert len(cut) == 2
    for row in cut:
        stands = visits[row["repeated_as"]]
        assert stands["repeats"] == row["visit"]
        assert stands["cell"] == row["cell"]
        assert "the run was cut in the middle of it" in row["validity"]["reasons"]
    assert {row["state"] for row in visits if "repeated_as" not in row} == {"done"}


def test_no_request_is_sent_or_named_twice(killed):
    """Ids are unique over all starts, as are measured prompts; only what was in flight at a kill has no record."""
    ids = [row["request_id"] for row in killed.records]
    assert len(ids) == len(set(ids))
    hashes = [row["prompt_sha256"] for row in killed.records if row["phase"] == "measure"]
    assert len(hashes) == len(set(hashes))
    received = killed.sim.received(killed.manifest["run_id"])
    assert set(ids) <= set(received)
    assert len(received) - len(ids) <= 2 * max(LEVELS)


def test_the_report_says_so(killed):
    """How often, which visits, and that a line was damaged, which is no reason any more to call the run incomplete."""
    text = (killed.folder / "report.md").read_text()
    indexes = [row["visit"] for row in killed.manifest["visits"] if "repeated_as" in row]
    assert f"Resumed twice, after a cut, a cut: visits {indexes[0]} and {indexes[1]} were repeated; what was" in text
    assert killed.summary["damaged_lines"] == 1
    assert [entry["repeated"] for entry in killed.manifest["resumes"]] == [[index] for index in indexes]


def test_a_finished_run_has_nothing_to_do(killed, again, locustfiles):
    """It is said, nothing is sent, and the exit code is that of its summary; by Locust too."""
    before = killed.sim.stats()["received"]
    words = ("-m", "locust", "-f", locustfiles / "ladder.py", "--headless")
    for more in (again(killed), again(killed, words=words)):
        assert more.end() == killed.code, more.err
        assert "nothing to do" in more.err
    assert killed.sim.stats()["received"] == before


@pytest.mark.parametrize("option", [("--url", "http://127.0.0.1:1"), ("--tiers", "32,64"), ("--model", "other")])
def test_a_contradiction_is_one_line(killed, again, option):
    """Exit code 2; the folder is left as it is."""
    before = killed.manifest
    more = again(killed, *option)
    assert more.end() == 2
    assert more.err.count("\n") == 1
    assert f"{option[0]} {option[1]} contradicts the run" in more.err
    assert killed.manifest == before


def test_a_run_that_goes_on_is_not_resumed(make_sim, loadkit, again):
    """One line, exit code 2; the run comes to its end as if nothing had been."""
    sim = make_sim("--ttft-ms", "100", "--itl-ms", "4")
    run = loadkit(sim.url, "--tiers", "32", "--concurrency", "2", "--rounds", "20", "--max-tokens", "3", *MORE)
    sim.reached(received=4)
    more = again(run)
    assert more.end() == 2
    assert "another process is writing" in more.err
    assert more.err.count("\n") == 1
    assert run.end() == (6 if run.saturated else 0), run.err
    assert len([row for row in run.records if row["phase"] == "measure"]) == 40


def test_a_run_that_was_stopped_goes_on_under_locust(make_sim, loadkit, again, locustfiles):
    """SIGTERM in mid-visit, exit code 7; the shape of a locustfile goes on with it to its end."""
    sim = make_sim("--ttft-ms", "100", "--itl-ms", "4")
    run = loadkit(sim.url, "--tiers", "32", "--concurrency", "1,2", "--rounds", "4", "--max-tokens", "3", *MORE)
    sim.reached(received=8, in_flight=2)
    run.signal(signal.SIGTERM)
    assert run.end() == 7
    more = again(run, words=("-m", "locust", "-f", locustfiles / "ladder.py", "--headless"))
    code = more.end()
    assert code == run.summary["exit_code"] == (6 if run.saturated else 0), more.err
    assert {cell["cell"]: cell["n"] for cell in run.summary["cells"]} == {"32x1": 4, "32x2": 8}
    assert "Resumed once, after SIGTERM: visit 4 was repeated." in (run.folder / "report.md").read_text()
    assert run.sent == sim.received(run.manifest["run_id"])


def test_a_target_of_our_own_is_started_again(loadkit, again, until):
    """It has another port by then; the plan is the same."""
    run = loadkit(None, "--target", "sim", "--tiers", "32", "--concurrency", "1", "--rounds", "8", *SHORT, *MORE)
    path = run.cwd / "runs" / "latest" / "records.jsonl"
    until(lambda: path.exists() and len(run.records) >= 3, "some records")
    run.process.kill()
    run.process.wait()
    more = again(run)
    assert more.end() == run.summary["exit_code"] == (6 if run.saturated else 0), more.err
    assert [cell["n"] for cell in run.summary["cells"]] == [8]


def test_a_fleet_whose_master_was_killed_goes_on(make_sim, make_fleet, start, again):
    """What its workers had in their spools is taken in, and other workers do the rest."""
    sim = make_sim("--ttft-ms", "150", "--itl-ms", "4")
    fleet = make_fleet(sim).forked("--tiers", "32", "--concurrency", "4", "--rounds", "12", "--max-tokens", "3", *MORE)
    sim.reached(received=10, in_flight=4)
    fleet.run.process.kill()
    fleet.run.process.wait()
    run = fleet.run
    more = again(run, "--workers", "2")
    code = more.end()
    assert code == run.summary["exit_code"] == (6 if run.saturated else 0), more.err
    assert [(cell["cell"], cell["n"]) for cell in run.summary["cells"]] == [("32x4", 48)]
    ids = [row["request_id"] for row in run.records]
    assert len(ids) == len(set(ids))
