"""The table of a ladder: what it holds for each tier, and that `loadkit analyze` reads it back to the same price."""

import json

import pytest

from loadkit.analysis.ctxscale import FIELDS, ctxscale
from loadkit.analysis.offline import table
from loadkit.analysis.offline.columns import columns_of
from loadkit.analysis.offline.mapped import records_of

MANIFEST = {
    "run_id": "r1",
    "started_at": "2026-01-01T00:00:00+00:00",
    "host": {"system": "Linux", "machine": "x86_64", "cpus": 2},
    "target": {
        "model": "m",
        "threads": 2,
        "cpu": "Some CPU",
        "blas_kernel": "Haswell",
        "prefill_mode": "sequential",
        "dimensions": {"layers": 2, "tied": True},
    },
}


def record(tier, number, ttft_ms, tpot_ms, *, prompt=None, bos=1, phase="measure", outcome="ok"):
    return {
        "tier_tokens": tier,
        "round": number,
        "phase": phase,
        "outcome": outcome,
        "prompt_tokens": prompt if outcome == "ok" else None,
        "bos_tokens": bos,
        "cached_tokens": None,
        "output_tokens": 10,
        "ttft_ms": ttft_ms,
        "tpot_ms": tpot_ms,
    }


RECORDS = [
    record(100, 0, 9000.0, 60.0, prompt=124, phase="warmup"),
    record(1500, 1, 108810.0, 73.7, prompt=1528),
    record(100, 1, 8060.0, 65.4, prompt=124),
    record(100, 2, 8200.0, 64.0, prompt=124),
    record(100, 3, 7900.0, None, prompt=124),
    record(250, 1, None, None, outcome="timeout"),
]


def test_a_row_for_each_tier_with_bos_taken_out():
    """Lengths rise, times are medians over whole answers of the measured phase, the price divides by real tokens."""
    first, second, last = ctxscale(MANIFEST, RECORDS)["records"]
    assert [row["target_tokens"] for row in (first, second, last)] == [100, 250, 1500]
    assert (first["tokens_with_bos"], first["bos_added"], first["real_tokens"]) == (124, 1, 123)
    assert (first["ttft_s"], first["tpot_ms"], first["requests"], first["ok"]) == (8.06, 64.7, 3, 3)
    assert first["unit_price_ms"] == pytest.approx(8060 / 123)
    assert first["prefill_parallelism"] == pytest.approx(64.7 / (8060 / 123))
    assert [item["round"] for item in first["rounds"]] == [1, 2, 3]
    assert (last["real_tokens"], last["ttft_s"]) == (1527, 108.81)


def test_a_tier_without_an_answer_has_no_times():
    """Null instead of a number, and the count of what was asked."""
    row = ctxscale(MANIFEST, RECORDS)["records"][1]
    assert (row["requests"], row["ok"], row["rounds"]) == (1, 0, [])
    assert {row[name] for name in ("ttft_s", "tpot_ms", "unit_price_ms", "real_tokens")} == {None}


def test_machine_and_engine_are_at_the_top():
    """What a time depends on besides the length is there once, and every column of a row is explained."""
    found = ctxscale(MANIFEST, RECORDS)
    assert found["hardware"] == "Some CPU, 2 CPUs, 2 threads"
    assert (found["prefill_mode"], found["blas_kernel"]) == ("sequential", "Haswell")
    assert found["dimensions"] == ["layers=2", "tied=True"]
    explained = {line.partition(":")[0] for line in FIELDS} | {"output_tokens", "requests", "ok"}
    assert set(found["records"][0]) == explained


def test_analyze_reads_it_back(tmp_path):
    """Its own reader finds the six columns it needs, knows BOS from the file, and gives the same unit prices."""
    path = tmp_path / "eng_ctxscale.json"
    found = ctxscale(MANIFEST, RECORDS)
    path.write_text(json.dumps(found), "utf-8")
    rows = table.read(path)
    columns = columns_of((name for row in rows for name in row), {})
    records, left_out = records_of(rows, columns, None)
    assert left_out == 0
    assert [row["unit_price_ms"] for row in records] == [
        pytest.approx(row["unit_price_ms"]) if row["ok"] else None for row in found["records"]
    ]
    assert {row["hardware"] for row in records} == {"Some CPU, 2 CPUs, 2 threads"}
    assert [row["tier_tokens"] for row in records] == [100, 250, 1500]
