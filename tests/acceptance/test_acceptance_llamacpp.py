"""`loadkit run` against a real engine: what we measure from outside is what llama.cpp says of itself.

| of the record | of llama.cpp's `timings` |
|---|---|
| server_prefill_ms | prompt_ms |
| server_decode_ms / (output_tokens - 1) | predicted_per_token_ms |
| cached_tokens | cache_n |
"""

from statistics import median

import pytest

TIERS = (1024, 4096, 8192)
ROUNDS, OUTPUT_TOKENS = 5, 256
SATURATED = 6  # a busy machine may make our own event loop late; the run then says so, and the marks still hold


@pytest.fixture(scope="module")
def ladder(llamacpp, loadkit_run, tmp_path_factory):
    """Five rounds at 1K, 4K and 8K, one stream."""
    words = ["--tiers", "1K,4K,8K", "--concurrency", "1", "--rounds", str(ROUNDS), "--max-tokens", str(OUTPUT_TOKENS)]
    return loadkit_run(tmp_path_factory.mktemp("ladder"), llamacpp, *words)


@pytest.fixture(scope="module")
def measured(ladder):
    """The measured records of each tier."""
    return {tier: [r for r in ladder[1] if r["tier_tokens"] == tier and r["phase"] == "measure"] for tier in TIERS}


def test_the_run_is_whole(ladder, measured):
    """Exit code 0 (or 6 where the machine was too busy), five answers a tier at full length, no failure."""
    done, records, summary = ladder
    assert done.returncode in (0, SATURATED), done.stderr
    assert summary["exit_code"] == done.returncode
    assert [(cell["n"], cell["ok"]) for cell in summary["cells"]] == [(ROUNDS, ROUNDS)] * len(TIERS)
    assert {r["outcome"] for r in records} == {"ok"}
    assert {r["output_tokens"] for rows in measured.values() for r in rows} == {OUTPUT_TOKENS}


@pytest.mark.parametrize("tier", TIERS)
def test_prompts_are_exact_and_never_cached(measured, tier):
    """The server counts exactly the tier's tokens in every prompt, and takes none of them from a cache."""
    assert [r["prompt_tokens"] for r in measured[tier]] == [tier] * ROUNDS
    assert {r["prompt_tokens_source"] for r in measured[tier]} == {"usage"}
    assert [r["cached_tokens"] for r in measured[tier]] == [0] * ROUNDS
    assert len({r["prompt_sha256"] for r in measured[tier]}) == ROUNDS


@pytest.mark.parametrize("tier", TIERS)
def test_ttft_is_the_prefill_and_a_little_more(measured, tier):
    """Median of five: TTFT is above the server's prompt_ms by 0 to 5 %, or to 6 ms where that is more."""
    above = median(r["ttft_ms"] - r["server_prefill_ms"] for r in measured[tier])
    prefill = median(r["server_prefill_ms"] for r in measured[tier])
    assert 0 <= above <= max(0.05 * prefill, 6.0)


@pytest.mark.parametrize("tier", TIERS)
def test_tpot_is_the_time_per_predicted_token(measured, tier):
    """Median of five: TPOT is within 5 % of the server's predicted_per_token_ms, or 6 ms of the whole decode."""
    theirs = median(r["server_decode_ms"] / (r["output_tokens"] - 1) for r in measured[tier])
    assert median(r["tpot_ms"] for r in measured[tier]) == pytest.approx(theirs, rel=0.05, abs=6 / (OUTPUT_TOKENS - 1))


def test_every_token_is_one_visible_event(measured):
    """The model writes letters only, so the server holds no token back: as many events and characters as tokens."""
    rows = [r for rows in measured.values() for r in rows]
    assert {(r["token_events"], r["output_chars"]) for r in rows} == {(OUTPUT_TOKENS, OUTPUT_TOKENS)}
    assert all(r["ttft_content_ms"] == r["ttft_ms"] for r in rows)


def test_progress_events_are_no_tokens(llamacpp, loadkit_run, tmp_path):
    """With progress reports during the prefill, the first event comes long before the first token; TTFT waits."""
    words = ["--tiers", "8K", "--concurrency", "1", "--rounds", "1", "--max-tokens", "8"]
    _, records, _ = loadkit_run(tmp_path, llamacpp, *words, "--extra-body", '{"return_progress": true}')
    for record in records:
        assert record["outcome"] == "ok"
        assert record["first_byte_ms"] < 0.8 * record["server_prefill_ms"] <= record["ttft_ms"]


def test_a_prompt_above_the_window_is_named_so(llamacpp, loadkit_run, tmp_path):
    """llama.cpp's own wording of the refusal becomes context_length_exceeded with both numbers, and is not retried."""
    words = ["--tiers", "1K,12K", "--concurrency", "1", "--rounds", "3", "--max-tokens", "8"]
    done, records, summary = loadkit_run(tmp_path, llamacpp, *words)
    refused = [r for r in records if r["tier_tokens"] == 12288]
    assert {(r["outcome"], r["http_status"], r["limit_tokens"]) for r in refused} == {
        ("context_length_exceeded", 400, 9216)
    }
    assert all(len(r["attempts"]) == 1 and 12288 <= r["requested_tokens"] < 12300 for r in refused)
    assert {r["outcome"] for r in records if r["tier_tokens"] == 1024} == {"ok"}
    assert summary["cells"][1]["outcomes"] == {"context_length_exceeded": 3}
    assert done.returncode in (0, 3, SATURATED), done.stderr
