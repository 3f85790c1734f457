"""A small run on disk, with answers and failures, to be reported."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from loadkit.analysis.summary import summarise
from loadkit.record.record import Record

START = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = "slow \x1b[31mdown\u202e [link](http://x) | `code` <script>alert(1)</script>\nsecond *line*"


def build(tier, concurrency, at, ttft=None, *, tpot=25.0, output=16, **changed):
    """One measured request; without a TTFT it is a rate_limited refusal with hostile text."""
    record = Record(
        run_id="run-7",
        cell=f"{tier}x{concurrency}",
        tier_tokens=tier,
        target_tokens=tier,
        concurrency=concurrency,
        round=1,
        visit=0,
        phase="measure",
        timestamp=(START + timedelta(seconds=at)).isoformat(),
        hub_lag_max_ms=0.2,
        outcome="ok",
    ).to_json()
    if ttft is None:
        return record | {"outcome": "rate_limited", "http_status": 429, "error_message": HOSTILE} | changed
    last = ttft + tpot * (output - 1)
    return record | {
        "ttft_ms": ttft,
        "tpot_ms": tpot,
        "e2e_ms": last,
        "last_token_ms": last,
        "done_ms": last,
        "itl_ms": [tpot] * (output - 1),
        "prompt_tokens": tier,
        "prompt_tokens_source": "usage",
        "output_tokens": output,
        "output_tokens_source": "usage",
        "prefill_tokens_per_s": 1000 * tier / ttft,
        "decode_tokens_per_s": 1000 / tpot,
        "unit_price_ms": ttft / tier,
        **changed,
    }


def ladder():
    """Three rounds of four tiers at concurrency 1, and 512 at 2 with refusals."""
    records = [
        build(tier, 1, 100 * turn + 20 * i, 5.13 * tier + 0.7 * tier**1.1 + turn, round=turn, visit=10 * turn + i)
        for turn in (1, 2, 3)
        for i, tier in enumerate((128, 512, 1024, 2048))
    ]
    records += [build(512, 2, 1000 + 4 * (i // 2), 3000.0 + i, tpot=41.7, round=1 + i // 2, visit=99) for i in range(6)]
    return [*records, build(512, 2, 1012, visit=99), build(512, 2, 1012, visit=99)]


@pytest.fixture
def request_of():
    """Builds one record: request_of(tier, concurrency, at seconds, ttft ms, **fields)."""
    return build


@pytest.fixture
def records():
    """The records of the small run: 18 answers, 2 refusals."""
    return ladder()


@pytest.fixture
def summary(records):
    """The summary of the small run."""
    return summarise(records)


@pytest.fixture
def run_folder(tmp_path, records):
    """Writes the small run, or other records, into a folder and returns its path."""

    def make(rows=records, tail="", manifest=None):
        path = tmp_path / "run"
        path.mkdir()
        text = "".join(json.dumps(row) + "\n" for row in [{"kind": "header"}, *rows])
        (path / "records.jsonl").write_text(text + tail)
        if manifest is not None:
            (path / "manifest.json").write_text(json.dumps(manifest))
        return path

    return make
