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
    assert text.count("| ~~128 !~~ |") == 7


def test_tables_hold_the_numbers(summary):
    """One row per cell, pipes as many as the header has, the values of the summary."""
    lines = markdown.render(summary).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("| tier | conc | n | ok |"))
    table = lines[at : at + 7]
    assert {line.count("|") for line in table} == {11}
    assert table[2] == "| 128 | 1 | 3 | 3 | 128 | 804 | 805 | 805 | 25.0 | 1179 |"


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
