"""A plan that changes while it is walked, on servers whose knee and limit are known."""

from functools import partial
from itertools import pairwise
from math import log2, sqrt

import pytest

from loadkit.analysis.knee import locate
from loadkit.plan.ladder import Plan, fit_cells

TIERS = (128, 256, 512, 1024, 2048, 4096)
KNEE = 700  # a jump of 150 ms: no lag of a busy machine comes near it


def interval(records, tiers):
    """log2 of the ratio of the ends of the knee's interval, from the measured requests at these tiers."""
    samples = {tier: [] for tier in tiers}
    for row in records:
        if row["phase"] == "measure" and row["tier_tokens"] in samples:
            samples[row["tier_tokens"]].append(row["ttft_ms"])
    knee = locate(list(samples), list(samples.values()))
    assert knee.ci[0] * 0.99 <= KNEE <= knee.ci[1] * 1.01
    return log2(knee.ci[1] / knee.ci[0])


def tokens_of(records):
    return sum(row["prompt_tokens"] + row["output_tokens"] for row in records)


# -- --refine ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broken(make_sim):
    """TTFT jumps by 150 ms above 700 prompt tokens."""
    return make_sim(
        "--ttft-ms", "50", "--per-token-ms", "0.01", "--break-at", str(KNEE), "--break-ms", "150", "--itl-ms", "2"
    )


@pytest.fixture(scope="module")
def both(side_by_side, broken, loadkit, locust, locustfiles):
    """both(name): a ladder of doubling tiers with --refine 3, by the command line of this name, ended."""
    words = (
        *("--tiers", ",".join(map(str, TIERS)), "--concurrency", "1", "--rounds", "3", "--max-tokens", "2"),
        *("--refine", "3", "--seed", "5"),
    )

    def ended(begin, *more):
        run = begin(*more, broken.url, *words)
        run.code = run.end()
        return run

    ladder = locustfiles / "ladder.py"
    return side_by_side({"loadkit": partial(ended, loadkit), "locust": partial(ended, locust, ladder)})


@pytest.fixture(scope="module", params=["loadkit", "locust"])
def refined(request, both):
    """Each of them in turn."""
    return both(request.param)


@pytest.mark.quiet
def test_refining_halves_the_interval_for_less_than_half_the_tokens_of_a_finer_ladder(refined):
    """The finer ladder has the refined interval everywhere; its tokens are those its plan takes."""
    planned = interval(refined.records, TIERS)
    tiers = sorted({row["tier_tokens"] for row in refined.records})
    narrowed = interval(refined.records, tiers)
    assert narrowed <= planned / 2
    parts = round(1 / narrowed)
    finer = sorted({round(TIERS[0] * 2 ** (i / parts)) for i in range(parts * (len(TIERS) - 1) + 1)})
    assert max(log2(b / a) for a, b in pairwise(finer)) >= narrowed * 0.95
    whole = Plan("finer", fit_cells([(tier, 1) for tier in finer], None, 2), 1, rounds=3, max_tokens=2).tokens()
    assert tokens_of(refined.records) < whole.total / 2


@pytest.mark.quiet
def test_the_added_tiers_bisect_the_gap_and_the_manifest_says_why(refined):
    """512 to 1024 is cut at its middle, and then the half that has the break; both are told while it runs."""
    added = [visit for visit in refined.manifest["visits"] if "added" in visit]
    first = round(sqrt(512 * 1024))
    second = round(sqrt(512 * first))
    assert [visit["added"]["tier_tokens"] for visit in added] == [first, second]
    assert [visit["cell"] for visit in added] == [f"{first}x1", f"{second}x1"]
    assert all(visit["why"].startswith("refine: halves the gap 512 to ") for visit in added)
    assert {visit["state"] for visit in refined.manifest["visits"]} == {"done"}
    assert [visit["visit"] for visit in refined.manifest["visits"]] == list(range(len(refined.manifest["visits"])))
    assert f"cell {first}x1 added: refine" in refined.err


@pytest.mark.quiet
def test_the_added_cells_are_measured_like_any_other(refined, broken):
    """Exact prompts, a warm-up and all rounds each, every request in the records, and the run is complete."""
    added = [visit for visit in refined.manifest["visits"] if "added" in visit]
    for visit in added:
        mine = [row for row in refined.records if row["visit"] == visit["visit"]]
        assert [(row["phase"], row["round"]) for row in mine] == [
            ("warmup", 0), ("measure", 1), ("measure", 2), ("measure", 3),
        ]  # fmt: skip
        assert {row["prompt_tokens"] for row in mine} == {visit["added"]["target_tokens"]}
    assert refined.sent == broken.received(refined.manifest["run_id"])
    assert refined.summary["course"]["missing"] == []
    assert refined.code == refined.summary["exit_code"] == (6 if refined.saturated else 0), refined.err
    lengths = [tier["tier_tokens"] for tier in refined.manifest["prompts"]["tiers"]]
    assert {visit["added"]["tier_tokens"] for visit in added} <= set(lengths)


# -- 429 --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited(make_sim, loadkit):
    """Two slots and no queue: every further stream is told to come back in almost a minute."""
    sim = make_sim("--ttft-ms", "60", "--itl-ms", "4", "--slots", "2", "--queue", "0", "--retry-after", "50")
    run = loadkit(
        sim.url, "--tiers", "128", "--concurrency", "1,8,16", "--rounds", "3", "--max-tokens", "3", "--seed", "5"
    )
    run.code, run.sim = run.end(), sim
    return run


def test_a_rate_limited_stage_ends_and_half_its_concurrency_is_a_new_cell(limited):
    """8 streams end early, then 4, which also are too many; 2 are fine, and 16 are not tried."""
    visits = {visit["cell"]: visit for visit in limited.manifest["visits"]}
    states = {cell: visit["state"] for cell, visit in visits.items()}
    assert states == {"128x1": "done", "128x8": "ended", "128x16": "dropped", "128x4": "ended", "128x2": "done"}
    assert "were rate limited, more than 10%" in visits["128x8"]["why"]
    assert visits["128x4"]["why"] != visits["128x8"]["why"]
    assert "half the concurrency of 128x4" in visits["128x2"]["why"]
    assert "128x8 was rate limited" in visits["128x16"]["why"]
    assert [row for row in limited.records if row["cell"] == "128x16"] == []
    assert {row["outcome"] for row in limited.records if row["cell"] == "128x2"} == {"ok"}


def test_no_stream_sits_out_its_back_off_in_a_stage_that_has_ended(limited):
    """The server asked for 50 seconds; nobody waited, nobody came back, and no user was lost by it."""
    refused = [row for row in limited.records if row["outcome"] == "rate_limited"]
    assert refused
    assert all(len(row["attempts"]) == 1 and row["attempts"][0]["wait_ms"] is None for row in refused)
    assert {row["outcome"] for row in limited.records} == {"ok", "rate_limited"}
    assert limited.manifest["fault"] is None
    assert limited.sent == limited.sim.received(limited.manifest["run_id"])


def test_stages_ended_and_left_out_on_purpose_make_no_incomplete_run(limited):
    """The exit code is that of a complete run, and the report says what was changed and why."""
    assert limited.summary["course"]["missing"] == []
    assert limited.code == limited.summary["exit_code"] == (6 if limited.saturated else 0), limited.err
    changes = {(item["cell"], item["change"]) for item in limited.summary["course"]["changes"]}
    assert changes == {("128x8", "ended"), ("128x16", "dropped"), ("128x4", "ended"), ("128x2", "added")}


# -- concurrency ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def queued(side_by_side, make_sim, loadkit):
    """queued(full): on a server of four slots, each request 150 ms in one, so that beyond four streams they queue; a
    run as it is by default, or of the full grid."""
    words = ("--tiers", "128", "--concurrency", "1,2,4,8,16", "--rounds", "2", "--max-tokens", "6", "--seed", "5")

    def ended(*more):
        run = loadkit(make_sim("--ttft-ms", "100", "--itl-ms", "10", "--slots", "4").url, *words, *more)
        run.end()
        return run

    return side_by_side({False: ended, True: partial(ended, "--full-grid")})


@pytest.mark.quiet
def test_concurrency_ends_one_step_after_the_knee(queued):
    """8 streams show that 4 were the knee; 16 would only queue. What was left out is not missing."""
    run = queued(False)
    assert [(visit["cell"], visit["state"]) for visit in run.manifest["visits"]][-2:] == [
        ("128x8", "done"), ("128x16", "dropped"),
    ]  # fmt: skip
    assert "one step after the knee" in run.manifest["visits"][-1]["why"]
    assert {row["concurrency"] for row in run.records} == {1, 2, 4, 8}
    assert run.summary["course"]["missing"] == []


@pytest.mark.quiet
def test_the_full_grid_is_measured_where_it_is_asked_for(queued):
    """Nothing is left out, and the manifest holds the wish."""
    run = queued(True)
    assert {visit["state"] for visit in run.manifest["visits"]} == {"done"}
    assert {row["concurrency"] for row in run.records} == {1, 2, 4, 8, 16}
    assert run.manifest["plan"]["full_grid"] is True


def test_a_locustfile_without_decide_cannot_refine(locust, locustfile, broken):
    """One line that says what to write, exit code 2, and nothing sent."""
    text = "from loadkit.swarm import LadderShape, LadderUser, install\n\ninstall()\n"
    run = locust(locustfile(text), broken.url, "--tiers", "128,256,512,1K", "--concurrency", "1", "--refine", "1")
    assert run.end() == 2
    assert "install(finish, decide)" in run.err


OWN_RULE = """
from loadkit.plan.further import Change, Decision
from loadkit.plan.ladder import Cell
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, install

def decide(seen, plan, left):
    {rule}

install(finish, decide)
"""
WORDS = ("--tiers", "128,256,512,1K", "--concurrency", "1", "--rounds", "1", "--max-tokens", "2", "--seed", "5")


def test_a_rule_of_ones_own_that_raises_ends_the_run_and_is_named(locust, locustfile, broken):
    """What was measured before stands, the rest is not done, and one line says why."""
    run = locust(locustfile(OWN_RULE.format(rule="return 1 / 0")), broken.url, *WORDS)
    assert run.end() == (6 if run.saturated else 3), run.err
    assert "what decides about further cells raised ZeroDivisionError" in run.err
    assert [visit["state"] for visit in run.manifest["visits"]] == ["done", "planned", "planned", "planned"]
    assert "Traceback" not in run.err


def test_a_cell_whose_prompts_cannot_be_built_is_listed_as_left_out(locust, locustfile, broken):
    """Nothing fits into one token: the run goes on without it, and asks for it no second time."""
    rule = "return Decision(add=(Change(Cell(1, 1), 'too small'),))"
    run = locust(locustfile(OWN_RULE.format(rule=rule)), broken.url, *WORDS)
    assert run.end() == (6 if run.saturated else 0), run.err
    rows = [(visit["cell"], visit["state"]) for visit in run.manifest["visits"]]
    assert len(rows) == 5
    assert rows[-1] == ("1x1", "dropped")
    assert "too small; its prompts cannot be built: a tier of 1 tokens has no room" in run.manifest["visits"][-1]["why"]
    assert run.summary["course"]["missing"] == []
