"""Open loops on servers whose capacity is known: the schedule, what is dropped, the search, workers, a signal."""

import json
import signal
import subprocess
import sys
from itertools import pairwise

import pytest

from loadkit.plan.arrivals import schedule

PARTS = """
import json, time
import gevent
from loadkit.plan.arrivals import Arrival
from loadkit.plan.ladder import Cell, Visit
from loadkit.plan.open_stage import OpenStage
from loadkit.swarm.openloop import Arrivals, OpenLoop

VISIT = Visit(0, Cell(64, 3, rate=20.0), 0, True)
ARRIVALS = [Arrival(n + 1, n * 50_000_000) for n in range(10)]

def walk(streams, arrivals=ARRIVALS, warmup=1, hold=0.0, stall_at=None, stop_at=None, kill_at=None):
    told, sent, changes, came = [], [], [], Arrivals()
    stage = OpenStage(streams, warmup, arrivals)
    course = OpenLoop(
        VISIT,
        stage,
        changed=lambda: changes.append(course.finished),
        arrived=lambda visit, c: told.append(c),
        came=came.came,
    )

    def stream(slot):
        while (ticket := course.next_request(slot)) is not None:
            if ticket.due_ns is None:
                sent.append("warm")
            else:
                sent.append([ticket.turn, ticket.due_ns, ticket.due_ns <= time.perf_counter_ns()])
            if ticket.turn == stall_at:
                time.sleep(0.3)  # the loop stands still, and with it whoever keeps the time
            if ticket.turn == stop_at and ticket.due_ns:
                course.stop()
            if ticket.turn == kill_at and ticket.due_ns:
                users[1 - slot].kill()
            gevent.sleep(hold)
            course.done(ticket)

    users = [gevent.spawn(stream, slot) for slot in range(streams)]
    gevent.joinall(users, timeout=20)
    gevent.sleep(0.01)
    return {"sent": sent, "told": told, "came": came.take().get("arrivals", {}), "changes": changes,
            "finished": course.finished, "measured": course.measured,
            "planned": course.planned, "alive": sum(not user.dead for user in users)}

print(json.dumps({
    "plain": walk(3), "stalled": walk(3, stall_at=3), "busy": walk(1, hold=0.12), "stopped": walk(3, stop_at=4),
    "killed": walk(2, kill_at=2), "empty": walk(2, arrivals=[]), "cold": walk(1, warmup=0),
}))
"""  # fmt: skip


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """Every course of the part above, in one process."""
    done = subprocess.run([sys.executable, "-c", PARTS], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def offsets(walk):
    """Number -> planned time after that of the first request sent (ns), by the number's place in the schedule."""
    sent = [each for each in walk["sent"] if each != "warm"]
    start = sent[0][1] - (sent[0][0] - 1) * 50_000_000
    return {number: due - start for number, due, _ in sent}


@pytest.mark.parametrize("case", ["plain", "stalled", "cold"])
def test_every_arrival_goes_out_with_its_planned_time_whatever_holds_the_loop_up(walked, case):
    """No time of the schedule moves, also where the loop stood still for six arrivals; none goes out early."""
    walk = walked[case]
    assert offsets(walk) == {n: (n - 1) * 50_000_000 for n in offsets(walk)}
    assert walk["sent"][0] == "warm" or case == "cold"
    assert all(each == "warm" or each[2] for each in walk["sent"])
    (counts,) = walk["told"]
    assert (counts["planned"], counts["offered"]) == (10, 10)
    assert counts["dropped"] == 10 - len(offsets(walk))
    assert (walk["finished"], walk["alive"], walk["measured"]) == (True, 0, walk["planned"])


def test_what_finds_no_free_stream_is_dropped(walked):
    """One stream busy for 120 ms after each request cannot take one every 50 ms; what it takes keeps its time."""
    walk = walked["busy"]
    (counts,) = walk["told"]
    assert counts["dropped"] >= 5
    assert walk["came"] == {"64@20rps": [10, counts["dropped"]]}
    assert walk["measured"] == 10 - counts["dropped"] == walk["planned"]
    assert offsets(walk) == {n: (n - 1) * 50_000_000 for n in offsets(walk)}


def test_a_stop_sends_nothing_more_and_a_killed_stream_keeps_nothing(walked):
    """A stopped course is finished and short of its plan; one whose stream was killed goes on with the other."""
    walk = walked["stopped"]
    assert max(offsets(walk)) == 4
    assert (walk["finished"], walk["alive"]) == (True, 0)
    assert walk["measured"] < walk["planned"]
    walk = walked["killed"]
    assert (walk["finished"], walk["alive"]) == (True, 0)


def test_a_schedule_without_an_arrival_ends_by_itself(walked):
    """Who waits for the visit is told, although no request ends."""
    walk = walked["empty"]
    assert walk["sent"] == ["warm"]
    assert (walk["finished"], walk["changes"], walk["alive"]) == (True, [True], 0)


# -- runs -------------------------------------------------------------------------------------------------------------

SWEEP = (
    "--tiers",
    "64",
    "--rate",
    "10,30",
    "--duration",
    "2s",
    "--max-tokens",
    "2",
    "--seed",
    "7",
    "--max-in-flight",
    "40",
)


@pytest.fixture(scope="module", params=["loadkit", "locust"])
def swept(request, sim, loadkit, locust, locustfiles):
    """Two rates of Poisson arrivals, by either command line."""
    if request.param == "loadkit":
        run = loadkit(sim.url, *SWEEP)
    else:
        run = locust(locustfiles / "rate.py", sim.url, *SWEEP)
    run.code = run.end()
    return run


def measured(run, cell):
    rows = [row for row in run.records if row["phase"] == "measure" and row["cell"] == cell]
    return sorted(rows, key=lambda row: row["arrival"])


def test_a_sweep_sends_the_schedule_its_seed_makes(swept, sim):
    """Every arrival of the pure schedule is a record with its number and planned time, to the microsecond, however busy
    the machine is; the server received what was recorded."""
    assert swept.code in (0, 6), swept.err
    for rate, cell in ((10.0, "64@10rps"), (30.0, "64@30rps")):
        due = schedule("poisson", rate, 2.0, f"7/{cell}")
        rows = measured(swept, cell)
        planned = [row["start_ms"] + row["scheduled_ms"] for row in rows]
        dropped = next(c for c in swept.summary["cells"] if c["cell"] == cell)["arrivals"]["dropped"]
        assert len(rows) == len(due) - dropped
        wanted = [due[row["arrival"] - 1].due_ns / 1e6 for row in rows]
        for (a, b), (x, y) in zip(pairwise(planned), pairwise(wanted), strict=True):
            assert b - a == pytest.approx(y - x, abs=1e-3)
    assert swept.sent == sim.received(swept.manifest["run_id"])


def test_lateness_is_part_of_ttft_from_the_schedule(swept):
    """scheduled_ms is never above zero, ttft_sched is TTFT and lateness together, and nobody queued in the client."""
    for row in [row for row in swept.records if row["phase"] == "measure"]:
        assert row["scheduled_ms"] <= 0 <= row["queue_ms"] <= -row["scheduled_ms"]
        assert row["ttft_sched_ms"] == pytest.approx(row["ttft_ms"] - row["scheduled_ms"])
        assert (row["round"], row["rate"]) == (1, float(row["cell"].removesuffix("rps").partition("@")[2]))
    warm = [row for row in swept.records if row["phase"] == "warmup"]
    assert [(row["arrival"], row["scheduled_ms"]) for row in warm] == [(None, None)] * 2
    assert len({row["prompt_sha256"] for row in swept.records}) == len(swept.records)


def test_the_report_of_a_sweep_tells_rates_and_not_knees(swept):
    """Summary, Markdown and terminal have offered and achieved load; the exit code comes from the same summary."""
    summary = swept.summary
    assert summary["exit_code"] == swept.code
    assert [cell["cell"] for cell in summary["cells"]] == ["64@10rps", "64@30rps"]
    assert {row["state"] for row in swept.manifest["visits"]} == {"done"}
    assert summary["course"]["missing"] == []
    report = (swept.folder / "report.md").read_text()
    assert summary["rate_search"][0]["sentence"].replace("@", "").split("(")[0].strip() in report.replace("\\", "")
    assert "## Rates" in report
    assert "64 at 30/s" in report
    assert "## Knee" not in report
    assert (swept.folder / "report.html").stat().st_size > 1000
    assert "cell 64@30rps" in swept.err
    assert "Traceback" not in swept.err


def test_arrivals_beyond_the_free_streams_are_dropped_and_told(make_sim, loadkit):
    """Answers that take a second through two streams: of 30 a second two get through, the others were never sent, and
    manifest, summary and report say how many; the visit is done."""
    slow = make_sim("--ttft-ms", "900", "--itl-ms", "20")
    words = ("--rate", "15", "--arrivals", "constant", "--duration", "2s", "--max-in-flight", "2", "--tiers", "64")
    run = loadkit(slow.url, *words, "--max-tokens", "2", "--no-check", "--model", "sim")
    assert run.end() in (0, 6), run.err
    (visit,) = run.manifest["visits"]
    counts = visit["arrivals"]
    rows = measured(run, "64@15rps")
    assert (visit["state"], counts["planned"], counts["offered"]) == ("done", 30, 30)
    assert len(rows) == 30 - counts["dropped"]
    assert counts["dropped"] >= 24
    assert sum(slow.received(run.manifest["run_id"]).values()) == len(rows) + 1  # and the warm-up
    (cell,) = run.summary["cells"]
    assert cell["arrivals"]["dropped"] == counts["dropped"]
    assert cell["validity"]["status"] != "valid"
    assert f"{counts['dropped']} of 30 arrivals found no free stream" in " ".join(run.out.split())
    assert run.summary["course"]["missing"] == []


def test_waiting_that_a_slow_server_causes_is_in_the_numbers(make_sim, loadkit):
    """Ten a second on a server that takes 200 ms for each: the k-th waits for the k before it, on the clock of the
    schedule. A closed loop would have asked later and seen 200 ms each time (coordinated omission)."""
    slow = make_sim("--ttft-ms", "200", "--itl-ms", "0", "--slots", "1")
    words = ("--rate", "10", "--arrivals", "constant", "--duration", "1s", "--tiers", "64", "--max-tokens", "1")
    run = loadkit(slow.url, *words, "--max-in-flight", "12")
    assert run.end() in (0, 6), run.err
    rows = measured(run, "64@10rps")
    assert len(rows) == 10
    for k, row in enumerate(sorted(rows, key=lambda row: row["ttft_sched_ms"] + 100 * row["arrival"]), 1):
        # The k-th answer of the server cannot come before k times 200 ms; it was due at (arrival - 1) times 100 ms.
        assert row["ttft_sched_ms"] + 100 * (row["arrival"] - 1) >= 200 * k - 25
    (cell,) = run.summary["cells"]
    assert cell["arrivals"]["achieved_per_s"] <= 1.15 * 5
    assert run.summary["rate_search"][0]["rates"][0]["reasons"]


def test_a_signal_in_the_middle_of_a_schedule_drains(make_sim, loadkit):
    """Nothing more is sent, what is in flight is recorded, and the visit is not done."""
    server = make_sim("--ttft-ms", "300", "--itl-ms", "5")
    run = loadkit(server.url, "--rate", "20", "--duration", "10m", "--tiers", "64", "--max-tokens", "2")
    server.reached(received=8)
    run.signal(signal.SIGTERM)
    assert run.end() == 7, run.err
    (visit,) = run.manifest["visits"]
    assert visit["state"] == "stopped"
    assert visit["arrivals"]["offered"] < visit["arrivals"]["planned"]
    assert run.sent == server.received(run.manifest["run_id"])


# -- the search -------------------------------------------------------------------------------------------------------


def test_a_search_finds_the_capacity_of_a_server_with_two_slots(make_sim, loadkit):
    """Two slots of 130 ms answer 15.4 a second and no more, however busy this machine is: no rate well above it may be
    called sustained, and the search ends with a sustained and a failed rate at most 5 % apart."""
    capacity = 2 / 0.130
    server = make_sim("--ttft-ms", "100", "--itl-ms", "10", "--slots", "2")
    words = ("--rate-search", "--rate", "8", "--arrivals", "constant", "--duration", "3s", "--tiers", "64")
    run = loadkit(server.url, *words, "--max-tokens", "4", "--slo", "ttft=1s", "--seed", "1")
    assert run.end() in (0, 6), run.err
    (found,) = run.summary["rate_search"]
    # Cells that this machine made invalid are left out of the answer, but steered the search.
    sustained = [row["rate"] for row in found["rates"] if not row["reasons"]]
    failed = [row["rate"] for row in found["rates"] if row["reasons"]]
    assert max(sustained) <= 1.15 * capacity
    if run.saturated:  # a rate at which this busy machine did not keep up ends the way up, and the report says so
        unusable = "load generator is not to be believed", "no rate was measured that may be used"
        assert failed or any(said in found["sentence"] for said in unusable)
        return
    assert min(failed) >= 0.5 * capacity
    below = max(rate for rate in sustained if rate < min(failed))
    assert min(failed) / below <= 1.06
    added = [visit for visit in run.manifest["visits"] if "added" in visit]
    assert added[0]["added"]["rate"] in (4.0, 16.0)
    assert all(visit["why"].startswith("rate search: ") for visit in added)
    assert f"cell {added[0]['cell']} added: rate search" in run.err
    usable = [row["rate"] for row in found["rates"] if row["sustained"]]
    assert found["interval"][0] in (None, *usable)
    assert "requests/s" in found["sentence"] or "no rate" in found["sentence"]
    assert " ".join(run.out.split()).count("At 64 tokens") == 1


# -- workers ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["forked", "hosted"])
def shared(request, sim, make_fleet, locustfiles):
    """A rate that two workers keep, by either way to start them."""
    fleet = make_fleet(sim)
    words = ("--rate", "20", "--duration", "3s", "--max-in-flight", "12", "--tiers", "64", "--max-tokens", "2")
    more = (*words, "--arrivals", "constant", "--seed", "3")
    if request.param == "forked":
        fleet.forked(*more)
    else:
        fleet.hosted(*more, file=locustfiles / "rate.py")
    fleet.check(0, 6)
    return fleet.run


def test_workers_share_a_schedule_by_turns(shared):
    """Every number is sent by one worker or dropped, odd ones by one and even ones by the other, each at the time that
    the whole schedule has for it; the master has the counts of both."""
    visit = next(v for v in shared.manifest["visits"] if "repeated_as" not in v)
    rows = [row for row in measured(shared, "64@20rps") if row["visit"] == visit["visit"]]
    counts = visit["arrivals"]
    assert (counts["planned"], counts["offered"], visit["state"]) == (60, 60, "done")
    assert len({row["arrival"] for row in rows}) == len(rows) == 60 - counts["dropped"]
    workers = {row["worker"] for row in rows}
    assert len(workers) == 2
    for worker in workers:
        mine = [row for row in rows if row["worker"] == worker]
        assert len({row["arrival"] % 2 for row in mine}) == 1
        planned = {row["arrival"]: row["start_ms"] + row["scheduled_ms"] for row in mine}
        first = min(planned)
        assert planned == {n: pytest.approx(planned[first] + (n - first) * 50, abs=1e-3) for n in planned}


def test_the_prompts_of_a_schedule_do_not_depend_on_who_sends_them(shared, sim, loadkit):
    """The same seed gives arrival n the same bytes in one process and on workers."""
    words = ("--rate", "20", "--duration", "1s", "--max-in-flight", "12", "--tiers", "64", "--max-tokens", "2")
    alone = loadkit(sim.url, *words, "--arrivals", "constant", "--seed", "3")
    assert alone.end() in (0, 6), alone.err
    theirs = {row["arrival"]: row["prompt_sha256"] for row in measured(shared, "64@20rps") if row["visit"] == 0}
    for row in measured(alone, "64@20rps"):
        assert theirs.get(row["arrival"], row["prompt_sha256"]) == row["prompt_sha256"]
