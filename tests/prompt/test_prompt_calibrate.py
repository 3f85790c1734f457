import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.prompt.calibrate import Calibration, calibrate, first_words, overhead_tokens, words
from loadkit.prompt.filler import filler


def test_two_probes_give_price_and_overhead() -> None:
    """Template and BOS cancel in the difference of two probes: 100 words 141 tokens, 1100 words 1341."""
    assert calibrate([100, 1100], [141, 1341]) == Calibration(tokens_per_word=1.2, overhead_tokens=21)


@given(st.integers(1, 40), st.integers(0, 500), st.integers(1, 500), st.integers(1, 5000))
def test_calibration_finds_the_law_of_a_server(price: int, overhead: int, short: int, more: int) -> None:
    """Whatever the price and overhead of a linear server are, two probes give them back."""
    counts = [short, short + more]
    found = calibrate(counts, [price * n + overhead for n in counts])
    assert found.tokens_per_word == pytest.approx(price)
    assert found.overhead_tokens == overhead


@pytest.mark.parametrize(("counts", "tokens"), [((5, 5), (10, 20)), ((9, 5), (10, 20)), ((5, 9), (20, 20))])
def test_probes_that_say_nothing_are_refused(counts: tuple[int, int], tokens: tuple[int, int]) -> None:
    """Equal or swapped lengths, and a server whose count does not grow, give an error and not a division by zero."""
    with pytest.raises(ValueError, match=r"probe|usage"):
        calibrate(counts, tokens)


def test_overhead_is_usage_less_count() -> None:
    """A ping of 12 counted tokens that the server calls 41 has 29 tokens of template and BOS."""
    assert overhead_tokens(41, 12) == 29
    assert overhead_tokens(12, 12) == 0


def test_a_foreign_tokenizer_is_noticed() -> None:
    """A server cannot read fewer tokens than the text has; then the tokenizer is the wrong one."""
    with pytest.raises(ValueError, match="not the server's tokenizer"):
        overhead_tokens(11, 12)


def test_words_are_words_or_wide_characters() -> None:
    """Spaces part words; Chinese characters count one by one, also beside ASCII."""
    assert words("one  two\nthree") == 3
    assert words("画于1791年，把") == 6
    assert words(" \n") == 0


@pytest.mark.parametrize("name", ["en", "zh"])
@pytest.mark.parametrize("n", [1, 100, 1100, 5000])
def test_a_probe_has_exactly_the_words_asked_for(name: str, n: int) -> None:
    """Probe texts hold the number of words they are named for, also beyond the length of the filler."""
    assert words(first_words(filler(name).text, n)) == n


def test_a_probe_needs_words() -> None:
    """A text of spaces cannot be a probe."""
    with pytest.raises(ValueError, match="words"):
        first_words("  ", 3)
