"""A capacity answer for people: every number has a unit and an explanation, and the four forms agree."""

import csv
import html
import io
import json
import re

import pytest

from loadkit.analysis.sizing.answer import answer
from loadkit.analysis.sizing.mix import parse_mix
from loadkit.analysis.sizing.question import Prices, Question
from loadkit.report.html import capacity_page
from loadkit.report.sizing import csvfile, markdown, rows, terminal
from loadkit.report.sizing.finish import finish

HOSTILE = "<img src=x onerror=alert(1)>|=cmd"


def cell(tier, streams, rate, ttft, gap=10.0):
    times = [dict.fromkeys(("p50", "p95", "mean", "min", "max"), value) for value in (ttft, gap, ttft + 10 * gap)]
    return {
        "cell": f"{tier}x{streams}", "tier_tokens": tier, "concurrency": streams, "rate": None, "n": 100, "ok": 100,
        "outcomes": {"ok": 100}, "prompt_tokens": {"median": tier}, "output_tokens": {"median": 11},
        "ttft_ms": times[0], "itl_ms": times[1], "tpot_ms": times[1], "e2e_ms": times[2], "requests_per_s": rate,
        "output_tokens_per_s": rate * 11, "prefill_ms_per_1k": 1000 * ttft / tier, "peak_in_flight": streams,
        "mean_in_flight": streams, "validity": {"status": "valid", "reasons": []},
    }  # fmt: skip


@pytest.fixture(scope="module")
def made():
    """An answer with all its parts: two tiers, prices, what-if; the run has a hostile name."""
    cells = [cell(1024, 1, 5.0, 100), cell(1024, 4, 18.0, 122), cell(1024, 8, 19.0, 321), cell(4096, 1, 2.0, 400)]
    question = Question(
        slo="ttft=300ms,itl=50ms,error_rate=1%",
        rate=27.0,
        mix=parse_mix("1K:0.8,1K/101:0.2"),
        gpu_hour=2.5,
        target_cost=5.0,
        prices=Prices("USD", 0.5, 2.0),
        what_if=("context=512",),
    )
    return answer(cells, question, source=HOSTILE, model="m")


def test_every_number_is_explained(made):
    """Each figure has a formula and inputs with units, and each numeric column of a table one of its own."""
    keys = [figure["key"] for figure in made["figures"]]
    assert len(keys) == len(set(keys))
    for figure in made["figures"]:
        assert figure["formula"], figure["key"]
        assert figure["inputs"] or figure["formula"] == "price list", figure["key"]
        assert figure["unit"] or 0 <= figure["value"] <= 1.5, figure["key"]
    text = "\n".join(f"{item.head} {item.formula} {item.inputs}" for item in rows.explained(made))
    assert all(key in text for key in keys)
    assert "1K.goodput: goodput of a replica = 18 requests/s" in text


def test_a_formula_can_be_worked_out_again_from_its_inputs(made):
    """The cost of a million output tokens from the inputs as printed."""
    (figure,) = [figure for figure in made["figures"] if figure["key"] == "1K.cost_output"]
    value = {name: float(text.split()[0].rstrip("/s")) for name, text in figure["inputs"].items()}
    again = value["price of a replica"] / (value["goodput"] * value["output tokens"] * 3600) * 1e6
    assert again == pytest.approx(figure["value"], rel=1e-4)


def test_the_terminal_fits_and_explains_on_request(made):
    """80 columns, the answer first, the formulas only with --explain."""
    plain, full = io.StringIO(), io.StringIO()
    terminal.show(made, stream=plain, width=80)
    terminal.show(made, explain=True, stream=full, width=80)
    lines = plain.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("27 requests/s take")
    assert "Every number explained" not in plain.getvalue()
    assert "= ceil(work)" in full.getvalue()
    assert full.getvalue().startswith(plain.getvalue())


def test_markdown_has_inputs_before_results_and_nothing_active(made):
    """Inputs, assumptions, then tables; the name of a run is text."""
    text = markdown.render(made)
    order = [
        text.index(f"## {title}") for title in ("Inputs", "Assumptions", "Measured loads", "Sensitivity", "What if")
    ]
    assert order == sorted(order)
    assert "<img" not in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) >= 4


def test_the_csv_has_every_load_and_every_figure_with_all_digits(made):
    """Values are those of the answer; objectives are columns with their unit."""
    found = list(csv.DictReader(io.StringIO(csvfile.render(made))))
    loads = [row for row in found if row["kind"] == "load"]
    figures = {row["key"]: row for row in found if row["kind"] == "figure"}
    assert [(float(row["load"]), float(row["ttft.p95_ms"])) for row in loads] == [
        (1, 100),
        (4, 122),
        (8, 321),
        (1, 400),
    ]
    assert [row["holds"] for row in loads] == ["True", "True", "False", "False"]
    for figure in made["figures"]:
        assert float(figures[figure["key"]]["value"]) == figure["value"]


def test_the_page_is_inert_and_has_a_chart_for_each_objective(made):
    """Charts of requests/s, TTFT and ITL with the objective as a line; the hostile name is escaped everywhere."""
    page = capacity_page.render(made)
    assert "<img src=x" not in page
    assert "default-src 'none'" in html.unescape(page)
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', page, re.S)[1])
    assert list(specs) == ["goodput", "objective_0", "objective_1"]
    rules = [layer for layer in specs["objective_0"]["layer"] if layer["mark"]["type"] == "rule"]
    assert [layer["data"]["values"] for layer in rules] == [[{"value": 300.0}]]
    drawn = [
        row for layer in specs["goodput"]["layer"] if layer["mark"]["type"] == "line" for row in layer["data"]["values"]
    ]
    assert {(row["tier"], row["load"]) for row in drawn} == {("1K", 1), ("1K", 4), ("1K", 8), ("4K", 1)}
    for name in specs:
        assert f'id="chart-{name}"' in page


def test_four_files_are_written(made, tmp_path):
    """JSON, CSV, Markdown and HTML, of one answer, into a folder that is made."""
    files = finish(made, tmp_path / "new")
    assert [path.name for path in files] == ["capacity.json", "capacity.csv", "capacity.md", "capacity.html"]
    assert json.loads(files[0].read_text()) == json.loads(json.dumps(made))
    assert files[2].read_text() == markdown.render(made)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (7, "7"),
        (1.62874, "1.6287"),
        (12345.678, "12346"),
        (0.00085274, "0.00085274"),
        (1e-7, "1e-07"),
    ],
)
def test_numbers_keep_five_digits(value, text):
    """Goodput is compared digit by digit, so three are too few."""
    assert rows.exact(value) == text
