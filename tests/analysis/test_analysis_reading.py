"""Values out of damaged records: what is no measurement is absent, so that no quotient of it can overflow."""

import json
import math

import pytest

from loadkit.analysis.reading import number, numbers
from loadkit.analysis.summary import summarise


@pytest.mark.parametrize(
    "value", [1e-300, -1e-300, 5e-324, 1e16, -(10**400), math.nan, math.inf, True, "1", None, [1], {}]
)
def test_what_is_no_measurement_is_absent(value):
    """Absurdly small is as absurd as absurdly large; a list with one such value is absent as a whole."""
    assert number({"x": value}, "x") is None
    assert list(numbers({"x": [5.0, value]}, "x")) in ([], [5.0, 1.0])


@pytest.mark.parametrize("value", [0, 0.0, -0.0, 1e-9, -3, 1e14])
def test_what_may_be_one_is_kept(value):
    """Zero is a number, and so is a negative one: what is wrong with it is for others to say."""
    assert number({"x": value}, "x") == value
    assert list(numbers({"x": [value]}, "x")) == [value]


@pytest.mark.parametrize("value", [0, 1e-300, 1e-15, -1e-15, 9e14, -5])
@pytest.mark.parametrize("field", ["ttft_ms", "e2e_ms", "tpot_ms", "prompt_tokens", "target_tokens", "itl_ms"])
def test_a_summary_of_absurd_values_has_no_infinity(ladder, field, value):
    """One field of every answer at an end of what is accepted, or beyond: the summary is still JSON."""
    rows = [row | {field: [value] * 4 if field == "itl_ms" else value} for row in ladder({128: 50, 256: 90, 512: 170})]
    json.dumps(summarise(rows), allow_nan=False)
