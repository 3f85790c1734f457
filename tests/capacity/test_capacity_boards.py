"""Claims about boards: published bands, the bound, the four causes of an excess, and what a figure can be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.capacity.boards import published
from loadkit.capacity.boards.bench import bench
from loadkit.capacity.boards.bound_check import Bench, check, four_causes
from loadkit.capacity.boards.reconcile import COUNTED, all_rate, explain, output_rate, parse, reconcile
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.errors import CardError
from loadkit.capacity.quant import bits
from loadkit.capacity.roofline import dram_bandwidth, weights_per_step

RK3588 = published.board("rk3588")
R1 = lookup("deepseek-r1-distill-qwen-1.5b")
ARTICLE = Bench(bytes_per_token=1.1e9, bandwidth=17e9, board=RK3588, decode=15.4545, prefill=338.3)


@pytest.mark.parametrize(
    ("board", "quant", "low", "median", "high", "rows"),
    [
        ("rk3588", "w8a8", 0.58, 0.76, 0.88, 9),
        ("rk3576", "w8a8", 0.64, 0.79, 0.88, 5),
        ("rk3576", "w4a16", 0.48, 0.67, 0.82, 6),
        ("rk3588", "w8a8_g128", 0.32, 0.37, 0.49, 3),
        ("Raspberry Pi 5", None, 0.55, 0.58, 0.66, 9),
        ("jetson-agx-orin", None, 0.31, 0.73, 0.93, 10),
        ("jetson-orin-nano", None, 0.31, 0.73, 0.93, 10),
    ],
)
def test_published_bands(board, quant, low, median, high, rows):
    """The band is that of the published rows of the board's family, at the quantisation where there are enough."""
    band = published.band(published.board(board), quant)
    assert (band.low, band.median, band.high) == pytest.approx((low, median, high), abs=0.007)
    assert band.rows == rows


def test_an_unknown_board_has_the_default_band():
    """0.5 to 0.85, and a name that is not known lists those that are."""
    assert (published.band(None).low, published.band(None).high) == (0.5, 0.85)
    with pytest.raises(CardError, match="only for rk3588, rk3576, raspberry-pi-5"):
        published.board("rk9999")


@pytest.mark.parametrize("row", [row for row in published.rows() if row.quant.startswith("w")], ids=str)
def test_bytes_per_token_are_the_cards(row):
    """Body and head at the quantisation's bits, scales counted, not the size of a file."""
    card = lookup({"Phi-3-mini-3.8B": "phi-3-mini-128k", "InternLM2-1.8B": "internlm2-1.8b"}.get(row.model, row.model))
    assert row.bytes == pytest.approx(weights_per_step(card, 1, bits(row.quant)), rel=1e-4)


def test_no_published_row_exceeds_its_board():
    """And those of models that did not fit lie below a twentieth."""
    assert all(published.efficiency(row) < 1 for row in published.rows())
    swapping = [row for board in published.boards().values() for row in board.swapping]
    assert [published.efficiency(row) < 0.05 for row in swapping] == [True, True]


def test_bandwidth_of_the_boards_with_a_known_bus():
    """64 bits at 2112 MHz make the RK3588's 33.8 GB/s, half of them the RK3576's."""
    assert RK3588.bandwidth == dram_bandwidth(max(RK3588.clocks), RK3588.bus_bits)
    assert published.board("rk3576").bandwidth == dram_bandwidth(2112e6, 32)


def test_a_rate_within_the_band():
    """16.69 tokens/s of a 1.5B at 8 bit: 76 % of the bound, as published."""
    found = check(16.69, bench(R1, "w8a8", RK3588))
    assert (found.reading, found.causes) == ("plausible", ())
    assert found.share == pytest.approx(0.762, abs=0.001)
    assert found.implied_bandwidth == pytest.approx(25.76e9, rel=0.001)
    assert found.sentence == "76% of the bound, within the published band: rk3588 w8a8 make 0.58 to 0.88 (9 rows)."


@pytest.mark.parametrize(
    ("rate", "bandwidth", "size", "board", "cause", "says"),
    [
        (16.69, 17e9, 1.544e9, RK3588, "bandwidth", "33.8 GB/s"),
        (16.69, 17e9, 1.544e9, None, "bandwidth", "twice it"),
        (42, 17e9, 1.1e9, RK3588, "model", "Qwen2-0.5B w8a8 makes 41.58 tokens/s"),
        (300, 33.792e9, 1.5e9, RK3588, "not_decode", "prompt tokens counted"),
        (14, 16.896e9, 1.5437e9, published.board("rk3576"), "bytes", "at most 1.21 GB per token, 0.78 of the 1.54"),
    ],
)
def test_above_the_bound_says_which_of_four_causes(rate, bandwidth, size, board, cause, says):
    """Bandwidth, bytes, model, or no decode at all: the first cause is one whose number exists."""
    causes = four_causes(rate, Bench(bytes_per_token=size, bandwidth=bandwidth, board=board))
    assert {each.name for each in causes} == {"bandwidth", "bytes", "model", "not_decode"}
    assert causes[0].holds
    assert causes[0].name == cause
    assert says in causes[0].text


def test_the_npu_of_the_rk3588_has_no_narrower_weights():
    """So fewer bytes are no cause there, and w4a16 is refused by name."""
    causes = {each.name: each for each in four_causes(30, bench(R1, "w8a8", RK3588))}
    assert not causes["bytes"].holds
    assert "rk3588 has no weights below 8 bits" in causes["bytes"].text
    with pytest.raises(CardError, match="no weights below 8 bits, so not with w4a16"):
        bench(R1, "w4a16", RK3588)
    assert bench(R1, "q4_0", RK3588).bytes_per_token == pytest.approx(1.5437e9 * 4.5 / 8, rel=1e-3)  # on its CPU


def test_even_prompt_tokens_are_slower():
    """Above the prefill rate nothing that counts tokens of one request explains a figure."""
    causes = {each.name: each for each in four_causes(400, bench(R1, "w8a8", RK3588))}
    assert not causes["not_decode"].holds


def test_42_and_8_5():
    """The articles' two claims: 42 is no decode rate but the 0.5B's, or prompt tokens; 8.5 has prefill averaged in."""
    high, low = reconcile([parse("42"), parse("8.5:512/29")], ARTICLE)
    assert high.check.share == pytest.approx(2.718, abs=0.001)
    assert [each.name for each in high.explanations if each.fits] == ["other_model", "prompt_counted"]
    assert "251 in and 128 out" in high.explanations[1].text
    assert high.sentence.startswith("42 tokens/s: another model: Qwen2-0.5B w8a8 makes 41.58 tokens/s")
    impossible = next(each for each in high.explanations if each.name == "prefill_averaged")
    assert not impossible.fits
    assert impossible.high == pytest.approx(15.427, abs=0.001)
    assert low.explanations[0].name == "prefill_averaged"
    assert low.explanations[0].high == pytest.approx(8.555, abs=0.005)
    assert {each.name for each in low.explanations if each.fits} >= {"group_quantisation", "half_width", "low_clock"}


def test_the_published_rates_of_the_board_are_taken():
    """A model of the same bytes has the same rates whatever its name; the source is told."""
    known = bench(R1, "w8a8", RK3588)
    assert (known.decode, known.prefill) == (16.69, 338.3)
    assert known.bytes_per_token == 1_543_714_304
    found = {each.name: each for each in explain(parse("8.5"), known)}
    assert found["half_width"].high == pytest.approx(8.345)
    assert found["low_clock"].text.startswith("memory not locked: 1068 of 2112 MHz")
    assert (found["group_quantisation"].low, found["group_quantisation"].high) == pytest.approx((7.10, 10.06), abs=0.01)
    assert found["prefill_averaged"].solved


def test_a_plain_decode_rate_is_called_one():
    """And the bandwidth figure that contradicts it is named beside."""
    answer = reconcile([parse("16.69")], bench(R1, "w8a8", RK3588, bandwidth=17e9))[0]
    assert answer.explanations[0].name == "decode"
    assert answer.check.reading == "invalid"
    assert answer.check.causes[0].name == "bandwidth"


def test_without_a_measured_decode_the_band_is_expected():
    """A model that nobody published: bound times band; and the board's bandwidth where the given one is half of it."""
    known = bench(lookup("qwen3-1.7b"), "w8a8", RK3588, bandwidth=17e9)
    found = {each.name: each for each in explain(parse("12"), known)}
    bound = 33.792e9 / known.bytes_per_token
    assert found["bandwidth_figure"].low == pytest.approx(0.5805 * bound, rel=1e-3)
    assert found["bandwidth_figure"].fits
    assert found["decode"].high == pytest.approx(17e9 / known.bytes_per_token * 0.8809, rel=1e-3)


def test_grouped_weights_are_no_explanation_of_grouped_weights():
    """A claim already labelled so is compared with its own row."""
    known = bench(lookup("qwen2-1.5b"), "w8a8_g128", RK3588)
    assert known.decode == 7.0
    assert "group_quantisation" not in {each.name for each in explain(parse("7"), known)}


@pytest.mark.parametrize("counted", COUNTED)
def test_what_was_counted_rules_the_rest_out(counted):
    """Where it is stated, no other way of counting is offered."""
    names = {each.name for each in explain(parse(f"8.5:512/29:{counted}"), ARTICLE)}
    assert (
        names & {"prompt_counted", "prefill_averaged"}
        == {
            "decode": set(),
            "output": {"prefill_averaged"},
            "all": {"prompt_counted"},
        }[counted]
    )


@pytest.mark.parametrize("text", ["", "fast", "0", "-3", "8:5", "8:0/3", "8:5/3:words", "inf", "1e999"])
def test_what_is_no_claim(text):
    """One line says how a claim is written."""
    with pytest.raises(CardError, match=r"no claim: write tokens/s|at least one prompt"):
        parse(text)


CONTRADICTIONS = {
    "bandwidth must be above 0": lambda: Bench(bandwidth=-1),
    "decode must be above 0": lambda: Bench(decode=float("nan")),
    "a decode rate must be above 0": lambda: check(0, ARTICLE),
    "a bound needs the bandwidth": lambda: check(5, Bench(bandwidth=1e9)),
    "give its quantisation": lambda: bench(R1, None, RK3588),
    "'w9z' is not known": lambda: bits("w9z"),
    "'0' is not known": lambda: bits("0"),
}


@pytest.mark.parametrize("message", CONTRADICTIONS)
def test_contradictions_are_named(message):
    """Negative figures, no bytes, a model without a quantisation."""
    with pytest.raises(CardError, match=message):
        CONTRADICTIONS[message]()


@given(st.integers(1, 30_000), st.integers(1, 5000), st.floats(5, 5000), st.floats(1, 200))
def test_counting_lies_between_its_bounds(prompt, output, prefill, decode):
    """Output over the whole time never exceeds decode; all tokens lie between decode and prefill."""
    assert output_rate(prompt, output, prefill, decode) <= decode * (1 + 1e-9)
    low, high = sorted((prefill, decode))
    assert low * (1 - 1e-9) <= all_rate(prompt, output, prefill, decode) <= high * (1 + 1e-9)


@given(st.floats(0.5, 300))
def test_solved_lengths_make_the_claim(rate):
    """Where a length is chosen, putting it back gives the figure; fitting explanations come first."""
    found = explain(parse(f"{rate:.3f}"), ARTICLE)
    fits = [each.fits for each in found]
    assert fits == sorted(fits, reverse=True)
    for each in found:
        if each.solved and each.fits and "in and" in each.text:
            words = each.text.split(": ")[1].split()
            count = all_rate if each.name == "prompt_counted" else output_rate
            made = count(float(words[0]), float(words[3]), 338.3, 15.4545)
            assert made == pytest.approx(rate, rel=0.05)
