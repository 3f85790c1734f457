"""The terminal report: it fits, it is complete, and what it says is what the summary holds."""

import io

import pytest

from loadkit.analysis.ending import course
from loadkit.analysis.summary import summarise
from loadkit.report import bends, numbers, terminal, words


def shown(summary, width=80, encoding="utf-8"):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    terminal.show(summary, stream=stream, width=width)
    stream.flush()
    return raw.getvalue().decode(encoding)


def rows_of(text):
    """The rows of the printed tables as {title: {(tier, conc): [texts]}}."""
    found, title, inside = {}, None, False
    for line in text.splitlines():
        if line.startswith(("Latency", "Speed and price", "Load and outcomes")):
            title, inside = line.strip(), False
            found[title] = {}
        elif line.startswith("──"):
            inside = True
        elif not line.strip():
            inside = False
        elif inside:
            tier, concurrency, *texts = line.split()
            found[title][tier, int(concurrency)] = texts
    return found


def test_the_printed_table_is_the_summary(summary):
    """Every printed number, read back from the table, is that of the summary, for every cell."""
    tables = rows_of(shown(summary))
    assert list(tables) == ["Latency", "Speed and price", "Load and outcomes"]
    assert len(summary["cells"]) == 5
    for cell in summary["cells"]:
        key = (numbers.tier(cell["tier_tokens"]), cell["concurrency"])
        prompt, ttft = cell["prompt_tokens"]["median"], cell["ttft_ms"]
        expected = [cell["n"], cell["ok"], prompt, ttft["p50"], ttft["p90"], ttft["max"]]
        expected += [cell["tpot_ms"]["p50"], cell["e2e_ms"]["p50"]]
        assert [float(text) for text in tables["Latency"][key]] == pytest.approx(expected, rel=0.005)
        *speeds, share = tables["Speed and price"][key]
        expected = [cell["prefill_tokens_per_s"], cell["decode_tokens_per_s"], cell["unit_price_ms"]]
        expected += [cell["prefill_ms_per_1k"], 100 * cell["prefill_share"]]
        assert [float(text) for text in (*speeds, share.rstrip("%"))] == pytest.approx(expected, rel=0.005)
        *loads, peak = tables["Load and outcomes"][key][:4]
        expected = [cell["requests_per_s"], cell["output_tokens_per_s"], cell["total_tokens_per_s"]]
        assert [float(text) for text in loads] == pytest.approx(expected, rel=0.005)
        assert int(peak) == cell["peak_in_flight"]
    assert tables["Load and outcomes"]["512", 2][4:] == ["rate_limited", "2"]
    assert tables["Load and outcomes"]["512", 1][4:] == ["-"]


@pytest.mark.parametrize("width", [40, 80, 120, 250])
def test_tables_fit_the_width_and_lose_nothing(summary, width):
    """At any width no line is longer, nothing is cut with an ellipsis, and every value is there."""
    text = shown(summary, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for cell in summary["cells"]:
        for value in (cell["ttft_ms"]["p90"], cell["e2e_ms"]["p50"], cell["prefill_ms_per_1k"]):
            assert numbers.number(value) in text


def test_wide_terminals_join_tables(summary):
    """250 columns hold all groups in one table; 80 take three."""
    assert list(rows_of(shown(summary, 250))) == ["Latency, speed and price, load and outcomes"]


def test_a_million_tokens_and_long_times_fit_80_columns(request_of):
    """The longest plan has big numbers: still three tables within 80 columns."""
    rows = [request_of(1048576, 4, 900 * i, 2819401.7, output=128, tpot=1936.2) for i in range(3)]
    text = shown(summarise([*rows, request_of(1048576, 4, 0, outcome="context_length_exceeded")]))
    assert max(map(len, text.splitlines())) <= 80
    assert "2819402" in text
    assert "context_length_exceeded 1" in text
    assert text.count("(continued)") == 0


def test_a_terminal_that_knows_only_ascii_gets_only_ascii(summary):
    """The report can be written to a stream in ASCII."""
    text = shown(summary, encoding="ascii")
    assert numbers.number(summary["cells"][0]["unit_price_ms"]) in text
    assert "-+-" in text


def test_text_of_servers_is_inert(summary):
    """No escape sequence, no direction override, no line of its own; brackets are not markup."""
    text = shown(summary)
    assert "\x1b" not in text
    assert "\u202e" not in text
    joined = " ".join(text.split())
    assert "512 x 2: rate_limited 2 (HTTP 429): slow [31mdown [link](http://x) | `code` <script>" in joined


def test_what_is_not_valid_is_said_in_words(summary):
    """An invalid cell is marked in every table and its reason stands below; a valid run says nothing of validity."""
    assert "invalid" not in shown(summary)
    summary["cells"][0]["validity"] = {"status": "invalid", "reasons": ["1 worker lost"]}
    summary["cells"][1]["validity"] = {"status": "suspect", "reasons": ["hub lag"]}
    text = " ".join(shown(summary).split())
    assert text.count("128 ! 1") == 3
    assert text.count("512 ? 1") == 3
    assert "128 x 1 is invalid: 1 worker lost. 512 x 1 is suspect: hub lag." in text
    assert "Cells marked ! are invalid and kept out of every fit; cells marked ? are suspect." in text


@pytest.mark.parametrize(
    ("refine", "kind", "line"),
    [
        (None, "none", None),
        ({"wanted": 2, "added": 1}, "none", None),
        ({"wanted": 2, "added": 0}, "none", "--refine 2 added no tier: there is no knee to narrow."),
        (
            {"wanted": 2, "added": 0},
            "bend",
            "--refine 2 added no tier: the knee is known to half a step of the ladder.",
        ),
    ],
)
def test_refining_that_added_nothing_is_said(summary, refine, kind, line):
    """With its reason; nothing is said where it added a tier or was not asked for."""
    knee = {**summary["knee"], "length": {**(summary["knee"]["length"] or {}), "kind": kind}}
    run = course({"ended_at": "now", "visits": []})
    found = words.course({**summary, "knee": knee, "course": {**run, "refine": refine}})
    assert [text for text in found if "--refine" in text] == ([] if line is None else [line])


def test_growth_and_knee_close_the_report(summary):
    """Totals, the growth sentence, and last the sentences on knees."""
    joined = " ".join(shown(summary).split())
    last = list(bends.sentences(summary["knee"]))
    at = [joined.index(text) for text in ("Totals: 20 requests", summary["growth"]["sentence"], last[0])]
    assert at == sorted(at)
    assert summary["knee"]["sentence"] in last
    assert joined.endswith(last[-1])
    assert "output tokens 288 by usage; up to 1024 prompt tokens without an answer." in joined


def test_findings_are_told_where_they_have_a_verdict(summary, request_of):
    """Price, TPOT and reading rules in words; a run too small for a verdict is not told so three times."""
    joined = " ".join(shown(summary).split())
    assert summary["price"]["sentence"] in joined
    assert summary["tpot_across_tiers"]["sentence"] in joined
    assert "Decode is steady inside an answer in 5 of 5 cells." in joined
    assert "Refused with 429: 2 of 8 at 512 tokens x 2." in joined
    assert "No verdict on the unit price" not in shown(summarise([request_of(128, 1, 0, 800.0)]))


def test_a_run_of_errors_and_an_empty_run_are_reported(request_of):
    """All errors: a table of dashes with the outcomes. Nothing at all: one line that says so."""
    text = shown(summarise([request_of(128, 1, i) for i in range(3)]))
    assert rows_of(text)["Latency"]["128", 1] == ["3", "0", "-", "-", "-", "-", "-", "-"]
    assert "rate_limited 3" in text
    assert "No request of any cell was recorded." in shown(summarise([]))
