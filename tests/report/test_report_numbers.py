"""Numbers for people: enough digits, never more, and '-' for what is absent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.report import numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (0.00001234, "1.23e-05"),
        (0.01234, "0.0123"),
        (0.5, "0.5"),
        (0.9996, "1.00"),
        (1.2345, "1.23"),
        (9.996, "10.0"),
        (12.345, "12.3"),
        (99.96, "100"),
        (123.45, "123"),
        (281940.4, "281940"),
        (-12.345, "-12.3"),
        ("failed", "failed"),
    ],
)
def test_three_digits_that_mean_something(value, text):
    """Three significant digits, all digits above 999, a dash for None, and names of values as they are."""
    assert numbers.number(value) == text


@given(st.floats(1e-4, 1e9))
def test_printing_loses_less_than_half_a_percent(value):
    """What is read back from print is within 0.5 % of the value."""
    assert float(numbers.number(value)) == pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(
    ("tokens", "text"), [(None, "-"), (128, "128"), (4096, "4K"), (1000, "1000"), (1048576, "1M"), (1536, "1536")]
)
def test_tiers_are_written_as_on_the_command_line(tokens, text):
    """Whole K and M are powers of 1024; anything else is a plain number."""
    assert numbers.tier(tokens) == text


@pytest.mark.parametrize(("ms", "text"), [(None, "-"), (850, "850 ms"), (12345, "12.3 s"), (250000, "4 min 10 s")])
def test_times_in_sentences(ms, text):
    """Milliseconds, seconds, then minutes and seconds."""
    assert numbers.duration(ms) == text


def test_counts_and_shares():
    """All digits of a count; a share as a percentage."""
    assert (numbers.count(1048576), numbers.count(None)) == ("1048576", "-")
    assert (numbers.percent(0.9344), numbers.percent(None)) == ("93.4%", "-")
