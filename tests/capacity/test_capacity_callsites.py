"""What a prompt log spends, and what less input or another model saves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.capacity.callsites import Call, Counter, call, common, sites
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.errors import CardError
from loadkit.capacity.whatif import Price, cached_s, nearest, price_ratios, stuffing, ttft_s

WORDS = Counter(lambda text: len(text.split()), "local_tokenizer")
PREFIX = " ".join(f"rule{number}" for number in range(600)) + " "


def words(count, letter):
    return " ".join(f"{letter}{number}" for number in range(count))


def log():
    """100 calls with 600 shared tokens of 800, 40 of another template, 5 of a third."""
    long = [Call(PREFIX + words(200, f"{chr(97 + number % 26)}{number}x")) for number in range(100)]
    short = [
        Call(f"Translate the text between the marks into French and keep its layout: {number}") for number in range(40)
    ]
    rare = [Call(f"Summarise: {words(300, f's{number}')}", template="summary") for number in range(5)]
    return [*rare, *short, *long]


def test_the_most_frequent_template_comes_first():
    """Three templates; the top one with its tokens, its wait at 71.3 ms per token, and 75 % shared."""
    found = sites(log(), WORDS, prices={None: 71.3})
    assert [each.calls for each in found] == [100, 40, 5]
    top = found[0]
    assert (top.tokens, top.prefix_tokens, top.prefix_share) == (800, 600, 0.75)
    assert top.ttft_s == pytest.approx(800 * 0.0713)
    assert top.saved_s == pytest.approx(600 * 0.0713)
    assert top.cacheable
    assert len({each.template for each in found}) == 3
    assert found[2].name == "summary"
    assert [each.source for each in found] == ["local_tokenizer"] * 3


def test_without_a_price_there_are_tokens_only():
    """No wait is made up."""
    assert [(each.ttft_s, each.saved_s) for each in sites(log(), WORDS)] == [(None, None)] * 3


def test_a_log_without_a_common_beginning():
    """Three templates share nothing that a server could cache; one of them alone does."""
    whole = common(log(), WORDS, prices={None: 1.0})
    assert (whole.calls, whole.prefix_tokens, whole.cacheable) == (145, 0, False)
    assert common(log()[45:], WORDS).prefix_share == 0.75
    with pytest.raises(CardError, match="no prompt"):
        common([], WORDS)


def test_tokens_of_the_server_go_before_ours():
    """Usage counts the prompt; the prefix is then its share of the text."""
    calls = [Call("x" * 300 + letter * 100, tokens=500) for letter in "ab"]
    found = sites(calls, WORDS)[0]
    assert (found.source, found.tokens, found.prefix_tokens) == ("server_usage", 500, 375)


def test_one_call_shares_nothing():
    """A prefix is shared by two."""
    assert sites([Call("only one of this kind")], WORDS)[0].prefix_tokens == 0


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"prompt": "hi"}, Call("hi")),
        ({"request": {"prompt": "hi"}, "response": {"usage": {"prompt_tokens": 7}}}, Call("hi", 7)),
        ({"body": {"messages": [{"role": "user", "content": "hi"}]}, "site": "s"}, Call("user\nhi\n", None, "s")),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}, Call("user\nhi\n")),
        ({"prompt": "hi", "prompt_tokens": 0, "template": "t"}, Call("hi", None, "t")),
        ({"prompt": "hi", "usage": {"prompt_tokens": "many"}}, Call("hi")),
        ({"prompt": "hi", "prompt_tokens": 10**400}, Call("hi")),
        ({"prompt": "a\ud800b"}, Call("a?b")),
    ],
    ids=["prompt", "nested", "messages", "parts", "zero", "words", "beyond belief", "half a character"],
)
def test_lines_of_a_log(row, found):
    """Requests of either API, alone or with their response."""
    assert call(row) == found


@pytest.mark.parametrize("row", [{}, {"prompt": 5}, {"messages": []}, {"messages": ["hi"]}, {"messages": 5}], ids=str)
def test_lines_without_a_prompt(row):
    """They are named, so that a reader can count them."""
    with pytest.raises(CardError, match="no `prompt` and no `messages`"):
        call(row)


@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=12))
def test_every_call_is_in_one_group(texts):
    """Groups partition the log, and a shared prefix is never more than the whole prompt."""
    counter = Counter(len, "local_tokenizer")
    found = sites([Call(text) for text in texts], counter)
    assert sum(each.calls for each in found) == len(texts)
    assert all(0 <= each.prefix_share <= 1 for each in found)


def test_stuffing_against_retrieval():
    """12000 against 1500 tokens at 71.3 ms: 748.7 s; half the input is half the wait."""
    saving = stuffing(12_000, 1500, Price(71.3))
    assert saving.saved_s == pytest.approx(748.65)
    assert saving.share == pytest.approx(0.875)
    assert stuffing(1528, 764, Price(71.3)).instead_s == pytest.approx(54.47, abs=0.01)
    with pytest.raises(CardError, match="must be the shorter one"):
        stuffing(100, 200, Price(1))


def test_a_card_carries_a_price_to_other_lengths():
    """Attention makes a long prompt dearer per token: 71.3 ms at 1527 tokens become more at 12000."""
    card = lookup("qwen2.5-0.5b")
    assert ttft_s(1527, Price(71.3, 1527), card) == pytest.approx(108.875, abs=0.01)
    assert ttft_s(12_000, Price(71.3, 1527), card) > 1.4 * ttft_s(12_000, Price(71.3))
    saving = stuffing(12_000, 1500, Price(71.3, 1527), card)
    assert saving.how == "operations of Qwen2.5-0.5B"
    assert cached_s(12_000, 6000, Price(71.3, 1527), card) < 0.5 * saving.ttft_s
    assert cached_s(12_000, 0, Price(71.3, 1527), card) == 0


def test_the_nearest_price_is_taken():
    """By ratio of lengths; a price of no stated length goes before all."""
    assert nearest({128: 2.0, 4096: 3.0}, 1000) == Price(3.0, 4096)
    assert nearest({128: 2.0, 4096: 3.0}, 700) == Price(2.0, 128)
    assert nearest({128: 2.0, None: 5.0}, 128) == Price(5.0)


def test_price_ratio_of_two_models():
    """The articles' 1.5B against the 0.5B, at the lengths both have."""
    found = price_ratios({539: 169.29, 1527: 184.64}, {123: 65.53, 539: 68.66, 1527: 71.26})
    assert [(each.tokens, round(each.ratio, 2)) for each in found] == [(539, 2.47), (1527, 2.59)]
    with pytest.raises(CardError, match="share no prompt length"):
        price_ratios({1: 1.0}, {2: 1.0})


PRICES = {
    "above 0 ms": lambda: Price(0),
    "a number above 0 ms per token, it is inf": lambda: Price(float("inf")),
    "no unit price": lambda: nearest({}, 5),
    "at least one token": lambda: ttft_s(0, Price(1)),
    "shorter than its prompt": lambda: cached_s(10, 10, Price(1)),
}


@pytest.mark.parametrize("message", PRICES)
def test_prices_and_lengths_that_cannot_be(message):
    """Each is named."""
    with pytest.raises(CardError, match=message):
        PRICES[message]()
