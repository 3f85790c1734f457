"""Knees, map and frontier as people read them: rows and sentences, the terminal's tables, and report.md."""

import io

import pytest

from loadkit.analysis.summary import summarise
from loadkit.report import bends, knee, markdown
from loadkit.report.grid import grid, unbounded, width_of

TIERS = (128, 256, 512, 1024, 1536, 2048, 3072)


@pytest.fixture
def map_of(request_of):
    """A summary of a bent ladder at concurrency 1 and one tier at some more concurrencies: map_of(levels, slo)."""

    def make(levels=(2, 4, 8), slo="ttft=100ms"):
        records = [
            request_of(
                tier, 1, 100 * turn + 10 * i, 20 + 0.1 * tier + 0.4 * max(0, tier - 1000) + turn / 10, round=turn
            )
            for turn in (1, 2, 3)
            for i, tier in enumerate(TIERS)
        ]
        records += [
            request_of(512, level, 10_000 * level + turn, 70.0 + 30 * max(0, level - 4), round=turn, visit=level)
            for level in levels
            for turn in (1, 2, 3)
            for _ in range(level)
        ]
        return summarise(records, {"plan": {"slo": slo}})

    return make


def shown(summary, width=80, **options):
    stream = io.StringIO()
    knee.show(summary, stream=stream, width=width, **options)
    return stream.getvalue()


def test_a_row_has_the_knee_with_its_unit(map_of):
    """Length first, in tokens; then both metrics of the tier with four levels, in streams."""
    rows = bends.rows(map_of()["knee"])
    assert [(row[0], row[1]) for row in rows] == [
        ("1 stream", "TTFT"), ("512 tokens", "TTFT"), ("512 tokens", "throughput"),
    ]  # fmt: skip
    assert rows[0][2] in ("hinge", "break")
    assert rows[0][3].endswith(" tokens")
    assert " to " in rows[0][4]
    assert all(len(row) == len(bends.HEADERS) for row in rows)


def test_a_row_without_a_knee_says_why(request_of):
    """The kind column carries the reason in words, the places are empty."""
    summary = summarise([request_of(tier, 1, tier, 10.0 * tier, round=1) for tier in TIERS])
    (row,) = bends.rows(summary["knee"])
    assert row[2:5] == ["none: too few rounds", "-", "-"]


def test_the_map_marks_what_is_missed_and_what_is_not_trusted(map_of):
    """TTFT of every cell, empty where nothing was measured, x where an objective is missed."""
    headers, rows = bends.ladder_map(map_of())
    assert headers == ["tier", "1", "2", "4", "8"]
    row = next(row for row in rows if row[0] == "512")
    assert [text.split()[0] for text in row[1:]] == ["71.4", "70.0", "70.0", "190"]
    assert [text.endswith(" x") for text in row[1:]] == [False, False, False, True]
    assert next(row for row in rows if row[0] == "2K")[2:] == ["", "", ""]


def test_the_frontier_is_told_tier_by_tier(map_of):
    """Up to where the objectives hold, and which one is missed next; nothing without objectives."""
    (told,) = bends.frontier(map_of()["knee"]["map"])
    assert "at 512 up to 4 streams (ttft.p95 is missed at 8)" in told
    assert "at 128 up to 1 stream, the most that could be judged" in told
    assert "at 2K at no concurrency tested (ttft.p95 is missed at 1)" in told
    assert bends.frontier(map_of(slo="")["knee"]["map"]) == []


def test_a_missing_number_is_not_a_promise():
    """Where the numbers of an objective are missing the frontier is unknown, and said to be."""
    row = {"tier_tokens": 512, "max_concurrency_ok": None, "first_broken": None, "objective": None}
    assert bends.frontier({"frontier": [row]}) == ["Where the objectives hold: at 512 not known, a number is missing."]


@pytest.mark.parametrize("width", [80, 60, 48])
def test_tables_fit_the_width(map_of, width):
    """A narrow terminal gets fewer columns of the knees and a map in parts, and every concurrency once."""
    text = shown(map_of((2, 3, 4, 8, 16, 24, 32, 64)), width)
    assert max(map(len, text.splitlines())) <= width
    heads = " ".join(line for line in text.splitlines() if line.startswith("tier ")).split()
    assert [word for word in heads if word == "24"] == ["24"]


def test_one_axis_leaves_the_other_out(map_of):
    """--axis length has no map, --axis concurrency no knee in length."""
    assert "Knees" in shown(map_of(), axis="length")
    assert "throughput" not in shown(map_of(), axis="length")
    assert "1 stream  TTFT" not in shown(map_of(), axis="concurrency")
    assert "No tier was measured at four concurrencies." in shown(map_of((2,)), axis="concurrency")


def test_report_md_has_sentence_knees_and_map(map_of):
    """The section on the knee stands before the cells, its tables are Markdown."""
    summary = map_of()
    text = markdown.render(summary)
    section = text[text.index("## Knee and growth") : text.index("## Latency")]
    assert "TTFT" in section
    assert "| at | of | kind | knee | 90 % interval | prob. | excess |" in section
    assert "| tier | 1 | 2 | 4 | 8 |" in section
    assert summary["growth"]["sentence"].split(";")[0] in section


def test_report_md_of_one_concurrency_has_no_map(request_of):
    """A map of one column is the table of cells over again."""
    summary = summarise([request_of(tier, 1, tier, 10.0 * tier, round=1) for tier in TIERS])
    assert bends.LEGEND not in markdown.render(summary)


def test_a_grid_keeps_every_character():
    """Nothing is cut or wrapped, and markup of a stranger is text."""
    table = grid(("a", "b"), [["[red]x[/red]", "y" * 200]])
    stream = io.StringIO()
    unbounded(stream).print(table)
    assert "[red]x[/red]" in stream.getvalue()
    assert "y" * 200 in stream.getvalue()
    assert width_of(table) > 200
