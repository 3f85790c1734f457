"""The reading rules: said where they apply, and only there."""

from loadkit.analysis.rules import readings
from loadkit.analysis.summary import summarise


def said(records, manifest=None):
    return summarise(records, manifest)["readings"]


def test_a_sound_run_of_short_answers_has_one_reading(ladder):
    """Nothing failed: only where the time goes, which is prefill at 400 ms of 440."""
    assert said(ladder({100: 100.0, 200: 200.0, 400: 400.0})) == [
        "400 tokens x 1: 90.9 % of the time is prefill: short answers to long prompts wait for the first token, "
        "and a rate over the whole request would hide it."
    ]
    assert said(ladder({100: 10.0})) == []
    assert said([]) == []


def test_429_is_a_limit_of_rate(request_of):
    """Refused with 429: how many, and that it says nothing of the length."""
    rows = [request_of(1000, 1, at=0, ttft=5.0), *(request_of(1000, 1, at=i, outcome="rate_limited") for i in (1, 2))]
    assert said(rows) == [
        "Refused with 429: 2 of 3 at 1000 tokens x 1. That is a limit of rate or concurrency and not of length: "
        "not 'unsupported'. Lower the concurrency first, then back off."
    ]


def test_many_cells_are_one_sentence(request_of):
    """Six cells with a refusal each: four are named, the others counted."""
    rows = [request_of(100 * i, 1, outcome="rate_limited") for i in range(1, 7)]
    (text,) = said(rows)
    assert "1 of 1 at 100 tokens x 1, 1 of 1 at 200 tokens x 1, " in text
    assert "1 of 1 at 400 tokens x 1, and in 2 more cells. That is a limit" in text


def test_one_timeout_is_not_unavailable(request_of):
    """One of three timed out: the others succeeded. All three: the limit first."""
    once = [request_of(1000, 1, at=i, ttft=5.0) for i in (0, 1)] + [request_of(1000, 1, at=2, outcome="ttft_timeout")]
    assert said(once) == [
        "Timed out: 1 of 3 at 1000 tokens x 1. The others succeeded: over the limit at times, not 'unavailable'."
    ]
    (text,) = said([request_of(1000, 1, at=i, outcome="ttft_timeout") for i in range(3)])
    assert text.startswith("Timed out without any answer: 3 of 3 at 1000 tokens x 1. Prefill or its queue takes longer")


def test_a_ladder_that_stops_is_checked_against_its_window_first(ladder, request_of):
    """Answers up to 128K and refusals at 256K: window, max_tokens and buffering, with the window where it is known."""
    refused = [request_of(262144, 1, at=900 + i, outcome="context_length_exceeded") for i in range(3)]
    rows = [*ladder({65536: 10.0, 131072: 20.0}), *refused]
    first, second = said(rows, {"endpoint": {"window": 262144}})
    assert first.startswith("Refused for the request itself: 3 of 3 at 262144 tokens x 1. The window (prompt + max_tok")
    assert second == (
        "Answers stop between 131072 and 262144 tokens; the window is 262144 tokens. "
        "Check the server's window, max_tokens and a buffering proxy before 'unsupported'."
    )
    assert "the window is" not in said(rows)[1]


def test_a_jump_of_ttft_is_checked_the_same_way(ladder):
    """A knee of kind break has the three checks beside it; other kinds have not."""
    cells = summarise(ladder({1000: 1.0, 2000: 1.0}))["cells"]
    knee = {"length": {"kind": "break", "ci": [1000.0, 2000.0]}}
    (text,) = readings(cells, knee, {})
    assert text.startswith("TTFT jumps between 1000 and 2000 tokens. Check the server's window, max_tokens and")
    assert readings(cells, {"length": {"kind": "hinge", "ci": [1000.0, 2000.0]}}, {}) == []


def test_decode_that_slows_down_is_to_be_measured_again(request_of):
    """The halves of the answers, and the advice to fix max_tokens."""
    gaps = [10.0 + i / 10 for i in range(100)]
    (text,) = said([request_of(100, 1, at=i, ttft=5.0, round=i + 1, itl_ms=gaps) for i in range(3)])
    assert text == (
        "100 tokens x 1: tokens get slower inside an answer (12.4 ms in its first half, 17.4 ms in its second): "
        "KV reads or interference; fix max_tokens and measure again."
    )
