"""Whether decode keeps its pace inside an answer."""

import pytest

from loadkit.analysis.strata import strata


@pytest.fixture
def pace(request_of):
    """Stability and flags of a cell of answers with these gaps (ms)."""

    def build(*answers, **changed):
        rows = [
            request_of(100, 1, at=i, ttft=50, round=i + 1, itl_ms=list(gaps), **changed)
            for i, gaps in enumerate(answers)
        ]
        (stratum,) = strata(rows)
        cell = stratum.summary()
        return cell["stability"], cell["cell_flags"]

    return build


def ramp(first, last, n=128):
    """n gaps that rise in equal steps."""
    return [first + (last - first) * i / (n - 1) for i in range(n)]


def test_a_ramp_is_a_decode_drop(pace):
    """From 20 to 40 ms over 128 gaps: halves of 25 and 35 ms, a slope of 20/127 ms per token, flag decode_drop."""
    found, flags = pace(*[ramp(20, 40)] * 3)
    assert found["first_half_tpot_ms"] == pytest.approx(24.96, abs=0.01)
    assert found["second_half_tpot_ms"] == pytest.approx(35.04, abs=0.01)
    assert found["ratio"] == pytest.approx(1.404, abs=1e-3)
    assert found["slope_ms_per_token"] == pytest.approx(20 / 127)
    assert (found["verdict"], found["reason"], found["n"]) == ("slowing", None, 3)
    assert "decode_drop" in flags


def test_a_flat_pace_is_steady(pace):
    """Equal gaps, and one long stall in one of the answers: steady, no flag."""
    found, flags = pace([20.0] * 128, [20.0] * 128, [*[20.0] * 100, 900.0, *[20.0] * 27])
    assert (found["verdict"], found["ratio"]) == ("steady", 1.0)
    assert "decode_drop" not in flags


def test_a_pace_that_rises_is_speeding(pace):
    """The other way round."""
    assert pace(*[ramp(40, 20)] * 3)[0]["verdict"] == "speeding"


def test_answers_that_disagree_are_steady(pace):
    """Two answers slow down and one does not: the interval of the median reaches down to no change."""
    assert pace(ramp(20, 40), ramp(20, 40), [20.0] * 128)[0]["verdict"] == "steady"


@pytest.mark.parametrize(
    ("answers", "changed", "reason"),
    [
        ([[20.0] * 7] * 3, {}, "too_few_tokens"),
        ([[20.0] * 64] * 2, {}, "too_few_rounds"),
        ([[20.0] * 64, [20.0] * 64, [20.0] * 32], {}, "output_lengths_differ"),
        ([[20.0] * 64] * 3, {"flags": ["bursty"]}, "bursty"),
    ],
)
def test_no_verdict_has_a_reason(pace, answers, changed, reason):
    """Short answers, few answers, answers of unequal lengths, and gaps that show a buffer."""
    found, _ = pace(*answers, **changed)
    assert (found["verdict"], found["reason"]) == (None, reason)


def test_events_of_several_tokens_count_by_their_tokens(pace):
    """Gaps that double because each event then carries two tokens are a steady pace."""
    found, _ = pace(*[[20.0] * 32 + [40.0] * 32] * 3, event_tokens=[1] * 33 + [2] * 32)
    assert (found["verdict"], found["ratio"]) == ("steady", 1.0)
