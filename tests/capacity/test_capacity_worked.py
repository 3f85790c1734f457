"""Worked examples, group by group, through the functions of the room: published figures and derived ones."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from loadkit.analysis.growth import line
from loadkit.analysis.price import linearity
from loadkit.capacity import flops, roofline
from loadkit.capacity import kv as cache
from loadkit.capacity.advise.advice import advise
from loadkit.capacity.advise.situation import from_facts
from loadkit.capacity.advise.sources import from_run
from loadkit.capacity.advise.techniques import prefill_share
from loadkit.capacity.boards import published
from loadkit.capacity.boards.bench import bench
from loadkit.capacity.boards.bound_check import Bench, check
from loadkit.capacity.boards.reconcile import output_rate
from loadkit.capacity.card import Dimensions, LinearAttention, Mla, ModelCard, Moe, Sliding
from loadkit.capacity.catalogue import cards, lookup
from loadkit.capacity.memory import GB, GIB, Memory, fit
from loadkit.capacity.params import parameters
from loadkit.capacity.whatif import Price, cached_s, ttft_s
from loadkit.measure.timing import unit_price_ms

WORKED = json.loads((Path(__file__).parent / "worked.json").read_text())
BYTES = {value: name for name, value in cache.BYTES.items()}
NAMES = {"phi3-mini": "phi-3-mini-128k"}
ARTICLE = [(123, 8.06), (279, 18.59), (539, 37.01), (799, 54.62), (1059, 75.10), (1527, 108.81)]


def made(**dims):
    """A card of the fewest dimensions, with those that matter given."""
    plain = {"layers": 1, "hidden": 1, "heads": 1, "kv_heads": 1, "head_dim": 1, "ffn": 1, "vocab": 1, "tied": True}
    heads = {"heads": dims["kv_heads"]} if "kv_heads" in dims and "heads" not in dims else {}
    return ModelCard(name="made", source="a test", dims=Dimensions(**{**plain, **dims, **heads}))


def catalogued(given):
    """The dimensions of the catalogue's card with these layers, heads and head size; P counts norms and biases too."""
    wanted = given["L"], given["H"], given["hd"]
    known = [card.dims for card in cards().values() if card.dims]
    found = [dims for dims in known if (dims.layers, dims.heads, dims.head_dim) == wanted]
    return next(d for d in found if parameters(d).linear + parameters(d).vectors == given["P"])


def kv_per_token(given):
    """GQA, MHA and MLA, and the latent against the heads it stands for."""
    if "qk_nope" in given:
        latent = Mla(given["kv_lora_rank"], given["rope"], given["qk_nope"], given["v"])
        return cache.latent_ratio(made(heads=given["heads"], mla=latent).dims)
    kind = BYTES[given["bytes"]]
    if "kv_lora_rank" in given:
        latent = Mla(given["kv_lora_rank"], given["qk_rope_head_dim"], 1, 1)
        return cache.per_token(made(layers=given["layers"], mla=latent), kind)
    return cache.per_token(made(**{name: given[name] for name in ("layers", "kv_heads", "head_dim")}), kind)


def kv_per_sequence(given):
    """A stated growth over a length, in every unit."""
    card = ModelCard(name="stated", source="a test", params=1, kv_bytes_per_token=given["kv_per_token"])
    size = cache.per_sequence(card, given["tokens"]) * given.get("n", 1)
    return {"bytes": size, "MB": size / 1e6, "GB": size / GB, "GiB": size / GIB}


def kv_hybrid(given):
    """Windows, states and compressed layers."""
    if "v_heads" in given:
        state = LinearAttention(given["linear_layers"], 1, given["v_heads"], given["k_dim"], given["v_dim"])
        return cache.state(made(layers=given["linear_layers"], linear=state).dims, given["bytes"])
    if "csa" in given:
        entries = (given["csa"], given["kv_entry"] + given["indexer"], given["ratio_csa"])
        return cache.compressed_per_token([entries, (given["hca"], given["kv_entry"], given["ratio_hca"])])
    width = given["per_layer_token_bytes"] // (2 * 8 * 2)
    slides = Sliding(given["sliding_layers"], given["window"]) if "sliding_layers" in given else None
    layers = given.get("layers") or given["full_layers"] + given["sliding_layers"]
    return cache.per_sequence(made(layers=layers, kv_heads=8, head_dim=width, sliding=slides), given["tokens"])


def params_from_config(given):
    """Counts from the catalogue's dimensions."""
    card = lookup(NAMES.get(given["model"], given["model"]))
    counted = parameters(card.dims)
    if card.dims.moe is None:
        return counted.total
    return {"total": counted.total, "active": counted.active(card.active_embedding)}


def decode_roofline(given):
    """Bandwidth over bytes, and the ridge point."""
    if "tflops" in given:
        return roofline.ridge_point(given["tflops"] * 1e12, given["bw_tbs"] * 1e12)
    return roofline.decode_bound(given["bw_gbs"] * GB, given["gb"] * GB)


def bandwidth(given):
    """Clock x 2 x width / 8, or transfers x width / 8."""
    clock = given.get("clock_mhz") or given["mts"] / 2
    return roofline.dram_bandwidth(clock * 1e6, given["bus_bits"]) / GB


def board_efficiency(given):
    """The check of a rate against the bound."""
    known = Bench(bytes_per_token=given["bytes_per_token"], bandwidth=given["bw_gbs"] * GB)
    found = check(given["decode_tps"], known)
    return {"roofline_tps": found.bound, "efficiency": found.share, "verdict": found.reading}


def decode_batch(given):
    """One step of a batch, and the experts it reads."""
    if "E" in given:
        return roofline.experts_touched(Moe(given["E"], given["k"], 1), given["batch"])
    card = lookup("llama-3-8b")
    assert roofline.weights_per_step(card, given["batch"]) == given["weight_bytes"]
    step = roofline.decode_step(
        card, batch=given["batch"], context=given["ctx"], bytes_per_s=given["bw"], flops_per_s=given["flops"]
    )
    return {"step_ms": 1e3 * step.seconds, "tps": step.tokens_per_s}


def prefill(given):
    """Operations: utilisation, exponent, crossover, growth, and attention alone."""
    if "ttft_s" in given:
        return flops.utilisation(given["flops"], given["ttft_s"], given["peak"])
    if "a" in given:
        dims = lookup("llama-3-8b").dims
        return flops.attention(dims, given["b"]) / flops.attention(dims, given["a"])
    if "n" in given:
        return flops.local_exponent(catalogued(given), given["n"])
    dims = catalogued(given)
    return {"crossover": flops.crossover(dims), "ratio": flops.growth(dims, 8192, 131_072)}


def unit_price(given):
    """TTFT over real tokens, never over targets; slope, drift and shares of the articles' table."""
    if "target_tokens" in given:
        wrong = unit_price_ms(1e3 * given["ttft_s"], given["target_tokens"], 0, 0)
        right = unit_price_ms(1e3 * given["ttft_s"], given["real_tokens"], 0, 0)
        return {"wrong": wrong, "right": right, "error_rel": wrong / right - 1}
    if "real_tokens" in given:
        price = unit_price_ms(1e3 * given["ttft_s"], given["real_tokens"], 0, 0)
        return {"ms_per_token": price, "article_printed": price}
    if "ttft" in given:
        import numpy as np

        slope = line(np.log(given["n"]), np.log(given["ttft"]))[0]
        assert linearity(slope) == "near-linear"
        return slope
    if "tpot" in given:
        return given["tpot"] / given["price"]
    if "n_out" in given:
        return prefill_share(given["ttft_s"], given["n_out"], given["tpot_ms"] / 1e3)
    dims = lookup("qwen2.5-0.5b").dims
    (first, early), (last, late) = ARTICLE[0], ARTICLE[-1]
    causal, whole = (flops.growth(dims, first, last, kind) * first / last for kind in (True, False))
    return {"observed": late / last * first / early, "config_causal": causal, "config_full": whole}


def reconcile(given):
    """Rates of mixed counting, and published pairs."""
    if "n_in" in given:
        return output_rate(given["n_in"], given["n_out"], given["prefill_tps"], given["decode_tps"])
    if "model" in given:
        return bench(lookup(given["model"]), "w8a8", published.board("rk3588")).decode
    if "w8a8" in given:
        return {"ratio": published.group_ratios(published.board("rk3588"))["Qwen2-1.5B"]}
    cell = {"concurrency": 1, "tier_tokens": 512, "validity": {"status": "valid"}}
    return from_run({"cells": [{**cell, "tpot_ms": {"p50": given["itl_p50_ms"]}}]}, {})["measured_tps"][0]


def max_concurrency(given):
    """Most sequences, and the pool in tokens."""
    if not given:
        given = {"gpus": 1, "mem_gib": 22.49, "util": 0.92, "overhead_gib": 0.83, "weight_bytes": 14.96 * GIB}
        given |= {"kv_per_token": 131_072, "tokens": 1, "pool": True}
    name = "llama-3.3-70b" if given["gpus"] == 2 else "llama-3.1-8b"
    card = lookup(name)
    kind = "fp8" if given["kv_per_token"] < cache.per_token(card) else "bf16"
    assert cache.per_token(card, kind) == given["kv_per_token"]
    found = fit(
        card,
        Memory(given["mem_gib"] * GIB, given["gpus"], given["util"]),
        given["tokens"],
        bits=8 * given["weight_bytes"] / parameters(card.dims).total,
        kv=kind,
        overhead=given["overhead_gib"] * GIB,
        block=1,
    )
    return found.pool_tokens if "pool" in given else found.max_sequences


def prefix_cache(given):
    """What is left to wait for when a prefix is cached, at a constant price."""
    price, cached = Price(given["price_ms"]), round(given["n"] * given["hit"])
    return 1e3 * (ttft_s(given["n"], price) - cached_s(given["n"], cached, price))


def advice(given):
    """The decision table."""
    found = advise(from_facts(given))
    return {**found.as_dict()["numbers"], "layer": found.layer, "action": found.action, "route": found.route,
            "rejected": found.rejected}  # fmt: skip


GROUPS = SimpleNamespace(
    kv_per_token=kv_per_token,
    kv_quant=kv_per_token,
    kv_per_sequence=kv_per_sequence,
    kv_blocks=lambda given: cache.rounded(given["tokens"], given["block"]),
    kv_hybrid=kv_hybrid,
    params_from_config=params_from_config,
    decode_roofline=decode_roofline,
    bandwidth=bandwidth,
    board_efficiency=board_efficiency,
    decode_batch=decode_batch,
    prefill=prefill,
    unit_price=unit_price,
    reconcile=reconcile,
    max_concurrency=max_concurrency,
    prefix_cache=prefix_cache,
    advice=advice,
)
CASES = [(group, case) for group, cases in WORKED.items() for case in cases]


@pytest.mark.parametrize(("group", "case"), CASES, ids=[case["id"] for _, case in CASES])
def test_worked_example(group, case):
    """Each figure within the tolerance its source allows; words and flags exactly."""
    found, right = getattr(GROUPS, group)(case["given"]), case["right"]
    if not isinstance(right, dict):
        if isinstance(found, dict):  # a case that asks one of two figures
            found = found["crossover" if "crossover" in case["id"] else "ratio"]
        found, right = {"": found}, {"": right}
    for name, value in right.items():
        near = isinstance(value, (int, float)) and not isinstance(value, bool)
        exact = {"rel": case.get("rel", 0 if "abs" in case else 1e-12), "abs": case.get("abs", 0)}
        assert found[name] == (pytest.approx(value, **exact) if near else value), name


def test_every_row_of_the_decision_table_is_worked():
    """A01 to A19, each layer and each route among them."""
    rows = WORKED["advice"]
    assert sorted(row["id"][-3:] for row in rows) == [f"A{number:02}" for number in range(1, 20)]
    assert {"engine", "scheduling", "architecture", "weights", "measure", "none", "ask"} == {
        row["right"]["layer"] for row in rows
    }
