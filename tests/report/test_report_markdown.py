"""report.md: complete, and inert where text comes from a server."""

import pytest

from loadkit.analysis.summary import summarise
from loadkit.report import markdown
from loadkit.report.escape import markdown as inert
from loadkit.report.escape import plain

MANIFEST = {
    "endpoint": {"model": "m-1", "base_url": "http://h:1/v1", "key_env": "LAB_KEY"},
    "started_at": "2026-01-01T00:00:00Z",
    "versions": {"loadkit": "0.1.0", "python": "3.11"},
}


def test_the_head_has_nine_lines(summary):
    """Model, base URL, key variable, date, client, ladder, rounds, metrics, and how far the ladder got."""
    head = markdown.render(summary, MANIFEST).split("\n\n")[1].splitlines()
    assert head == [
        "- Model: m-1",
        "- Base URL: http\\://h:1/v1",
        "- Key: from \\$LAB\\_KEY",
        "- Date: 2026-01-01T00:00:00Z",
        "- Client: loadkit 0.1.0, python 3.11",
        "- Length ladder: 128, 512, 1K, 2K tokens",
        "- Answered rounds: 3",
        "- Metrics: TTFT, TPOT, ITL, E2E, prefill and decode tokens per second, unit price",
        "- Conclusion: 2K x 1 succeeded 3 of 3, TTFT p50 13.6 s",
    ]


def test_a_key_file_is_no_name_to_print(summary):
    """Where the key came from, without the path of somebody's home."""
    text = markdown.render(summary, {"endpoint": {"key_file": "/home/me/key"}})
    assert "- Key: from a file" in text
    assert "/home/me" not in text


def test_validity_comes_first(summary):
    """The verdict stands before any number; an invalid cell is struck out in every table."""
    assert markdown.render(summary).index("Every cell is valid.") < markdown.render(summary).index("| tier |")
    summary["cells"][0]["validity"] = {"status": "invalid", "reasons": ["1 worker lost"]}
    text = markdown.render(summary)
    assert "- 128 x 1 is invalid: 1 worker lost." in text
    assert text.count("| ~~128 !~~ |") == 8


def test_tables_hold_the_numbers(summary):
    """One row per cell, pipes as many as the header has, the values of the summary."""
    lines = markdown.render(summary).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("| tier | conc | n | ok |"))
    table = lines[at : at + 7]
    assert {line.count("|") for line in table} == {11}
    assert table[2] == "| 128 | 1 | 3 | 3 | 128 | 804 | 805 | 805 | 25.0 | 1179 |"


def test_price_and_pace_have_tables(summary):
    """Prices with growth, steps between tiers with their reading, and the halves of the answers."""
    lines = markdown.render(summary).splitlines()
    at = lines.index("| tier | real tokens | unit price ms/token | growth | growth by model card | TPOT / unit price |")
    assert lines[at + 2 : at + 6] == [
        "| 128 | 128 | 6.28 | 1.00 | - | 3.98 |",
        "| 512 | 512 | 6.44 | 1.03 | - | 3.88 |",
        "| 1K | 1024 | 6.53 | 1.04 | - | 3.83 |",
        "| 2K | 2048 | 6.63 | 1.06 | - | 3.77 |",
    ]
    at = lines.index("| from tokens | to tokens | exponent of TTFT | ms per further token | reading |")
    assert lines[at + 2] == "| 128 | 512 | 1.02 | 6.49 | linear: no queueing shows |"
    assert "| 128 | 1 | 25.0 | 25.0 | 1.00 | 0 | 3 | steady |" in lines
    summary["cells"][0]["validity"] = {"status": "invalid", "reasons": ["1 worker lost"]}
    text = markdown.render(summary)
    assert "| ~~128 !~~ | ~~1~~ | ~~25.0~~ | ~~25.0~~ | ~~1.00~~ | ~~0~~ | ~~3~~ | ~~steady~~ |" in text
    assert "Decode is steady inside an answer in 4 of 4 cells." in text


def test_failures_stand_beside_in_a_table_of_their_own(summary):
    """512 at 2: six answers and two refusals; p50 is an answer, p90 a failure. Other cells are not there."""
    text = markdown.render(summary)
    beside = text.split("## TTFT with failures as infinitely late in ms")[1].split("##")[0].strip().splitlines()
    assert beside[0] == "| tier | conc | p50 | p90 | p95 | p99 | n |"
    assert beside[2:] == ["| 512 | 2 | 3003 | failed | failed | failed | 8 |"]


def test_rounds_stand_beside_their_spread(summary):
    """The smallest and the largest median of a round, and how many rounds."""
    (row,) = [line for line in markdown.render(summary).splitlines() if line.startswith("| 128 | 1 | 804 |")]
    assert row.endswith("| 3 | 803..805 of 3 |")


def test_p99_of_few_samples_is_marked(summary, request_of):
    """Three samples: the p99 is the largest, and says low_n; a hundred are enough."""
    assert "| 805 (low\\_n) |" in markdown.render(summary)
    many = [request_of(128, 1, i, 800.0, round=1 + i % 3) for i in range(100)]
    ttft = markdown.render(summarise(many)).split("## TTFT in ms")[1].split("##")[0]
    assert "low" not in ttft


def test_a_foreign_schema_is_said(summary):
    """Records of another version are reported with a warning, its name inert."""
    assert "this version reads" not in markdown.render(summary)
    summary["records_schema"] = "other|records/9"
    assert "says it is other\\|records/9; this version reads loadkit-records/1" in markdown.render(summary)


@pytest.mark.parametrize("summary_of", [[], "errors"])
def test_an_empty_or_failed_run_has_a_report(request_of, summary_of):
    """No cell, or only failures: a report that says so."""
    rows = [request_of(128, 1, i) for i in range(3)] if summary_of else []
    text = markdown.render(summarise(rows))
    assert ("128 x 1 succeeded 0 of 3 (rate\\_limited 3)" if rows else "Nothing was measured.") in text


def test_text_of_servers_cannot_act(summary):
    """Markup, links, code and tags in an error message are text in the report."""
    text = markdown.render(summary)
    assert "\\[link\\](http\\://x) \\| \\`code\\` &lt;script&gt;alert(1)&lt;/script&gt; second \\*line\\*" in text
    assert "<script" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("# a", "\\# a"),
        ("- a", "\\- a"),
        ("1. a", "1\\. a"),
        ("33.3", "33.3"),
        ("www.x.y", "www\\.x.y"),
        ("a_b & c", "a\\_b &amp; c"),
        ("a\nb\u2028c\x00d", "a b c d"),
    ],
)
def test_every_sign_that_markdown_acts_on_is_escaped(text, escaped):
    """Headings, lists, links, emphasis, entities and line breaks become text."""
    assert inert(text) == escaped


def test_long_text_is_clipped():
    """A line has a limit, and says that it was cut."""
    assert plain("x" * 400) == "x" * 297 + "..."
