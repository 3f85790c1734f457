"""summary.csv holds the summary, digit by digit."""

import csv
import io

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
