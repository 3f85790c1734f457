"""Beside the advice: where facts come from, the history, ranked models, and techniques."""

import json

import pytest

from loadkit.capacity.advise.advice import advise
from loadkit.capacity.advise.candidates import Budget, rank
from loadkit.capacity.advise.history import changed, conclusion, entry, read
from loadkit.capacity.advise.situation import from_facts
from loadkit.capacity.advise.sources import from_card, from_probe, from_run
from loadkit.capacity.advise.techniques import choose, prefill_share, techniques
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.errors import CardError

PLAIN = {
    "engine": "llama.cpp", "weights_gb": 16.06, "mem_gb": 24, "users": 1, "ctx_set": 8192, "quant_bits": 16,
    "kv_bytes_per_token": 131_072, "bw_gbs": 936, "target_tps": 100,
}  # fmt: skip


def values(facts):
    return {name: value for name, (value, _) in facts.items()}


def tried(past, launch=None, **more):
    now = from_facts({**PLAIN, **more})
    return entry(past, now, advise(now), launch=launch, at="2026-01-01T00:00:00+00:00")


def test_facts_of_a_card():
    """A mixture of experts at 4 bit: all weights for the size, the active ones for the speed."""
    found = values(from_card(lookup("qwen3-30b-a3b"), 4.88))
    assert found["weights_gb"] == pytest.approx(18.62, abs=0.01)
    assert found["active_gb"] == pytest.approx(1.856, abs=0.01)
    assert (found["kv_bytes_per_token"], found["layers"], found["moe"]) == (98_304, 48, True)
    assert set(values(from_card(lookup("llama-3-8b")))) == {"kv_bytes_per_token", "layers", "moe"}
    assert values(from_card(lookup("deepseek-v4.1-flash"), 4))["active_gb"] == 8.0
    assert all(who == "the card of Llama-3-8B" for _, who in from_card(lookup("llama-3-8b"), 8).values())


def test_facts_of_a_run():
    """The longest tier alone tells prefill share and tokens/s, invalid cells tell nothing."""

    def cell(tier, streams, share, tpot, status="valid"):
        return {
            "tier_tokens": tier, "concurrency": streams, "prefill_share": share, "tpot_ms": {"p50": tpot},
            "validity": {"status": status},
        }  # fmt: skip

    cells = [
        cell(1024, 1, 0.3, 20.0),
        cell(8192, 1, 0.9, 25.0),
        cell(8192, 4, 0.95, 40.0),
        cell(8192, 64, 1, 1, "invalid"),
    ]
    manifest = {"plan": {"shared_prefix": 0.6}, "endpoint": {"window": 32_768, "protocol": "ollama"}}
    assert values(from_run({"cells": cells}, manifest)) == {
        "users": 4, "prefill_share": 0.9, "measured_tps": 40.0, "shared_prefix_share": 0.6, "ctx_set": 32_768,
        "engine": "ollama",
    }  # fmt: skip
    assert from_run({"cells": []}, {}) == {}
    assert from_run({}, {"endpoint": "none", "plan": [1]}) == {}


def memory(*facts):
    return [{"group": "memory", "name": name, "value": value} for name, value in facts]


TOTAL, THEORY = "installed, as the kernel uses it", "theoretical bandwidth"
READERS = ("measured bandwidth, one core", 10e9), ("measured bandwidth, four cores", 21e9)


@pytest.mark.parametrize(
    ("probe", "facts"),
    [
        (
            {"board": "rk3588", "facts": memory((TOTAL, 8e9), (THEORY, 33.8e9), *READERS)},
            {"mem_gb": 8.0, "bw_gbs": 21.0, "min_quant_bits": 8},
        ),
        (
            {"board": "rk3576", "facts": memory((THEORY, 17e9), ("type", "LPDDR4"))},
            {"bw_gbs": 17.0, "min_quant_bits": 4},
        ),
        ({"board": "raspberry-pi-5", "facts": [{"group": "memory"}, 7]}, {"bw_gbs": 17.066}),
        ({"board": "generic-linux", "facts": "none"}, {}),
    ],
    ids=["measured", "computed", "published", "nothing"],
)
def test_facts_of_a_probe(probe, facts):
    """Measured bandwidth before computed, computed before published; what is not understood is left to be asked."""
    assert values(from_probe(probe)) == pytest.approx(facts)


def test_a_history_of_one_change_at_a_time():
    """Before, after, conclusion and command of each step; the next step is the advice."""
    first = tried([], launch="llama-server -m f16.gguf", measured_tps=40)
    assert (first["before_tps"], first["after_tps"], first["changed"]) == (None, 40, None)
    assert first["next"]["action"] == "quantise_to_4bit"
    second = tried([first], weights_gb=4.9, quant_bits=4.88, measured_tps=110)
    assert (second["before_tps"], second["changed"], second["layer"]) == (40, "model", "weights")
    assert second["conclusion"] == "40 to 110 tokens/s (+175%): keep it"
    assert second["launch"] == first["next"]["launch"]
    assert second["next"]["layer"] == "none"
    assert second["number"] == 2


def test_two_changes_in_one_entry_are_refused():
    """Nobody could say which of them helped."""
    first = tried([], measured_tps=40)
    with pytest.raises(CardError, match="two things changed since the last entry \\(model and context\\)"):
        tried([first], weights_gb=4.9, quant_bits=4.88, ctx_set=4096, measured_tps=100)
    with pytest.raises(CardError, match="give the tokens/s"):
        tried([first])
    again = tried([first], measured_tps=40.5)  # the same set-up measured again is no change
    assert (again["changed"], again["conclusion"]) == (None, "40 to 40.5 tokens/s (+1%): no difference")


def test_a_history_reads_back():
    """What was kept is read as it was; a line that is no entry is named by its number."""
    first = tried([], measured_tps=40)
    lines = [json.dumps(first), json.dumps(tried([first], measured_tps=44, ctx_set=4096))]
    assert read(lines)[0] == first
    assert [row["number"] for row in read(lines)] == [1, 2]
    for damaged in (
        "junk",
        "[]",
        "{}",
        json.dumps({**first, "next": None}),
        json.dumps({**first, "after_tps": "fast"}),
    ):
        with pytest.raises(CardError, match="line 2 is no entry"):
            read([lines[0], damaged])


def test_what_counts_as_a_change():
    """An answer given for the first time, a target or a bandwidth change nothing in the set-up."""
    before = {"engine": "ollama", "users": 1, "target_tps": 50}
    now = from_facts({"engine": "vllm", "users": 1, "target_tps": 100, "ctx_set": 4096, "bw_gbs": 900})
    assert changed(before, now) == ["engine"]
    assert conclusion(50, 30) == "50 to 30 tokens/s (-40%): take it back"


def test_three_models_on_one_budget():
    """24 GB, 8K, 30 tokens/s at 936 GB/s: the largest that passes, at the widest bits that pass, with reasons."""
    names = ("llama-3-70b", "llama-3-8b", "qwen2.5-14b", "qwen3-30b-a3b")
    ranked = rank([lookup(name) for name in names], Budget(24, 8192, bw_gbs=936, target_tps=30))
    assert [each.name for each in ranked] == ["Qwen3-30B-A3B", "Qwen2.5-14B", "Llama-3-8B", "Llama-3-70B"]
    assert [each.rank for each in ranked] == [0, 0, 0, 3]
    assert [each.bits for each in ranked] == [4.88, 8, 16, 4.88]
    assert ranked[3].reason == "does not fit: 46.7 of 21.6 GB"
    assert ranked[0].tokens_per_s > 5 * ranked[1].tokens_per_s


def test_context_and_speed_rank_before_size():
    """A model made for less context, or too slow, comes behind a smaller one that passes."""
    cards = [lookup(name) for name in ("phi-3-mini-128k", "llama-2-13b", "llama-2-7b", "tinyllama-1.1b")]
    ranked = rank(cards, Budget(80, 16_384, bw_gbs=200, target_tps=10))
    assert ranked[0].name == "Phi-3-mini"
    slow = rank(cards, Budget(80, 2048, bw_gbs=200, target_tps=25))
    assert [(each.name, each.rank) for each in slow] == [
        ("Llama-2-7B", 0), ("Phi-3-mini", 0), ("TinyLlama-1.1B", 0), ("Llama-2-13B", 1),
    ]  # fmt: skip
    assert (slow[3].bits, slow[3].reason) == (4.88, "about 17.9 tokens/s, 25 are wanted")


def test_a_bigger_model_at_4_bit_before_a_smaller_at_16():
    """64 GB hold 70B at 4 bit and 13B at 16."""
    ranked = rank([lookup("llama-2-13b"), lookup("llama-2-70b")], Budget(64, 4096))
    assert [(each.name, each.bits) for each in ranked] == [("Llama-2-70B", 4.88), ("Llama-2-13B", 16)]


def test_the_longest_context_fits():
    """What is said to be the longest fits, and the model's own limit is not exceeded."""
    card = lookup("qwen3-8b")
    found = rank([card], Budget(24, 8192))[0]
    assert rank([card], Budget(24, found.longest))[0].rank in (0, 2)
    assert found.longest <= (card.context or found.longest)
    with pytest.raises(CardError, match="mem_gb must be above 0"):
        Budget(-24, 8192)


def test_techniques_that_change_a_constant_or_the_order():
    """Sparse and compressed attention change the order; the others a constant."""
    orders = {each.name for each in techniques() if each.changes == "order"}
    assert orders == {"native sparse attention", "dynamic sparse attention", "compressed attention (CSA, HCA)"}
    constants = {each.name for each in techniques() if each.changes == "constant"}
    assert constants >= {"FlashAttention", "PagedAttention", "MQA and GQA", "FP4 or FP8 KV cache"}
    flash = next(each for each in techniques() if each.name == "FlashAttention")
    assert "as many operations" in flash.cost


def test_picks_by_prefill_share():
    """128K in and one sentence out is a bill of input, 2000 tokens out one of output."""
    sentence = prefill_share(20.0, 20, 0.03)
    report = prefill_share(20.0, 2000, 0.03)
    assert (round(sentence, 2), round(report, 2)) == (0.97, 0.25)
    assert choose(sentence).kind == "input-heavy"
    assert choose(sentence).picks[:2] == ("accept it", "cut the input (shorten, retrieve, cache)")
    assert "native sparse attention" in choose(sentence).picks
    assert choose(report).kind == "output-heavy"
    assert {"MQA and GQA", "PagedAttention"} <= set(choose(report).picks)
    assert "native sparse attention" not in choose(report).picks
    assert choose(0.6).kind == "mixed"


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_shares_that_cannot_be(share):
    """A share lies from 0 to 1."""
    with pytest.raises(CardError, match="lies from 0 to 1"):
        choose(share)
    with pytest.raises(CardError, match="times above 0"):
        prefill_share(0, 10, 1)
