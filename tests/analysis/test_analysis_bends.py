"""The knees of a run: what enters a fit, what is left out and named, the map's frontier, and the sentence."""

import json

import pytest

from loadkit.analysis.bend_words import sentence
from loadkit.analysis.bends import Point, bends, entry
from loadkit.analysis.frontier import frontier
from loadkit.analysis.strata import strata
from loadkit.analysis.summary import summarise

TIERS = (128, 256, 512, 768, 1024, 1536, 2048, 3072)
NEAR = (1.0, 1.012, 0.99, 1.004, 0.996)


def line(n):
    return 40 + 0.1 * n


def hinge(n):
    return line(n) + 0.4 * max(0, n - 1000)


def points(x, rows):
    return [Point(place, row if isinstance(row, list) else [row], False) for place, row in zip(x, rows, strict=True)]


@pytest.fixture
def run_of(request_of):
    """Records of five rounds of a ladder at concurrency 1: run_of(law, tiers) -> records."""

    def rounds(law, tiers=TIERS, **changed):
        return [
            request_of(tier, 1, at=100 * i + turn, ttft=law(tier) * factor, round=turn, visit=turn, **changed)
            for turn, factor in enumerate(NEAR, 1)
            for i, tier in enumerate(tiers)
        ]

    return rounds


@pytest.fixture
def queue_of(request_of):
    """Records of one tier at rising concurrency before so many slots of 100 ms: queue_of(slots, levels) -> records."""

    def rounds(slots, levels, tier=512):
        records = []
        for visit, level in enumerate(levels):
            turn_s = 0.1 * max(1.0, level / slots)
            for turn, factor in enumerate(NEAR, 1):
                for stream in range(level):
                    ttft = factor * 1000 * (turn_s - 0.04)
                    at = 1000 * visit + turn * turn_s + 0.001 * stream / level
                    records.append(request_of(tier, level, at=at, ttft=ttft, round=turn, visit=visit, worker=0))
        return records

    return rounds


def knee(records, manifest=None):
    return summarise(records, manifest)["knee"]


def test_a_hinge_in_length_is_found_from_the_records(run_of):
    """Five rounds of eight tiers bent at 1000 tokens: kind, interval, the tiers used, and the sentence tells them."""
    found = knee(run_of(hinge))
    length = found["length"]
    assert length["kind"] == "hinge"
    assert length["ci"][0] < 1000 < length["ci"][1]
    assert length["last_good"] == 768
    assert length["x"] == list(TIERS)
    assert (length["censored"], length["dropped"]) == (None, [])
    assert found["sentence"] == length["sentence"]
    assert found["sentence"].startswith("TTFT bends at ")
    assert "tokens (hinge, 90 % interval" in found["sentence"]
    assert "probability above 0.99" in found["sentence"]


def test_the_answer_is_json_of_finite_numbers(run_of, queue_of):
    """The summary of a run with both axes goes into a file that every JSON reader takes."""
    found = knee([*run_of(hinge), *queue_of(4, (2, 4, 8, 12))])
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_line_has_no_knee_and_the_sentence_says_why(run_of):
    """TTFT = 40 + 0.1 n: none, linear, over the range that was measured."""
    found = knee(run_of(line))
    assert (found["length"]["kind"], found["length"]["reason"], found["length"]["ci"]) == ("none", "linear", None)
    assert found["sentence"].startswith("No knee between 128 and 3072 tokens (probability ")
    assert "TTFT is linear" in found["sentence"]


def test_the_real_prompt_tokens_are_the_axis(run_of):
    """Prompts a tenth longer than their tiers move the knee with them."""
    records = [record | {"prompt_tokens": record["tier_tokens"] * 11 // 10} for record in run_of(hinge)]
    found = knee(records)["length"]
    assert found["x"] == [tier * 11 // 10 for tier in TIERS]
    assert found["ci"][0] < 1100 < found["ci"][1]


def test_invalid_cells_stay_out_and_are_named(run_of):
    """The two longest tiers are condemned by the run: the bend they show is none of the server's."""
    visits = [
        {"cell": f"{tier}x1", "validity": {"status": "invalid", "reasons": ["lag"]}, "state": "done"}
        for tier in (2048, 3072)
    ]
    records = run_of(lambda n: line(n) * (3 if n > 1600 else 1))
    assert knee(records)["length"]["kind"] == "break"
    found = knee(records, {"visits": visits})["length"]
    assert (found["kind"], found["x"]) == ("none", [float(tier) for tier in TIERS[:-2]])
    assert found["dropped"] == [{"tier_tokens": tier, "reason": "invalid"} for tier in (2048, 3072)]
    assert "Left out: 2048 (invalid), 3072 (invalid)." in found["sentence"]


def test_a_refused_tier_is_left_out_by_the_name_of_its_outcome(run_of, request_of):
    """A prompt beyond the window is no knee, and the reason is its outcome."""
    refused = [request_of(8192, 1, at=9000 + i, round=i, outcome="context_length_exceeded") for i in range(1, 6)]
    found = knee([*run_of(line), *refused])["length"]
    assert found["kind"] == "none"
    assert found["dropped"] == [{"tier_tokens": 8192, "reason": "context_length_exceeded"}]


def test_tiers_of_fewer_than_three_rounds_give_no_verdict(run_of):
    """Two rounds of a plain hinge: too_few_rounds, and no knee that a single round made."""
    found = knee([record for record in run_of(hinge) if record["round"] <= 2])["length"]
    assert (found["kind"], found["reason"], found["x"]) == ("none", "too_few_rounds", [])
    assert found["dropped"][0] == {"tier_tokens": 128, "reason": "too_few_rounds: 2 of 3"}
    assert found["sentence"].startswith("No verdict on a knee of TTFT: 3 answered rounds at 4 values are needed")


def test_three_tiers_are_too_few(run_of):
    """Three tiers can show no knee, whatever their times."""
    found = knee(run_of(hinge, (512, 1024, 2048)))["length"]
    assert (found["kind"], found["reason"]) == ("none", "too_few_tiers")
    assert "4 values are needed and 3 are usable" in found["sentence"]


def test_an_empty_run_says_that_nothing_was_looked_for():
    """No records at all: nothing in both directions, and a sentence nevertheless."""
    found = knee([])
    assert (found["length"], found["concurrency"], found["predicted"]) == (None, [], None)
    assert found["sentence"].startswith("No knee was looked for")


def test_slots_bend_ttft_and_saturate_throughput(queue_of):
    """Four slots of 100 ms: TTFT bends at 4 streams, output tokens per second have 90 % of their maximum at 3.6."""
    found = knee(queue_of(4, (1, 2, 4, 8, 12, 16)))
    waits, rates = found["concurrency"]
    assert (waits["tier_tokens"], waits["metric"], rates["metric"]) == (512, "ttft", "throughput")
    assert waits["kind"] == "hinge"
    assert waits["ci"][0] <= 4 <= waits["ci"][1]
    assert waits["x"] == [1, 2, 4, 8, 12, 16]
    assert rates["kind"] == "saturation"
    assert rates["ci"][0] <= 3.6 <= rates["ci"][1]
    assert waits["sentence"].startswith("At 512 tokens TTFT bends at ")
    assert rates["sentence"].startswith("At 512 tokens throughput reaches 90 % of its maximum at ")


def test_three_levels_are_no_ladder_of_concurrency(queue_of):
    """A knee in concurrency is looked for from four levels on."""
    assert knee(queue_of(4, (2, 4, 8)))["concurrency"] == []
    assert len(knee(queue_of(4, (2, 4, 8, 16)))["concurrency"]) == 2


def test_waits_that_are_whole_services_count_by_their_mean(request_of):
    """Six streams on four slots wait not at all or 100 ms, half each: the mean is on the line."""
    records = []
    for visit, level in enumerate((1, 2, 4, 6, 8, 12)):
        waits = [0, 100] if level == 6 else [100 * (max(level, 4) / 4 - 1)]
        for i in range(5 * level):
            ttft = (60 + waits[i % len(waits)]) * NEAR[i // level]
            records.append(request_of(512, level, at=100 * visit + i, ttft=ttft, round=i // level + 1, visit=visit))
    found = knee(records)["concurrency"][0]
    assert found["kind"] == "hinge"
    assert found["ci"][0] <= 4 <= found["ci"][1]


def test_the_frontier_is_where_an_objective_breaks_first(request_of):
    """Up to which concurrency every objective holds, tier by tier, and which one is missed next."""
    times = {(128, 1): 50, (128, 2): 60, (128, 4): 90, (1024, 1): 80, (1024, 2): 150, (1024, 4): 90, (4096, 1): 400}
    records = [
        request_of(tier, level, at=i + 100 * turn, ttft=ttft, round=turn, visit=i)
        for i, ((tier, level), ttft) in enumerate(times.items())
        for turn in (1, 2, 3)
    ]
    found = knee(records, {"plan": {"slo": "ttft=100ms,itl=50ms"}})["map"]
    assert (found["tiers"], found["concurrencies"]) == ([128, 1024, 4096], [1, 2, 4])
    assert found["frontier"] == [
        {"tier_tokens": 128, "max_concurrency_ok": 4, "first_broken": None, "objective": None},
        {"tier_tokens": 1024, "max_concurrency_ok": 1, "first_broken": 2, "objective": "ttft.p95"},
        {"tier_tokens": 4096, "max_concurrency_ok": None, "first_broken": 1, "objective": "ttft.p95"},
    ]


def test_without_objectives_there_is_no_frontier(run_of):
    """The map has its axes, and no edge that nobody asked for."""
    assert knee(run_of(line))["map"] == {"tiers": list(TIERS), "concurrencies": [1], "frontier": []}


def test_a_cell_without_the_number_does_not_hold(request_of):
    """Where ITL was not measured, an objective on it cannot be called met."""
    records = [request_of(128, 1, at=turn, ttft=50, round=turn, itl_ms=[]) for turn in (1, 2, 3)]
    row = knee(records, {"plan": {"slo": "itl=50ms"}})["map"]["frontier"][0]
    assert (row["max_concurrency_ok"], row["first_broken"]) == (None, None)


def test_an_invalid_cell_is_not_judged(request_of):
    """Only the cells that may be used decide where the frontier is."""
    records = [request_of(128, level, at=turn, ttft=50, round=turn, visit=level) for level in (1, 2) for turn in (1, 2)]
    manifest = {
        "plan": {"slo": "ttft=10ms"},
        "visits": [{"cell": "128x1", "validity": {"status": "invalid", "reasons": ["lag"]}}],
    }
    cells = summarise(records, manifest)["cells"]
    assert frontier(cells, manifest)["frontier"][0]["first_broken"] == 2


def test_the_model_card_stands_beside_the_answer(run_of):
    """A model that the catalogue knows: its K25 is in the sentence, with the range it is outside of."""
    records = [record | {"response_model": "Qwen2.5-0.5B-Instruct"} for record in run_of(line)]
    found = knee(records)
    assert found["predicted"]["k25_tokens"] == pytest.approx(4160, rel=0.01)
    expected = f"the model card of {found['predicted']['model']} predicts about 4160 tokens, outside the measured range"
    assert expected in found["sentence"]


def test_a_model_nobody_knows_is_named(run_of):
    """Without a card the sentence says so; a name from a server is clipped."""
    records = [record | {"response_model": "m" * 500} for record in run_of(line)]
    found = knee(records)
    assert found["predicted"] is None
    assert f"no model card is known for {'m' * 60}." in found["sentence"]
    assert len(found["sentence"]) < 400


def test_a_damaged_manifest_is_no_reason_to_fail(run_of):
    """Parts of the wrong kind are as good as absent."""
    found = knee(run_of(line), {"plan": "x", "endpoint": 3, "target": None, "visits": {}})
    assert found["length"]["kind"] == "none"


def test_strata_and_cells_go_together(run_of):
    """One cell per stratum, or the knee would be another's."""
    found = strata(run_of(line))
    with pytest.raises(ValueError, match="zip"):
        bends(found, [], {})


SERIES = (1, 2, 4, 8, 16, 32, 64, 128)
QUEUED = [200, 204, 210, 222, 246, 900, 2300, 5100]


@pytest.mark.parametrize("unit", [1, 0.001], ids=["ms", "s"])
def test_a_queue_is_found_between_its_levels_whatever_the_unit(unit):
    """One value per level, 200 ms to 5.1 s: the knee lies in (16, 32), in milliseconds and in seconds alike."""
    found = entry(points(SERIES, [value * unit for value in QUEUED]), "concurrency", "ttft")
    assert 16 <= found["knee"] <= 32
    assert found["last_good"] == 16


@pytest.mark.parametrize(
    "values",
    [[200 + 3 * n for n in SERIES], [200, 203, 199, 201, 202, 198, 200, 201]],
    ids=["exactly linear", "flat with noise"],
)
def test_what_has_no_knee_gets_none(values):
    """A straight line on doubling levels, and a flat one, are where threshold rules raise false alarms."""
    found = entry(points(SERIES, values), "concurrency", "ttft")
    assert (found["kind"], found["knee"]) == ("none", None)


def test_one_wild_repeat_does_not_move_the_knee():
    """2500 ms among 104 and 103: the medians rule, and the knee lies in (8, 16)."""
    rows = [[100, 102, 101], [104, 2500, 103], [108, 107, 109], [116, 115, 117], [420, 410, 430], [1050, 1010, 1090]]
    found = entry(points((1, 2, 4, 8, 16, 32), rows), "concurrency", "ttft")
    assert 8 <= found["knee"] <= 16


def test_linear_and_quadratic_parts_give_the_bend_a_quarter_of_the_way():
    """0.2 ms per token and 3e-7 ms per token squared from 4K to 1M: K25 is a quarter of b / c = 666667."""
    tokens = (4096, 32768, 131072, 524288, 1048576)
    found = entry(points(tokens, [824.233, 6875.723, 31368.361, 187320.972, 539568.688]), "length", "ttft")
    assert found["kind"] == "smooth"
    assert found["ci"][0] <= 666667 / 4 <= found["ci"][1]
    assert found["knee"] == pytest.approx(666667 / 4, rel=0.1)


def test_a_knee_below_all_tiers_is_told_as_one_sided():
    """A curve that is quadratic from its first tier on: censored below, and the sentence asks for smaller values."""
    x = (8000, 16000, 32000, 64000, 128000)
    found = entry(points(x, [[(0.01 * n + 1e-5 * n * n) * f for f in NEAR] for n in x]), "length", "ttft")
    assert (found["censored"], found["last_good"]) == ("below", None)
    assert "test smaller values" in sentence(found, "length", "ttft")


def test_a_bend_that_is_only_beginning_is_censored_above():
    """A fifth of a bend at the last tier is none, and the side where it would come is said."""
    x = (1000, 2000, 3000, 4000, 6000, 8000, 10000)
    found = entry(points(x, [[(10 + 0.01 * n + 2.4e-7 * n * n) * f for f in NEAR] for n in x]), "length", "ttft")
    assert (found["kind"], found["reason"], found["censored"]) == ("none", "excess_below_gate", "above")


def test_a_doubtful_knee_is_told_as_probable():
    """Below nine in ten the sentence does not state it as a fact."""
    sure = entry(points(TIERS, [[hinge(n) * f for f in NEAR] for n in TIERS]), "length", "ttft")
    assert "TTFT bends" in sentence(sure, "length", "ttft")
    assert "TTFT probably bends" in sentence({**sure, "probability": 0.6}, "length", "ttft")
    assert "probability 0.60" in sentence({**sure, "probability": 0.6}, "length", "ttft")


def test_many_left_out_cells_do_not_flood_the_sentence():
    """Six are named, the rest is counted."""
    dropped = [{"x": float(i), "reason": "no number"} for i in range(1, 21)]
    told = sentence(entry(points(SERIES, QUEUED), "concurrency", "ttft", dropped), "concurrency", "ttft")
    assert told.endswith("6 (no number) and 14 more.")
