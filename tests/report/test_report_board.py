"""The board in the reports: the articles' names, what rates come to, what the board did, its throttling curve."""

import io

import pytest

from loadkit.analysis.summary import summarise
from loadkit.record.record import Record
from loadkit.report import board_table, markdown, terminal
from loadkit.report.html import tables

NAMES = ("TTFT_P50", "TTFT_P99", "ITL_P50", "ITL_P99", "Decode_TPS_P50")


def answer(i, itl, **more):
    """The answer number i of a cell of 512 tokens: one begins each 20 s."""
    begun, last = 20_000.0 * i, 400 + 8 * itl
    row = {
        "tier_tokens": 512, "concurrency": 1, "cell": "512x1", "phase": "measure", "outcome": "ok", "round": i + 1,
        "visit": 0, "worker": "w", "start_ms": begun, "ttft_ms": 400.0, "last_token_ms": last, "e2e_ms": last,
        "done_ms": last, "itl_ms": [itl] * 8, "event_read": list(range(9)), "prompt_tokens": 512,
        "prompt_tokens_source": "usage", "output_tokens": 9, "output_tokens_source": "usage", "tpot_ms": itl,
        "decode_tokens_per_s": 1000 / itl, "response_model": "Qwen2.5-1.5B-Instruct", **more,
    }  # fmt: skip
    return {**Record().to_json(), **row}


def sample(at_s, **parts):
    return {"kind": "board", "at_ms": 1000 * at_s, **parts}


@pytest.fixture
def summary():
    """Twelve minutes on an RK3588 of which the last five are slow and hot, with a power sensor and counters."""

    def make(read=True, **facts):
        hot = [i >= 21 for i in range(36)]
        records = [
            answer(i, 100.0 if warm else 59.9, server_prefill_ms=350.0, tokenize_ms=40.0) for i, warm in enumerate(hot)
        ]
        telemetry = [
            sample(
                20 * i + 1, frequency_hz={"ddr": 2112e6}, temperature_c={"soc": 86.0 if warm else 60.0},
                cooling={"cpu": int(warm)}, power_w={"in": 10.0}, counters_per_s={"a76.bus_access": 1e8},
                counted_share={"a76/bus_access/": 0.5},
            )
            for i, warm in enumerate(hot)
        ]  # fmt: skip
        target = {
            "kind": "board", "board": "rk3588", "title": "Rockchip RK3588", "device": "Radxa <b>ROCK</b> 5B",
            "runs_on": "npu", "quantisation": {"name": "w8a8_g128", "stored_bits": 8, "act_bits": 8, "group_size": 128},
            "bandwidth": {"bytes_per_s": 33.792e9, "source": "given"}, "before": {"load": {"cpu": 0.3}},
            "lock": {"targets_hz": {"ddr": 2112e6}, "not_held": ["gpu"]}, **facts,
        }  # fmt: skip
        return summarise(records, {"target": target}, telemetry if read else ())

    return make


def test_the_table_has_the_articles_names(summary):
    """On the terminal, in Markdown and in the page; p99 of 36 answers is their largest and marked."""
    made = summary()
    stream = io.StringIO()
    terminal.show(made, stream=stream, width=120)
    text = markdown.render(made)
    page = next(table for table in tables.of_findings(made) if table.name == "board")
    for name in NAMES:
        assert name in stream.getvalue()
        assert f"| {name} " in text
        assert name in page.header
    (row,) = board_table.rows(made)
    assert row == (
        "512 x 1", "36", "400", "400*", "59.9", "100*", "16.7", "77.5%", "350", "40.0 (10.0% of TTFT)",
    )  # fmt: skip
    assert page.rows[0].texts == row


def test_the_sentences_say_what_stands_behind(summary):
    """Quantisation, memory, bound, heat, clocks nobody held, what ran before, energy, and what counters cannot see."""
    said = " ".join(board_table.sentences(summary()))
    for part in (
        "w8a8_g128 (8 bit weights, 8 bit activations, groups of 128), on the npu. Memory: 33.8 GB/s, given.",
        "TTFT is the client's, over HTTP: it holds the server's tokenizer.",
        "512 x 1: decode 16.7 tokens/s of at most 21.6 (33.8 GB/s, given; 1.57 GB per token",
        "36 samples of the board, °C: soc 60.0 to 86.0; MHz: ddr 2112.",
        "Throttled: 512 x 1.",
        "Not held before the run: gpu.",
        "Its cores were 30 % busy before the run.",
        "from minute 7 at 86.0 °C decode fell from 16.7 to 10.0 tokens/s (59.9%) and stayed there.",
        "J per output token at 10.0 W (in), prefill and the board at rest included.",
        "what an NPU or GPU reads passes by them",
        "a76/bus_access/ was counted 50 % of the time.",
    ):
        assert part in said


def test_a_curve_has_a_row_for_each_minute(summary):
    """Decode and heat against time, in Markdown and in the page."""
    ((cell, minutes),) = board_table.curves(summary())
    assert (cell, len(minutes)) == ("512x1", 12)
    assert minutes[0][1:4] == ("16.7", "3", "60.0")
    assert minutes[8][1:5] == ("10.0", "3", "86.0", "1.00")
    assert "| minute | decode tokens/s |" in markdown.render(summary())
    assert any(table.name == "soak-1" for table in tables.of_findings(summary()))


def test_text_of_the_board_is_inert(summary):
    """A device tree may say anything: no markup of it is alive in the Markdown."""
    text = markdown.render(summary())
    assert "<b>" not in text


def test_a_board_that_was_not_read_says_so(summary):
    """Without samples nothing is said of heat, and how to read the board is."""
    said = " ".join(board_table.sentences(summary(read=False, lock=None)))
    assert "The board was not read" in said
    assert "°C" not in said


def test_a_run_without_a_board_has_no_such_table():
    """The part is missing, not empty."""
    made = summarise([answer(i, 60.0) for i in range(3)], {})
    assert board_table.rows(made) == []
    assert list(board_table.sentences(made)) == []
    assert "## Board" not in markdown.render(made)
