"""Tier names, and how a tier at the window shrinks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.plan.errors import ConfigError
from loadkit.plan.tiers import MAX_TIER, fit_tier, parse_tier, parse_tiers, tier_name


def test_names_are_binary_multiples():
    """K is 1024 and M is 1048576; a fraction is fine where it is a whole number of tokens."""
    assert parse_tiers("4K,32K,128,1M,1.5K") == (128, 1536, 4096, 32768, 1048576)


def test_a_list_is_ascending_and_has_each_tier_once():
    """4096 and 4K are the same cell, whatever their case and place."""
    assert parse_tiers(" 8k , 4096, 4K") == (4096, 8192)


@pytest.mark.parametrize("text", ["", "4G", "K", "1.3K", "0", "-4K", "4 K", "1e3", "17M", "4K;8K", "٤K", "9" * 40])
def test_an_unknown_name_says_what_is_accepted(text):
    """The one line has the forms that work."""
    with pytest.raises(ConfigError, match=r"128, 1\.5K, 4K or 1M") as caught:
        parse_tier(text)
    assert "\n" not in caught.value.message


@given(st.integers(1, MAX_TIER))
def test_formatting_a_tier_and_reading_it_again_changes_nothing(tokens):
    """The name of a tier stands for exactly its tokens."""
    assert parse_tier(tier_name(tokens)) == tokens


@pytest.mark.parametrize(
    ("tokens", "name"), [(4096, "4K"), (1536, "1536"), (1048576, "1M"), (128, "128"), (524288, "512K")]
)
def test_the_name_is_short_only_where_it_is_exact(tokens, name):
    """1536 stays a number, for it is no whole number of K."""
    assert tier_name(tokens) == name


def test_a_tier_at_the_window_leaves_room_for_output_and_template():
    """Servers check prompt plus max_tokens: 131072 - 1024 - 64."""
    assert fit_tier(131072, 131072, 1024, 64) == 129984


@given(st.integers(1, 200_000), st.integers(1, 200_000), st.integers(1, 4096))
def test_a_fitted_prompt_is_never_longer_than_the_tier_and_always_fits(tokens, window, max_tokens):
    """Either the prompt fits with its output, or the plan is refused."""
    try:
        fitted = fit_tier(tokens, window, max_tokens)
    except ConfigError:
        assert tokens > window or window - max_tokens - 64 < 1
    else:
        assert 1 <= fitted <= tokens
        assert fitted + max_tokens + 64 <= window


def test_above_a_declared_window_is_refused_and_below_an_unknown_one_is_not():
    """Only a declared window can refuse; else the outcome tells."""
    with pytest.raises(ConfigError, match=r"tier 512K is above the endpoint's window of 128K"):
        fit_tier(524288, 131072, 128)
    assert fit_tier(524288, None, 128) == 524288
