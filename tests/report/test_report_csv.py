"""summary.csv holds the summary, digit by digit."""

import csv
import io

import pytest

from loadkit.analysis.summary import summarise
from loadkit.report import csvfile


def test_the_csv_equals_the_summary(summary):
    """One row per cell; every leaf is found again under its dotted key with all digits."""
    rows = list(csv.DictReader(io.StringIO(csvfile.render(summary))))
    assert [row["cell"] for row in rows] == [cell["cell"] for cell in summary["cells"]]
    for row, cell in zip(rows, summary["cells"], strict=True):
        assert float(row["ttft_ms.p50"]) == cell["ttft_ms"]["p50"]
        assert [float(row["ttft_ms.ci.low"]), float(row["ttft_ms.ci.high"])] == cell["ttft_ms"]["ci"]
        assert float(row["unit_price_ms"]) == cell["unit_price_ms"]
        assert row["validity.status"] == "valid"
        assert row["outcomes.rate_limited"] == str(cell["outcomes"].get("rate_limited", ""))


def test_absent_is_empty(request_of):
    """A cell without answers has empty fields in the columns of the others, and no column of its own."""
    rows = [request_of(128, 1, 0), request_of(256, 1, 9, 50.0)]
    first, second = csv.DictReader(io.StringIO(csvfile.render(summarise(rows))))
    assert (first["ttft_ms.p50"], second["ttft_ms.p50"]) == ("", "50.0")
    assert "ttft_ms" not in first


def test_no_text_of_a_server_is_in_it(summary):
    """Error messages stay out: a spreadsheet might run them."""
    assert "script" not in csvfile.render(summary)


def test_a_run_without_cells_is_an_empty_table():
    """No cells: no rows, no exception."""
    assert csvfile.render(summarise([])).strip() == ""


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\x1b[31m =1"])
def test_a_text_is_no_formula_and_has_no_escapes(summary, text):
    """Reasons out of a foreign manifest and flags out of foreign records: no spreadsheet and no terminal obeys them."""
    cell = summary["cells"][0]
    cell["validity"], cell["flags"] = {"status": "suspect", "reasons": [text]}, {text: 3}
    rendered = csvfile.render(summary)
    assert not set(rendered) & {"\x1b", "\u202e"}
    row = next(csv.DictReader(io.StringIO(rendered)))
    assert row["validity.reasons"][0] in "'["
    assert all(not column.startswith(("=", "+", "-", "@")) for column in row)


def test_a_negative_number_stays_a_number():
    """The apostrophe is for texts."""
    assert [csvfile.inert(value) for value in (-1.5, 0, None, "ok")] == [-1.5, 0, None, "ok"]
