"""Synthetic records whose summary can be worked out by hand."""

from datetime import UTC, datetime, timedelta

import pytest

from loadkit.record.record import Record

START = datetime(2026, 1, 1, tzinfo=UTC)


def build(tier, concurrency, *, at=0.0, ttft=None, tpot=10.0, output=5, prompt=None, **changed):
    """One measured request of a cell, sent `at` seconds after START; without a TTFT it carries no answer."""
    record = Record(
        run_id="run-1",
        cell=f"{tier}x{concurrency}",
        tier_tokens=tier,
        target_tokens=tier,
        concurrency=concurrency,
        round=1,
        visit=0,
        phase="measure",
        timestamp=(START + timedelta(seconds=at)).isoformat(),
        hub_lag_max_ms=0.2,
        outcome="ok" if ttft is not None else "reset",
    ).to_json()
    if ttft is not None:
        prompt = tier if prompt is None else prompt
        last = ttft + tpot * (output - 1)
        record |= {
            "ttft_ms": ttft,
            "ttft_content_ms": ttft,
            "tpot_ms": tpot,
            "e2e_ms": last,
            "last_token_ms": last,
            "done_ms": last,
            "itl_ms": [tpot] * (output - 1),
            "prompt_tokens": prompt,
            "prompt_tokens_source": "usage",
            "output_tokens": output,
            "output_tokens_source": "usage",
            "prefill_tokens_per_s": 1000 * prompt / ttft,
            "decode_tokens_per_s": 1000 / tpot,
            "unit_price_ms": ttft / prompt,
        }
    return record | changed


@pytest.fixture
def request_of():
    """Builds one record: request_of(tier, concurrency, at=seconds, ttft=ms, tpot=ms, output=tokens, **fields)."""
    return build


@pytest.fixture
def ladder():
    """Builds three rounds of a ladder at concurrency 1: ladder({tier: ttft_ms}) -> records, one visit per request."""

    def rounds(law, count=3, **changed):
        return [
            build(tier, 1, at=100 * turn + i, ttft=ttft, round=turn, visit=10 * turn + i, **changed)
            for turn in range(1, count + 1)
            for i, (tier, ttft) in enumerate(law.items())
        ]

    return rounds
