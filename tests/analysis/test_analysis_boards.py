"""A board run in numbers: verdicts on cells, the articles' names, the memory's bound, throttling curves, energy."""

import json
from pathlib import Path

import pytest

from loadkit.analysis.soak import curve, energy
from loadkit.analysis.strata import strata
from loadkit.analysis.summary import summarise
from loadkit.record.record import Record

EFFICIENCY = json.loads((Path(__file__).parent / "board_rows.json").read_text())
BANDWIDTH = {"bytes_per_s": 33.792e9, "source": "theoretical", "bus_bits": 64, "clock_hz": 2112e6}


def answers(tier=512, n=3, start_s=100.0, each_s=2.0, itl=64.9, tokens=9, **more):
    """Measured answers of one cell, one after another, whose gaps are all `itl` ms."""
    found = []
    for i in range(n):
        begun, ttft = 1000 * (start_s + i * each_s), 400.0
        gaps = [itl] * (tokens - 1)
        last = ttft + sum(gaps)
        row = {
            "tier_tokens": tier, "concurrency": 1, "cell": f"{tier}x1", "phase": "measure", "outcome": "ok",
            "round": i + 1, "visit": 0, "worker": "w", "start_ms": begun, "ttft_ms": ttft, "last_token_ms": last,
            "e2e_ms": last,
            "done_ms": last + 1, "itl_ms": gaps, "event_read": list(range(tokens)), "prompt_tokens": tier,
            "prompt_tokens_source": "usage", "output_tokens": tokens, "output_tokens_source": "usage",
            "tpot_ms": itl, "decode_tokens_per_s": 1000 / itl, "response_model": "Qwen2.5-1.5B-Instruct", **more,
        }  # fmt: skip
        found.append({**Record().to_json(), **row})
    return found


def samples(*seconds, **parts):
    """Rows of the board at these seconds of the clock."""
    return [{"kind": "board", "at_ms": 1000 * at, "board": "rk3588", **parts} for at in seconds]


def summary(records, telemetry=(), **facts):
    target = {
        "kind": "board", "board": "rk3588", "title": "RK3588", "quantisation": {"name": "w8a8"}, "runs_on": "npu",
        "bandwidth": BANDWIDTH, "before": {}, **facts,
    }  # fmt: skip
    return summarise(records, {"target": target, "endpoint": {"model": "m"}}, telemetry)


def test_the_names_of_the_articles():
    """ITL_P50 64.9 ms makes Decode_TPS_P50 15.41; p99 of three answers is their largest and says so."""
    (cell,) = summary(answers())["board"]["cells"]
    assert (cell["TTFT_P50"], cell["TTFT_P99"], cell["ITL_P50"], cell["ITL_P99"]) == (400.0, 400.0, 64.9, 64.9)
    assert cell["Decode_TPS_P50"] == pytest.approx(15.408, abs=5e-4)
    assert (cell["low_n"], cell["no_decode"]) == (True, None)


def test_gaps_that_are_not_tokens_make_no_decode_rate():
    """Letters, bursts and events of several tokens: the name is there and its value is not, with the reason."""
    for flag, reason in (
        ("events_are_characters", "events are characters and no tokens are stated"),
        ("bursty", "bursty"),
        ("tokens_per_event_gt_1", "tokens_per_event_gt_1"),
    ):
        (cell,) = summary(answers(flags=[flag]))["board"]["cells"]
        assert (cell["Decode_TPS_P50"], cell["ITL_P50"], cell["ITL_P99"]) == (None, None, None)
        assert cell["no_decode"] == reason


def test_strata_are_never_averaged():
    """Three lengths make three rows; no number stands for all of them."""
    records = [*answers(128), *answers(512, start_s=200), *answers(1024, start_s=300)]
    board = summary(records)["board"]
    assert [cell["tier_tokens"] for cell in board["cells"]] == [128, 512, 1024]
    assert not any(name in board for name in ("TTFT_P50", "ITL_P50", "Decode_TPS_P50"))


def test_the_engines_clock_and_the_tokenizer_stand_apart():
    """40 of 400 ms are the tokenizer's: a tenth of the client's TTFT, and no part of the engine's."""
    stated = {"server_prefill_ms": 360.0, "server_decode_ms": 519.2, "tokenize_ms": 40.0}
    (cell,) = summary(answers(**stated))["board"]["cells"]
    assert (cell["engine_prefill_ms"], cell["engine_decode_ms"], cell["tokenize_ms"]) == (360.0, 519.2, 40.0)
    assert cell["tokenize_share"] == pytest.approx(0.10)
    (unstated,) = summary(answers())["board"]["cells"]
    assert (unstated["engine_prefill_ms"], unstated["tokenize_ms"], unstated["tokenize_share"]) == (None, None, None)


def test_the_published_rate_lies_where_it_was_published():
    """Qwen2.5-1.5B as w8a8 at 16.69 tokens/s: 0.762 of 21.89, inside the band of the board."""
    (cell,) = summary(answers(itl=1000 / 16.69))["board"]["cells"]
    bound = cell["bound"]
    assert bound["bytes_per_token"] == 1_543_714_304
    assert bound["tokens_per_s"] == pytest.approx(21.89, abs=0.01)
    assert bound["share"] == pytest.approx(0.762, abs=0.001)
    assert (bound["reading"], bound["causes"]) == ("plausible", [])
    assert "within the published band" in bound["sentence"]


@pytest.mark.parametrize("row", EFFICIENCY, ids=lambda row: f"{row['board']}-{row['model']}-{row['quant']}")
def test_efficiency_of_published_rows(row):
    """Every published row whose model has a card: bound and efficiency follow from card, quantisation and memory."""
    facts = {"board": row["board"], "bandwidth": {"bytes_per_s": row["gbs"] * 1e9, "source": "given"}}
    facts["quantisation"] = {"name": row["quant"]}
    records = answers(itl=1000 / row["tokens_per_s"], response_model=row["model"])
    (cell,) = summary(records, **facts)["board"]["cells"]
    assert cell["bound"]["tokens_per_s"] == pytest.approx(row["bound"], rel=0.01)
    assert cell["bound"]["share"] == pytest.approx(row["efficiency"], rel=0.01)


def test_a_rate_above_the_bound_names_its_cause():
    """With the article's 17 GB/s the published rate would be 152 %: impossible, and the bandwidth is what is wrong."""
    (cell,) = summary(answers(itl=1000 / 16.69), bandwidth={"bytes_per_s": 17e9, "source": "given"})["board"]["cells"]
    bound = cell["bound"]
    assert (bound["reading"], round(bound["share"], 2)) == ("invalid", 1.52)
    assert bound["causes"][0]["name"] == "bandwidth"
    assert {cause["name"] for cause in bound["causes"]} == {"bandwidth", "bytes", "model", "not_decode"}


def test_the_bound_follows_the_clock_that_was_seen():
    """Memory that ran at 528 MHz is held against 8.448 GB/s, whatever was assumed; a given figure is left alone."""
    slow = samples(99, 101, 103, 105, frequency_hz={"ddr": 528e6})
    (cell,) = summary(answers(itl=250.0), slow)["board"]["cells"]
    assert cell["bound"]["bandwidth_bytes_per_s"] == pytest.approx(8.448e9)
    assert "528 MHz" in cell["bound"]["bandwidth_from"]
    given = {"bytes_per_s": 25.8e9, "source": "given"}
    (cell,) = summary(answers(itl=250.0), slow, bandwidth=given)["board"]["cells"]
    assert cell["bound"]["bandwidth_bytes_per_s"] == 25.8e9


def test_without_card_or_bandwidth_there_is_no_bound_and_a_reason():
    """An unknown model asks for --card, an unknown memory for --bandwidth."""
    (cell,) = summary(answers(response_model="house-model-9"))["board"]["cells"]
    assert (cell["bound"], cell["no_bound"]) == (None, "no model card: name one with --card")
    (cell,) = summary(answers(), bandwidth=None)["board"]["cells"]
    assert (cell["bound"], cell["no_bound"]) == (None, "the memory's bandwidth is not known: give it with --bandwidth")


def test_heat_marks_the_cells_it_fell_into_and_no_others():
    """Two cells, and cooling that began between them: only the second is throttled, suspect, with the reason."""
    records = [*answers(128), *answers(512, start_s=200)]
    before = samples(99, 101, 103, 105, frequency_hz={"ddr": 2112e6}, cooling={"cpu": 0})
    after = samples(199, 201, 203, 205, frequency_hz={"ddr": 2112e6}, cooling={"cpu": 2})
    made = summary(records, [*before, *after])
    flags = {cell["cell"]: cell["cell_flags"] for cell in made["cells"]}
    assert "throttled" not in flags["128x1"]
    assert "throttled" in flags["512x1"]
    hot = made["cells"][1]["validity"]
    assert hot["status"] == "suspect"
    assert "throttled: cooling device cpu was in use (state 2)" in hot["reasons"]
    assert made["board"]["ranges"]["cooling"] == {"cpu": [0, 2]}


def test_a_lock_gives_the_targets():
    """With a lock the clocks are held against what it set; one that stood still at another step is unlocked."""
    rows = samples(99, 101, 103, 105, frequency_hz={"ddr": 1560e6})
    assert "unlocked" not in summary(answers(), rows)["cells"][0]["cell_flags"]
    locked = summary(answers(), rows, lock={"targets_hz": {"ddr": 2112e6}})
    assert "unlocked" in locked["cells"][0]["cell_flags"]
    assert "unlocked: ddr was locked to 2112 MHz and ran at 1560 MHz" in locked["cells"][0]["validity"]["reasons"]


def test_a_board_that_was_busy_before_says_so_in_every_cell():
    """What ran there before the run may still run."""
    made = summary(answers(), before={"load": {"cpu": 0.5}})
    assert made["board"]["busy_before"] == ["its cores were 50 % busy before the run"]
    assert "busy: its cores were 50 % busy before the run" in made["cells"][0]["validity"]["reasons"]


def test_other_runs_have_no_board():
    """Telemetry of a board that is not the target marks nothing."""
    records = answers()
    rows = samples(101, cooling={"cpu": 3})
    made = summarise(records, {"target": {"kind": "endpoint"}}, rows)
    assert made["board"] is None
    assert "throttled" not in made["cells"][0]["cell_flags"]


def soak(minutes, onset=None):
    """One answer each ten seconds for so many minutes; from minute `onset` on 40 % slower, and hotter."""
    records, rows = [], []
    for i in range(6 * minutes):
        at = 100.0 + 10 * i
        warm = onset is not None and i >= 6 * onset
        records += answers(n=1, start_s=at, itl=100.0 if warm else 60.0)
        heat = {"temperature_c": {"soc": 86.0 if warm else 60.0}, "cooling": {"cpu": int(warm)}}
        rows += samples(at, at + 5, **heat, power_w={"in": 8.0 if warm else 10.0, "rail": 3.0})
    (stratum,) = strata(records)
    return stratum, [(row["at_ms"] / 1000, row) for row in rows]


def test_the_throttling_curve_says_when_and_how_much():
    """Twelve minutes of which the last five are slow: cold rate, onset, heat at the onset, warm rate."""
    made = curve(*soak(12, onset=7))
    assert (made["onset_min"], made["onset_c"]) == (7, 86.0)
    assert made["cold_tokens_per_s"] == pytest.approx(1000 / 60)
    assert made["warm_tokens_per_s"] == pytest.approx(10.0)
    assert [minute["n"] for minute in made["minutes"]][:11] == [6] * 11
    assert (made["minutes"][0]["power_w"], made["minutes"][8]["cooling"]) == (10.0, 1)


def test_a_board_that_keeps_cool_has_no_onset():
    """Its warm rate is that of the last minutes; under ten minutes there is no curve at all."""
    made = curve(*soak(11))
    assert made["onset_min"] is None
    assert made["warm_tokens_per_s"] == pytest.approx(1000 / 60)
    assert curve(*soak(9)) is None


def test_energy_is_power_over_the_measured_time_for_each_token():
    """10 W over 110 s and 12 answers of 9 tokens; of several sensors the one that reads most is the input."""
    stratum, rows = soak(2)
    made = energy(stratum, rows)
    seconds = stratum.window.seconds()
    assert (made["sensor"], made["power_w"]) == ("in", 10.0)
    assert made["joules_per_output_token"] == pytest.approx(10.0 * seconds / (12 * 9))
    assert made["joules_per_token"] == pytest.approx(10.0 * seconds / (12 * (9 + 512)))
    assert energy(stratum, []) is None
