"""`loadkit run` without a URL: the embedded engine with its built-in model, and the same numbers on every page.

The table is read as a person reads it, and held against a computation from the records that shares nothing with ours.
"""

import json
import math
import re
from collections import Counter

import pytest

TIERS, CONCURRENCY, ROUNDS, OUTPUT_TOKENS = (64, 128, 256), (1, 2), 3, 16
CELLS = [(tier, streams) for tier in TIERS for streams in CONCURRENCY]
COLUMNS = (
    "n", "ok", "prompt_tokens", "ttft_p50", "ttft_p90", "ttft_max", "tpot_p50", "e2e_p50", "prefill_tokens_per_s",
    "decode_tokens_per_s", "unit_price_ms", "prefill_ms_per_1k", "prefill_share", "requests_per_s",
    "output_tokens_per_s", "total_tokens_per_s", "peak_in_flight", "errors", "queue_p50", "server_prefill_p50",
    "rest_p50", "parts_n",
)  # fmt: skip
ROW = re.compile(r"^ *(64|128|256)( [?!])? +([12]) +(.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def ladder(loadkit_run, tmp_path_factory):
    """Three tiers at one and two streams, no weights in reach, a wide terminal."""
    out = tmp_path_factory.mktemp("embedded")
    words = ["--tiers", "64,128,256", "--concurrency", "1,2", "--rounds", str(ROUNDS)]
    done, records, summary = loadkit_run(out, *words, LOADKIT_WEIGHTS="no-such-file", COLUMNS="300")
    return done, records, summary, json.loads((out / "latest" / "manifest.json").read_text())


def nearest_rank(values, share):
    """The smallest value with at least this share of all values at or below it."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def computed(records, tier, streams):
    """The row of a cell from its records alone."""
    rows = [r for r in records if (r["tier_tokens"], r["concurrency"], r["phase"]) == (tier, streams, "measure")]
    ok = [r for r in rows if r["outcome"] == "ok"]
    ttft, tpot, e2e = ([r[name] for r in ok] for name in ("ttft_ms", "tpot_ms", "e2e_ms"))
    return {
        "n": len(rows),
        "ok": len(ok),
        "prompt_tokens": tier,
        "ttft_p50": nearest_rank(ttft, 0.5),
        "ttft_p90": nearest_rank(ttft, 0.9),
        "ttft_max": max(ttft),
        "tpot_p50": nearest_rank(tpot, 0.5),
        "e2e_p50": nearest_rank(e2e, 0.5),
        "prefill_tokens_per_s": nearest_rank([1000 * tier / value for value in ttft], 0.5),
        "decode_tokens_per_s": nearest_rank([1000 / value for value in tpot], 0.5),
        "unit_price_ms": nearest_rank([value / tier for value in ttft], 0.5),
        "prefill_ms_per_1k": nearest_rank([1000 * value / tier for value in ttft], 0.5),
        "prefill_share": nearest_rank([a / b for a, b in zip(ttft, e2e, strict=True)], 0.5),
    }


def parts_of_ttft(records, tier, streams):
    """Where the TTFT of a cell went, by what the engine states in its records, and how many of them state it."""
    ok = [r for r in records if (r["tier_tokens"], r["concurrency"], r["phase"]) == (tier, streams, "measure")]
    queue, prefill = ([r[f"server_{name}_ms"] for r in ok] for name in ("queue", "prefill"))
    rest = [r["ttft_ms"] - r["server_queue_ms"] - r["server_prefill_ms"] for r in ok]
    named = {"queue_p50": queue, "server_prefill_p50": prefill, "rest_p50": rest}
    return {name: nearest_rank(values, 0.5) for name, values in named.items()} | {"parts_n": len(ok)}


def test_the_run_says_what_it_loaded_and_how_it_ended(ladder):
    """Exit code 0 (or 6 where the machine was too busy, which the summary then says); the built-in model is named."""
    done, _, summary, manifest = ladder
    assert done.returncode in (0, 6), done.stderr
    assert summary["exit_code"] == done.returncode
    assert "source builtin" in done.stderr.splitlines()[0]
    assert manifest["target"]["source"] == "builtin"
    assert summary["growth"]["sentence"] in " ".join(done.stdout.split())
    assert done.stdout.splitlines()[-1].startswith("Run folder: ")


def test_every_request_of_every_cell_is_recorded(ladder):
    """Measured: rounds x streams a cell. Warm-up: one a stream. Drain: only where there are several streams."""
    _, records, _, manifest = ladder
    seen = Counter((r["tier_tokens"], r["concurrency"], r["phase"]) for r in records)
    for tier, streams in CELLS:
        assert seen[tier, streams, "measure"] == ROUNDS * streams
        assert seen[tier, streams, "warmup"] >= streams
        assert (seen[tier, streams, "drain"] > 0) == (streams > 1)
    assert {visit["state"] for visit in manifest["visits"]} == {"done"}
    assert len(manifest["visits"]) == len(TIERS) * ROUNDS + len(TIERS)
    assert len({r["request_id"] for r in records}) == len(records)


def test_prompts_are_exact_and_answers_whole(ladder):
    """The engine counts the tier's tokens in each prompt, none cached, and writes all sixteen tokens."""
    _, records, _, _ = ladder
    for record in records:
        assert record["outcome"] == "ok"
        assert (record["prompt_tokens"], record["prompt_tokens_source"]) == (record["tier_tokens"], "usage")
        assert (record["cached_tokens"], record["output_tokens"]) == (0, OUTPUT_TOKENS)
    assert len({r["prompt_sha256"] for r in records}) == len(records)


def test_the_printed_table_is_the_records(ladder):
    """Every cell is a row; each number is the computed one to the three digits that are printed."""
    done, records, _, _ = ladder
    rows = {(int(tier), int(streams)): rest.split() for tier, _, streams, rest in ROW.findall(done.stdout)}
    assert sorted(rows) == CELLS
    for cell, texts in rows.items():
        printed = dict(zip(COLUMNS, texts, strict=True))
        for name, value in (computed(records, *cell) | parts_of_ttft(records, *cell)).items():
            shown = float(printed[name].rstrip("%")) / (100 if printed[name].endswith("%") else 1)
            assert shown == pytest.approx(value, rel=0.006), (cell, name)
        assert printed["errors"] == "-"
        assert int(printed["peak_in_flight"]) == cell[1]


def test_the_summary_is_the_records(ladder):
    """summary.json has the same values unrounded, and the throughputs follow from its own window."""
    _, records, summary, _ = ladder
    assert [(cell["tier_tokens"], cell["concurrency"]) for cell in summary["cells"]] == CELLS
    for cell in summary["cells"]:
        row = computed(records, cell["tier_tokens"], cell["concurrency"])
        flat = {**cell, **{f"{name}_{q}": cell[f"{name}_ms"][q]
                           for name in ("ttft", "tpot", "e2e") for q in ("p50", "p90", "max")}}  # fmt: skip
        flat["prompt_tokens"] = cell["prompt_tokens"]["median"]
        assert {name: flat[name] for name in row} == pytest.approx(row, rel=1e-9)
        assert cell["requests_per_s"] * cell["window_s"] == pytest.approx(cell["n"])
        assert cell["output_tokens_per_s"] == pytest.approx(OUTPUT_TOKENS * cell["requests_per_s"])
        whole = cell["tier_tokens"] + OUTPUT_TOKENS
        assert cell["total_tokens_per_s"] == pytest.approx(whole * cell["requests_per_s"])
