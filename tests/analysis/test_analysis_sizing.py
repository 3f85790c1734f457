"""From cells to replicas: the mix, which loads hold, what stands in for what was not measured, intervals, variants."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadkit.analysis.sizing import fleet, table
from loadkit.analysis.sizing.answer import answer
from loadkit.analysis.sizing.binding import binding, cap, next_measurements
from loadkit.analysis.sizing.core import core
from loadkit.analysis.sizing.memory import Places
from loadkit.analysis.sizing.mix import parse_mix
from loadkit.analysis.sizing.question import Hardware, Prices, Question
from loadkit.analysis.sizing.samples import Samples
from loadkit.analysis.sizing.variants import sensitivity, what_if
from loadkit.analysis.summary import summarise
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.memory import GIB, Memory
from loadkit.plan.errors import ConfigError

NO_CARD = Places(None, None, ())


def spread(value):
    return None if value is None else dict.fromkeys(("p50", "p90", "p95", "p99", "mean", "min", "max"), value)


def cell(tier, streams, per_s, ttft, gap=10.0, output=11, **more):
    """One cell of a summary: averages in every place."""
    base = {
        "cell": f"{tier}x{streams}", "tier_tokens": tier, "concurrency": streams, "rate": None, "n": 100, "ok": 100,
        "outcomes": {"ok": 100}, "prompt_tokens": {"median": tier}, "output_tokens": {"median": output},
        "ttft_ms": spread(ttft), "itl_ms": spread(gap), "tpot_ms": spread(gap),
        "e2e_ms": spread(ttft + (output - 1) * gap), "requests_per_s": per_s, "output_tokens_per_s": per_s * output,
        "prefill_ms_per_1k": 1000 * ttft / tier, "peak_in_flight": streams, "mean_in_flight": streams,
        "validity": {"status": "valid", "reasons": []},
    }  # fmt: skip
    return {**base, **more}


LADDER = [cell(1024, 1, 5.0, 100), cell(1024, 4, 18.0, 122), cell(1024, 8, 19.0, 321)]
LONG = [cell(4096, 1, 2.0, 400), cell(4096, 4, 6.0, 567)]


def ask(slo="ttft=300ms", mix="", **more):
    return Question(slo=slo, mix=parse_mix(mix) if mix else (), **more)


def test_a_mix_has_tiers_outputs_and_shares():
    """Percentages and fractions mean the same, and shares are scaled to 1."""
    first, second, third = parse_mix("4K:0.7, 32K/256:25% ,128K/2000:0.05")
    assert [(s.tier_tokens, s.output_tokens) for s in (first, second, third)] == [
        (4096, None),
        (32768, 256),
        (131072, 2000),
    ]
    assert [s.share for s in (first, second, third)] == pytest.approx([0.7, 0.25, 0.05])
    assert third.name == "128K/2000"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("4K", "expected TIER:SHARE"),
        ("4K:0.5", "add up to 0.5"),
        ("4K:0.5,4K:0.5", "twice"),
        ("4K:-1", "above 0"),
        ("4K:nan", "above 0"),
        ("4K:2", "at most 1"),
        ("4Q:1", "unknown tier"),
        ("4K/0:1", "output tokens"),
        ("4K/x:1", "output tokens"),
        ("", "expected TIER:SHARE"),
    ],
)
def test_a_mix_that_cannot_be_is_named(text, said):
    """One line with the entry that is wrong."""
    with pytest.raises(ConfigError, match=said):
        parse_mix(text)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5, unique=True))
@settings(max_examples=30)
def test_shares_add_up_to_one_whatever_was_rounded(weights):
    """A mix written with rounded percentages is still a whole."""
    total = sum(weights)
    mix = parse_mix(",".join(f"{128 * (i + 1)}:{weight / total:.4f}" for i, weight in enumerate(weights)))
    assert sum(share.share for share in mix) == pytest.approx(1)


def test_the_answer_is_the_sum_of_the_work_of_all_tiers():
    """27 req/s: 0.8 x 27 / 18 + 0.2 x 27 / 2 = 3.9 replicas; the cap is weighted by the time each tier takes."""
    found = core(LADDER + LONG, ask("ttft=400ms", "1K:0.8,4K:0.2", rate=27.0))
    assert [entry.rate for entry in found.served] == [19.0, 2.0]
    assert found.fleet.work == pytest.approx(0.8 * 27 / 19 + 0.2 * 27 / 2)
    works = (0.8 / 19, 0.2 / 2)
    assert cap(found.served) == int((works[0] * 8 + works[1] * 1) / sum(works))


@given(st.floats(50, 1000), st.floats(1.0, 3.0))
@settings(max_examples=40)
def test_a_looser_objective_never_takes_more_replicas(limit, factor):
    """Goodput is monotone in the objective."""
    tight, loose = (core(LADDER, ask(f"ttft={value:.3f}ms")).served[0].rate or 0 for value in (limit, limit * factor))
    assert loose >= tight


def test_a_tier_that_was_not_measured_is_served_by_the_next_longer_one():
    """2K takes the curve of 4K and says so; nothing longer than the ladder is answered."""
    (entry,) = core(LADDER + LONG, ask("ttft=1s", "2K:1")).served
    assert (entry.curve.tier_tokens, entry.rate) == (4096, 6.0)
    assert "2K was not measured: the curve of 4K stands for it" in entry.notes[0]
    with pytest.raises(ConfigError, match="8K is longer than any tier"):
        core(LADDER + LONG, ask("ttft=1s", "8K:1"))


def test_other_output_lengths_are_worked_out_by_littles_law():
    """X R / R': 4 streams for 122 + 10 x 10 ms with 11 tokens, 122 + 100 x 10 ms with 101; fewer are an upper bound."""
    (entry,) = core(LADDER, ask("ttft=300ms", "1K/101:1")).served
    assert entry.rate == pytest.approx(18.0 * 222 / 1122)
    assert entry.residence_s(entry.best) == pytest.approx(1.122)
    (shorter,) = core(LADDER, ask("ttft=300ms", "1K/2:1")).served
    assert shorter.rate > 18.0
    assert "upper bound" in shorter.notes[0]
    (whole,) = core(LADDER, ask("e2e=300ms", "1K/101:1")).served
    assert whole.rate is None


def test_long_answers_to_long_prompts_take_more_replicas_than_one_sentence():
    """128K in with one sentence against 2000 tokens out, both from one ladder."""
    cells = [cell(131072, 1, 0.1, 9000, 40, output=26)]
    work = [core(cells, ask("ttft=20s", f"128K/{out}:1", rate=1.0)).fleet.work for out in (26, 2000)]
    assert work[1] / work[0] == pytest.approx((9 + 1999 * 0.04) / (9 + 25 * 0.04))


def test_invalid_cells_are_left_out_and_named_and_suspect_ones_are_used():
    """An invalid cell never carries a number."""
    bad = {"validity": {"status": "invalid", "reasons": ["lag"]}}
    found = answer([LADDER[0], {**LADDER[1], **bad}], ask(), source="r")
    assert [point["load"] for point in found["points"]] == [1]
    assert "1024x4 is left out: invalid: lag." in found["notes"]
    with pytest.raises(ConfigError, match="no cell can be used: 1024x4"):
        core([{**LADDER[1], **bad}], ask())


def test_an_objective_without_a_number_does_not_hold():
    """Gaps that are withheld are not good gaps: the reason is told, with what to ask instead."""
    withheld = cell(1024, 1, 5.0, 100, itl_ms=None, itl_withheld=["bursty"])
    (point,) = answer([withheld], ask("itl=50ms"), source="r")["points"]
    assert not point["holds"]
    assert point["why"] == ["itl.p95 is withheld: bursty; an objective for tpot can be judged"]


def test_what_binds_is_named():
    """TTFT, ITL, the rate limit, errors, throughput that stopped to grow, or the end of the ladder."""
    limited = {
        "ok": 80,
        "outcomes": {"ok": 80, "rate_limited": 20},
        "first_attempt_outcomes": {"ok": 80, "rate_limited": 20},
    }
    broken = {"ok": 80, "outcomes": {"ok": 80, "reset": 20}}
    cases = [
        (LADDER, "ttft=300ms", "TTFT", 8),
        ([cell(1024, 1, 5, 100), cell(1024, 4, 15, 100, 60)], "ttft=1s,itl=50ms", "ITL", 4),
        ([LADDER[0], cell(1024, 4, 15, 100, **limited)], "ttft=1s", "rate limit", 4),
        ([LADDER[0], cell(1024, 4, 15, 100, **broken)], "ttft=1s", "errors", 4),
        (LADDER[:2], "ttft=1s", "end of the ladder", None),
        ([*LADDER[:2], cell(1024, 8, 17.9, 321)], "ttft=1s", "throughput", None),
    ]
    for cells, slo, what, load in cases:
        (entry,) = core(cells, ask(slo)).served
        found = binding(entry, NO_CARD)
        assert (found.what, found.load) == (what, load), slo


def test_the_cache_binds_where_formula_and_littles_law_agree():
    """The plateau of LADDER runs 19 x (0.122 + 0.1) = 4.2 sequences; a formula of 4 agrees within 5 %."""
    (entry,) = core(LADDER, ask()).served
    space = replace(_fit(), max_sequences=4)
    assert binding(entry, Places(space, 4.2, (8,))).what == "TTFT, memory"
    assert binding(entry, Places(replace(space, max_sequences=9), 4.2, (8,))).what == "TTFT"


def _fit():
    from loadkit.capacity.memory import fit

    return fit(lookup("llama-3-8b"), Memory(24 * GIB), 1000)


def test_the_next_measurement_says_what_it_could_save():
    """Between 4 and 8 streams at most 19/s: 40 req/s take 3 replicas either way; at 38 one of 3 could go."""
    texts = {}
    for rate in (40.0, 37.0):
        question = ask(rate=rate, headroom=1.0)
        (item,) = next_measurements(core(LADDER, question), question)
        texts[rate] = (item.text, item.saves)
    assert texts[40.0][1] == 0
    assert "leaves 4 replicas as they are" in texts[40.0][0]
    assert texts[37.0] == (
        "1K at 6 streams (--concurrency 6): goodput lies between 18 and at most 19 requests/s, so it could save at "
        "most 1 of 4 replicas",
        1,
    )


def test_nothing_holds_and_a_lower_load_is_asked_for():
    """No number of replicas, the first load that misses, and half of it as the next to measure."""
    found = answer([cell(1024, 8, 19.0, 321)], ask(rate=5.0), source="r")
    assert found["sentence"].startswith("No measured point meets the objectives for 1K")
    assert found["next"][0]["text"].startswith("1K at 4 streams")
    assert not [figure for figure in found["figures"] if figure["key"].startswith("replicas")]


def records(tier, streams, ttft, *, n=40, noise=0.1, gap=10.0, output=11, fail=0):
    """Measured requests of a closed loop; TTFT scatters evenly by the noise."""
    for i in range(n):
        first = ttft * (1 + noise * (2 * ((i * 7) % n) / n - 1))
        e2e = first + (output - 1) * gap
        start = (i // streams) * (ttft + (output - 1) * gap) / 1000
        yield {
            "kind": "request", "run_id": "r", "phase": "measure", "outcome": "ok" if i >= fail else "reset",
            "cell": f"{tier}x{streams}", "tier_tokens": tier, "concurrency": streams, "round": i // streams + 1,
            "visit": streams, "prompt_tokens": tier, "output_tokens": output, "ttft_ms": first, "e2e_ms": e2e,
            "done_ms": e2e, "tpot_ms": gap, "itl_ms": [gap] * (output - 1), "hub_lag_max_ms": 0.1,
            "timestamp": f"2026-01-01T00:{streams:02d}:{start:09.6f}+00:00",
        }  # fmt: skip


def measured(*cells):
    """(cells of the summary, samples) of such records."""
    samples = Samples()
    rows = [row for each in cells for row in each]
    return summarise(list(samples.watch(rows)))["cells"], samples


def goodput_interval(found):
    (figure,) = [figure for figure in found["figures"] if figure["key"] == "1K.goodput"]
    return figure["value"], figure["low"], figure["high"], figure["note"]


def test_intervals_hold_the_value_and_narrow_with_more_requests():
    """The same records give the same interval; sixteen times the requests a fraction of its width; replicas follow."""
    widths = []
    for n in (12, 192):
        cells, samples = measured(records(1024, 4, 100, n=n, noise=0.5))
        question = ask("ttft=1s", rate=100.0, gpu_hour=2.0)
        found = answer(cells, question, source="r", samples=samples)
        value, low, high, _ = goodput_interval(found)
        assert low <= value <= high
        assert goodput_interval(answer(cells, question, source="r", samples=samples)) == (value, low, high, "")
        widths.append((high - low) / value)
        cost = next(figure for figure in found["figures"] if figure["key"] == "1K.cost_request")
        assert (cost["low"], cost["high"]) == pytest.approx((2 / 3600 / high, 2 / 3600 / low))
        hourly = next(figure for figure in found["figures"] if figure["key"] == "cost.hour")
        (fleet_figure,) = [figure for figure in found["figures"] if figure["key"] == "replicas.recommended"]
        assert fleet_figure["low"] <= fleet_figure["value"] <= fleet_figure["high"]
        assert (hourly["low"], hourly["high"]) == (2 * fleet_figure["low"], 2 * fleet_figure["high"])
    assert widths[1] < widths[0] / 2


def test_a_load_that_barely_holds_has_an_interval_that_reaches_down():
    """p95 of TTFT near its objective: in some draws only the lower load holds, and replicas rise with it."""
    low_load = records(1024, 1, 100, n=40, noise=0.1)
    edge = records(1024, 4, 100, n=40, noise=0.5)  # its p95 is 142.5 ms
    cells, samples = measured(low_load, edge)
    found = answer(cells, ask("ttft=143ms", rate=50.0), source="r", samples=samples)
    value, low, high, _ = goodput_interval(found)
    assert value > 3 * low
    assert high == pytest.approx(value, rel=0.2)
    (count,) = [figure for figure in found["figures"] if figure["key"] == "replicas.recommended"]
    assert count["high"] > 2 * count["value"]


def test_where_draws_find_no_load_at_all_replicas_have_no_upper_end():
    """One failure in forty: most draws miss 99 % success, and that is said."""
    cells, samples = measured(records(1024, 4, 100, n=300, fail=3))
    question = ask("ttft=1s", rate=50.0)
    found = answer(cells, question, source="r", samples=samples)
    _, low, _, note = goodput_interval(found)
    assert low == 0
    assert "of the draws no load holds" in note
    (count,) = [figure for figure in found["figures"] if figure["key"] == "replicas.recommended"]
    assert count["high"] is None
    assert "holds its objectives at no load" in count["note"]


def test_too_few_requests_and_tables_give_no_interval_and_say_why():
    """Two answers are no sample; a table has none."""
    cells, samples = measured(records(1024, 2, 100, n=2))
    assert goodput_interval(answer(cells, ask("ttft=1s"), source="r", samples=samples))[1:] == (
        None,
        None,
        fleet.TOO_FEW,
    )
    assert goodput_interval(answer(LADDER, ask(), source="t"))[1:] == (None, None, fleet.NO_REPEATS)


def test_an_open_loop_counts_by_what_was_achieved():
    """A rate that holds is goodput; one whose arrivals were dropped is not; the cap is the most in flight."""
    load = {"offered": 100, "dropped": 0, "offered_per_s": 9.9, "achieved_per_s": 9.8, "achieved_share": 0.99}
    good = cell(1024, 64, 7.0, 100, rate=10.0, arrivals=load, peak_in_flight=5)
    bad = cell(1024, 64, 9.0, 100, rate=20.0, arrivals={**load, "dropped": 30, "offered": 130})
    (entry,) = core([good, {**bad, "cell": "x"}], ask()).served
    assert (entry.rate, entry.best.point.load, entry.best.streams) == (9.8, 10.0, 5)
    assert (binding(entry, NO_CARD).what, binding(entry, NO_CARD).load) == ("queue", 20.0)


def test_sensitivity_changes_one_thing_at_a_time():
    """Half the load, no headroom, a tighter objective: each by itself."""
    question = ask("ttft=300ms", rate=36.0, headroom=1.2, gpu_hour=2.0)
    rows = {row.change: row for row in sensitivity(core(LADDER, question), LADDER, question)}
    assert (rows["as asked"].replicas, rows["as asked"].cost_hour) == (3, 6.0)
    assert rows["18 requests/s"].replicas == 2
    assert rows["headroom 1.5"].replicas == 3
    assert rows["ttft.p95 225 ms"].replicas == 3
    assert rows["ttft.p95 375 ms"].work == pytest.approx(36 / 19)


def test_what_if_the_context_were_cut():
    """4K cut to 1K moves its share to the shorter curve."""
    question = ask("ttft=600ms", "1K:0.5,4K:0.5", rate=36.0, what_if=("context=1K", "context=8K"))
    cells = LADDER + LONG
    base, cut, longer = what_if(core(cells, question), cells, question)
    assert base.work == pytest.approx(18 / 19 + 18 / 6)
    assert cut.work == pytest.approx(36 / 19)
    assert "4K cut to 1K" in cut.note
    assert longer.work == base.work
    assert "no entry is longer than 8K" in longer.note


def test_what_if_the_cache_had_another_type():
    """Twice the bytes: loads that no longer fit are left out; half the bytes: more fit, and no speed is made up."""
    space = Hardware(lookup("llama-3-8b"), Memory(18.3 * GIB), 8, "fp8")
    cells = [cell(8192, 1, 2.0, 100), cell(8192, 4, 6.0, 120), cell(8192, 8, 10.0, 150)]
    question = ask("ttft=300ms", rate=9.0, hardware=space, what_if=("kv=bf16", "kv=q4_0"))
    base, wide, narrow = what_if(core(cells, question), cells, question)
    assert (base.work, wide.work, narrow.work) == pytest.approx((0.9, 1.5, 0.9))
    assert "its speed was not measured" in narrow.note


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"slo": ""}, "no objective"),
        ({"slo": "ttft=0s"}, "above 0"),
        ({"rate": 0.0}, "--rate 0"),
        ({"rate": -1.0}, "--rate -1"),
        ({"headroom": 0.5}, "--headroom 0.5"),
        ({"gpu_hour": -1.0}, "--gpu-hour -1"),
        ({"gpus": 0}, "--gpus 0"),
        ({"target_cost": 1.0}, "needs --gpu-hour"),
        ({"what_if": ("kv=fp8",)}, "needs --card"),
        ({"what_if": ("colour=red",)}, "expected context"),
        ({"what_if": ("kv=fp9",)}, "one of"),
        ({"what_if": ("context=0",)}, "unknown tier"),
        (
            {"mix": "128K:1", "hardware": Hardware(replace(lookup("llama-3-8b"), context=8192), Memory(GIB))},
            "takes 8,192 tokens",
        ),
    ],
)
def test_a_question_that_cannot_be_is_named(given, said):
    """Wrong or contradictory input is one line, before anything is computed."""
    with pytest.raises(ConfigError, match=said) as caught:
        ask(**given)
    assert "\n" not in str(caught.value)


def test_several_tiers_and_a_rate_need_a_mix():
    """Which share has which length is not guessed."""
    with pytest.raises(ConfigError, match=r"several tiers \(1K, 4K\)"):
        core(LADDER + LONG, ask(rate=5.0))


def test_price_and_prefill_time_stand_side_by_side():
    """Listed price, hardware cost, ms per 1K and a request's cost for the same tier."""
    question = ask(gpu_hour=3.6, prices=Prices("EUR", 0.5, 2.0, 0.1))
    found = answer(LADDER, question, source="r")
    value = {figure["key"]: figure["value"] for figure in found["figures"]}
    assert value["1K.price_per_million"] == 0.5
    assert value["1K.prefill_ms_per_1k"] == pytest.approx(100 / 1.024)
    assert value["1K.cost_request"] == pytest.approx(3.6 / 3600 / 18)
    assert value["1K.listed_request"] == pytest.approx((1024 * 0.5 + 11 * 2) / 1e6)
    assert value["1K.listed_request_cached"] == pytest.approx((1024 * 0.1 + 11 * 2) / 1e6)
    assert {figure["unit"] for figure in found["figures"] if ".cost_" in figure["key"]} == {"EUR"}


def test_a_target_cost_names_the_loads_that_meet_it():
    """18 requests/s x 11 tokens at 3.6 per hour cost 5.05 per million."""
    rows = [
        ("ttft=300ms", 6.0, "the target cost is met, objectives held, at load 4"),
        ("ttft=110ms", 6.0, "is met at load 4, 8, where the objectives do not hold"),
        ("ttft=300ms", 1.0, "no measured load is cheap enough: 209 of 1000 output"),
    ]
    for slo, target, said in rows:
        found = answer(LADDER, ask(slo, gpu_hour=3.6, target_cost=target), source="r")
        assert any(said in note for note in found["notes"]), found["notes"]


def test_numbers_that_do_not_belong_together_are_doubted():
    """Little's law on a closed loop: 30 requests/s of 200 ms are 6 streams and not 2."""
    notes = answer([cell(1024, 2, 30.0, 100)], ask(), source="r")["notes"]
    assert any("Little's law gives 6 requests in flight and not 2" in note for note in notes)


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        ("concurrency,ttft_ms,tps\n1,10,5", {}, "give --prompt-tokens N"),
        ("concurrency,isl,osl,ttft_ms,tps\n1,10,5,1,1", {"prompt": 5}, "leave it out"),
        ("isl,osl,ttft_ms,tps\n1,10,5,1", {}, "no column is concurrency"),
        ("concurrency,isl,osl,tps\n1,10,5,1", {}, "no column is ttft_ms or ttft_s"),
        ("concurrency,isl,osl,ttft_ms\n1,10,5,1", {}, "output_tokens_per_s or requests_per_s"),
        ("concurrency,isl,osl,ttft_ms,tps\n1,10,5,-1,1", {}, "no number above 0"),
        ("concurrency,isl,osl,ttft_ms,tps\n1.5,10,5,1,1", {}, "whole numbers"),
        ("concurrency,isl,osl,ttft_ms,tps\n1,10,5,1,1\n1,10,5,2,1", {}, "stands in two rows"),
        ("concurrency,isl,osl,ttft_ms,time_to_first_token_ms,tps\n1,10,5,1,1,1", {}, "both mean ttft_ms"),
        ("concurrency,isl,osl,ttft_ms,tps\n1,10,5,,1", {}, "is missing"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(tmp_path, text, given, said):
    """One line that says which column or row, and which option helps."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        table.cells_of(path, mapping={}, **{"prompt": None, "output": None, **given})


def test_columns_of_a_table_by_their_names_or_by_the_users_word(tmp_path):
    """Seconds become ms, requests/s stand for themselves, --map names what no name tells."""
    path = tmp_path / "t.csv"
    path.write_text("users,ISL,OSL,wait,ITL (ms),RPS\n4,100,11,0.5,20,6\n")
    (found,) = table.cells_of(path, mapping=table.parse_map(["ttft_s=wait"]), prompt=None, output=None)
    assert (found["ttft_ms"]["p95"], found["requests_per_s"], found["output_tokens_per_s"]) == (500.0, 6.0, 66.0)
    assert found["e2e_ms"]["mean"] == pytest.approx(500 + 10 * 20)
    for wrong in ("ttft_s", "x=wait", "ttft_s="):
        with pytest.raises(ConfigError, match="FIELD=COLUMN"):
            table.parse_map([wrong])
