import math
from collections import Counter as Tally
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.prompt.counters import REMOTE_CHARS, ByteCounter, EstimateCounter, TokenizerJsonCounter
from loadkit.prompt.heads import (
    BITS,
    END,
    LETTERS,
    MAX_CHARS,
    REMOTE_CALLS,
    WORDS,
    choose_heads,
    every_pair,
    one_token_units,
)


class WordCounter:
    """Each run of letters one token, and each other sign one."""

    source, exact, max_chars = "server", True, REMOTE_CHARS

    def __init__(self, dear: str = "") -> None:
        self.calls = 0
        self._dear = set(dear.split())

    def count(self, text: str) -> int:
        self.calls += 1
        assert len(text) <= self.max_chars
        return sum(2 if word in self._dear else 1 for word in text.split())

    def bos_tokens(self) -> int | None:
        return None


class JoiningCounter:
    """Two equal neighbours are one token, so that no style of head has an even price."""

    source, exact, max_chars = "tokenizer", True, None

    def count(self, text: str) -> int:
        tight = text.replace(" ", "")
        return sum(1 for i, sign in enumerate(tight) if i == 0 or tight[i - 1] != sign)

    def bos_tokens(self) -> int | None:
        return None


class FewMergesCounter(WordCounter):
    """One token for each byte, but "he" is one: a byte-level vocabulary with a single merge, on a server."""

    def count(self, text: str) -> int:
        return len(text.encode()) - text.count("he")


@given(st.integers(1, 40))
def test_the_walk_takes_each_pair_once(n: int) -> None:
    """Every ordered pair of n units is a neighbour in the walk exactly once."""
    walk = every_pair(n)
    pairs = Tally(pairwise(walk))
    assert pairs == {(i, j): 1 for i in range(n) for j in range(n)}


@pytest.mark.parametrize("kind", ["bytes", "bpe", "crossing"])
def test_all_heads_cost_the_same_and_differ_in_the_first_block(
    kind: str, bpe: TokenizerJsonCounter, crossing: TokenizerJsonCounter
) -> None:
    """2,000 heads cost the same tokens; their first 64 characters and their first 16 tokens' worth are distinct."""
    counter = {"bytes": ByteCounter(), "bpe": bpe, "crossing": crossing}[kind]
    heads = choose_heads(counter)
    texts = [heads.text(n * 2**100 // 1999 + n) for n in range(2000)]
    assert heads.even
    assert len({counter.count(text) for text in texts}) == 1
    assert all(len(text.removesuffix(END)) <= MAX_CHARS for text in texts)
    assert all(text[0].isalnum() for text in texts)
    first_block = replace(heads, length=min(heads.length, 16 - counter.count(heads.lead)))
    blocks = {first_block.text(n * 2**100 // 1999 + n) for n in range(2000)}
    assert len(blocks) == 2000
    assert counter.count(max(blocks, key=len).removesuffix(END)) <= 16


def test_styles_suit_the_tokenizer(bpe: TokenizerJsonCounter) -> None:
    """Bytes take letters in a row, usual tokenizers words or single letters, each with 64 bits of choice."""
    solid, words, spaced = choose_heads(ByteCounter()), choose_heads(WordCounter()), choose_heads(bpe)
    assert (solid.lead, len(solid.units), solid.length) == ("", 26, 14)
    assert set(words.units) <= {" " + word for word in WORDS.split()}
    assert words.length == 11
    assert spaced.lead == "A"
    for heads in (solid, words, spaced):
        assert heads.length * math.log2(len(heads.units)) >= BITS


def test_a_byte_vocabulary_with_a_merge_still_has_even_heads() -> None:
    """Where two small letters join, capitals do not: the heads keep their price and their 64 bits in 14 tokens."""
    heads = choose_heads(FewMergesCounter())
    assert heads.even
    assert (heads.lead, heads.length) == ("", 14)
    assert {unit.lower() for unit in heads.units} == set(LETTERS)


def test_head_is_a_number_in_another_base() -> None:
    """Different numbers below units ** length give different heads: the map is one to one."""
    heads = choose_heads(ByteCounter())
    assert heads.text(0) == LETTERS[0] * 14 + END
    assert heads.text(1) == LETTERS[1] + LETTERS[0] * 13 + END
    assert heads.text(26**14 - 1) == LETTERS[25] * 14 + END
    assert heads.text(26**14) == heads.text(0)


def test_dear_units_are_sorted_out() -> None:
    """Units that cost two tokens are found among good ones, and only they are left out."""
    counter = WordCounter(dear="lamp river tea")
    units = [" " + word for word in ("iron", "lamp", "kite", "river", "salt", "tea")]
    assert sorted(one_token_units(counter, units)) == [" iron", " kite", " salt"]


def test_a_remote_counter_is_asked_a_bounded_number_of_times() -> None:
    """Even where most words are dear, a server gets a bounded number of calls, each of bounded length."""
    usual = WordCounter()
    choose_heads(usual)
    assert usual.calls <= 8
    hostile = WordCounter(dear=" ".join(WORDS.split()[::2]) + " A " + " ".join(LETTERS[::3]))
    choose_heads(hostile)
    assert hostile.calls <= 2 * REMOTE_CALLS + 10


def test_heads_without_an_even_price_say_so() -> None:
    """An estimate, or a tokenizer in which no units keep apart, gives heads that do not claim to be even."""
    assert not choose_heads(EstimateCounter(1.3)).even
    assert not choose_heads(JoiningCounter()).even


def test_filling_costs_what_is_asked(bpe: TokenizerJsonCounter) -> None:
    """What a text is filled up with costs the tokens asked for behind a word."""
    for counter in (ByteCounter(), bpe):
        heads = choose_heads(counter)
        for tokens in range(20):
            assert counter.count("the quay" + heads.filling(tokens)) == counter.count("the quay") + tokens
