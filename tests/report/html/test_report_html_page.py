"""The page as text: its numbers, what it escapes, what it lets run, and runs with little or nothing in them."""

import base64
import hashlib
import json

import pytest

from loadkit.analysis.summary import examine
from loadkit.report import findings
from loadkit.report.columns import GROUPS, KEYS
from loadkit.report.csvfile import flat
from loadkit.report.html.page import render

GROUP_IDS = {group.title: "table-" + group.title.lower().replace(" ", "-") for group in GROUPS}


def number(text):
    """The number that a cell of a table shows, or its words."""
    try:
        return float(text)
    except ValueError:
        return text


def plainly(value):
    """A value of the summary as the page may show it: numbers as they are, anything else as one line of words."""
    return float(value) if type(value) in (int, float) else " ".join(str(value).split())


def test_every_number_of_the_summary_is_in_the_page_with_all_its_digits(run, read):
    """The table of every number, read back, is the cells of summary.json: none missing, none rounded."""
    summary, strata = run.examine()
    rows = read(render(summary, run.manifest, strata, run.telemetry)).tables["table-every-number"]
    assert rows[0][1:] == [cell["cell"] for cell in summary["cells"]]
    shown = {row[0]: row[1:] for row in rows[1:]}
    for place, cell in enumerate(summary["cells"]):
        for key, value in flat(cell):
            if key not in ("cell", "validity.reasons"):
                assert number(shown[key][place]) == plainly(value), key


def test_the_tables_for_people_are_those_of_the_other_reports(run, read):
    """Each group of columns has its table, with the same texts, one row a cell."""
    summary, strata = run.examine()
    page = read(render(summary, run.manifest, strata))
    for group in GROUPS:
        columns = (*KEYS, *group.columns)
        expected = [[column.text(cell).replace("\n", ", ").strip() for column in columns] for cell in summary["cells"]]
        assert page.tables[GROUP_IDS[group.title]][1:] == expected
    assert page.tables["table-latency"][0][:3] == ["tier", "conc", "n"]


def test_findings_and_their_tables_are_those_of_the_other_reports(run, read):
    """What is found on price, TPOT and decode is said in the page, and its tables have the same rows."""
    summary, strata = run.examine()
    page = read(render(summary, run.manifest, strata))
    said = " ".join(page.text.split())
    assert all(" ".join(line.split()) in said for line in findings.sentences(summary))
    assert page.tables["table-price"][1:] == [list(row) for row in findings.prices(summary)]
    assert page.tables["table-steps"][1:] == [list(row) for row in findings.steps(summary)]
    assert len(page.tables["table-price"]) == 6


def test_invalid_cells_are_struck_out_and_suspect_ones_marked(run, read):
    """The row of the invalid cell alone is struck; the marks are those of the other reports."""
    page = read(run.page())
    rows, struck = page.tables["table-latency"], page.struck["table-latency"]
    assert [row[0] for row, out in zip(rows, struck, strict=True) if out] == ["2K !"]
    assert [row[0] for row in rows if row[0].endswith("?")] == ["1K ?"]


def test_validity_comes_first_and_in_plain_words(run, read):
    """Before any number the page says what cannot be used, and why."""
    page = read(run.page())
    text = page.text
    assert (
        text.index("1 of 10 cells cannot be used") < text.index("2K x 2 is invalid: because") < text.index("TTFT p50")
    )
    assert [known["class"] for tag, known in page.tags if tag == "section"] == ["card verdict invalid"]


def test_a_valid_run_says_that_it_can_be_used(run, read):
    """All cells valid: one green sentence."""
    for visit in run.manifest["visits"]:
        visit["validity"] = {"status": "valid", "reasons": []}
    page = read(run.page())
    assert "These numbers can be used" in page.text
    assert [known["class"] for tag, known in page.tags if tag == "section"] == ["card verdict valid"]


def test_the_plan_the_versions_and_the_definitions_are_there(run, read):
    """What was asked of whom, with the name of the key's variable; versions; what a number means."""
    page = read(run.page())
    plan = dict(page.tables["table-plan"])
    assert (plan["Base URL"], plan["Key"], plan["Objectives"]) == (
        "http://example.invalid/v1",
        "from $LAB_KEY",
        "ttft=300ms",
    )
    assert dict(page.tables["table-versions"])["python"] == "3.11"
    assert "TTFT: from the first byte of the request sent to the first generated token." in page.text


def test_hostile_text_is_text(run, read, attack):
    """Wherever a server's words go they come back as words: no element, no script, no end of a script, no template."""
    page = run.page()
    found = read(page)
    assert [known for known, _ in found.scripts] == [{"type": "application/json", "id": "specs"}, {}]
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert "window.pwned" not in found.scripts[0][1] + found.scripts[1][1]
    message = found.tables["table-errors"][1][-1]
    assert message == attack.replace("\u2028", " ")
    assert "\u2028" not in page.split("<script>")[0]


def test_the_data_of_the_charts_cannot_end_their_element(run, read, attack):
    """A name that no run would write, out of a spoiled manifest: it stays inside the JSON, character by character."""
    run.manifest["visits"][0]["cell"] = attack
    page = run.page()
    found = read(page)
    assert len(found.scripts) == 2
    bars = json.loads(found.scripts[0][1])["visits"]["layer"][0]["data"]["values"]
    assert bars[0]["cell"] == attack
    assert not set("<>&\u2028") & set(found.scripts[0][1])
    assert "\u2028" not in page.split("<script>")[0]


def test_one_script_may_run_and_nothing_may_be_fetched(run, read):
    """The policy names the hash of the page's only script, and no source for anything else but inline data."""
    page = read(run.page())
    digest = base64.b64encode(hashlib.sha256(page.scripts[1][1].encode()).digest()).decode()
    assert page.meta["Content-Security-Policy"] == (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
    )
    loading = {"src", "srcset", "data", "poster", "background", "action"}
    assert not [(tag, known) for tag, known in page.tags if loading & set(known) or tag in ("link", "iframe", "object")]
    assert all(known["href"].startswith("#") for tag, known in page.tags if tag == "a")


def test_every_link_of_the_page_leads_somewhere(run, read):
    """The table of contents names parts that exist, and every copy button a table; no name is used twice."""
    page = read(run.page())
    names = [known["id"] for _, known in page.tags if "id" in known]
    assert len(names) == len(set(names))
    wanted = [known["href"][1:] for tag, known in page.tags if tag == "a"]
    wanted += [known["data-table"] for _, known in page.tags if "data-table" in known]
    assert set(wanted) <= set(names)


@pytest.mark.parametrize("case", ["nothing", "one_tier", "refusals"])
def test_a_poor_run_gives_an_honest_page(case, request_of, read):
    """Nothing, one request, refusals alone: a page that says so, without charts it has no data for."""
    records = {
        "nothing": [],
        "one_tier": [request_of(128, 1, 0, 50.0)],
        "refusals": [request_of(128, 1, i, round=i) for i in range(3)],
    }[case]
    summary, strata = examine(records)
    page = read(render(summary, None, strata))
    charts = {known["id"] for _, known in page.tags if known.get("class") == "chart"}
    expected = {
        "nothing": set(),
        "one_tier": {"chart-ttft", "chart-spread_ttft", "chart-spread_itl", "chart-outcomes"},
        "refusals": {"chart-outcomes"},
    }
    assert charts == expected[case]
    assert ("Nothing was measured" in page.text) is (case == "nothing")


def test_a_summary_without_samples_or_knee_gives_a_page(summary, read):
    """A summary alone, as an older run has it: medians, and no word of a knee."""
    summary["knee"] = None
    page = read(render(summary))
    specs = json.loads(page.scripts[0][1])
    assert "ttft" in specs
    assert "spread_ttft" not in specs
    assert "Knee" not in page.text


def test_a_damaged_manifest_gives_a_page(run, read):
    """Anything may stand where an object should."""
    manifest = {"endpoint": [1], "plan": "x", "visits": [{"opened_at": 3}], "versions": None, "command": {"a": 1}}
    summary, strata = run.examine()
    page = read(render(summary, manifest, strata, [{"timestamp": None}, {"timestamp": "2026-01-01T00:00:00Z"}]))
    assert "visits" not in json.loads(page.scripts[0][1])


def test_half_characters_of_a_server_do_not_reach_the_file(run):
    """A lone surrogate in a message or a manifest: the page can be written as UTF-8."""
    run.records[-1]["error_message"] = "half \ud800 a character"
    run.manifest["endpoint"]["model"] = run.manifest["command"][2] = "\udfff"
    assert b"half a character" in run.page().encode("utf-8")


def test_a_long_run_stays_a_small_page(request_of):
    """Sixty cells of many requests and hours of telemetry: under 5 MB, most of it the library."""
    records = [
        request_of(128 * tier, concurrency, at, 10.0 * tier + at, output=40)
        for tier in range(1, 16)
        for concurrency in (1, 2, 4, 8)
        for at in range(150)
    ]
    telemetry = [
        {"timestamp": f"2026-01-01T0{h}:{m:02}:{s:02}Z", "cpu": 0.1}
        for h in range(3)
        for m in range(60)
        for s in range(60)
    ]
    summary, strata = examine(records)
    assert len(render(summary, {}, strata, telemetry).encode()) < 3e6


def test_names_of_a_foreign_file_have_no_control_characters(run, read):
    """Sources and flags are of a closed set in our own records only; the page shows them as plain words."""
    for record in run.records:
        record |= {"prompt_tokens_source": "a\x1b[31m\u202eb<b>", "flags": ["c\x07\u2066d<i>"]}
    text = run.page()
    assert not set(text) & {"\x1b", "\x07", "\u202e", "\u2066"}
    page = read(text)
    assert "totals.prompt_tokens.a [31m b<b>" in page.text
    assert "flags.c d<i>" in page.text


@pytest.mark.parametrize("rate", [10**400, -1e300, float("nan"), "x", None, True], ids=lambda rate: repr(rate)[:8])
def test_an_absurd_rate_of_a_manifest_is_left_out(run, rate):
    """It is no rate, and the page is there."""
    run.manifest["plan"]["cells"] = [{"tier_tokens": 128, "concurrency": 1, "rate": rate}]
    assert "<h2" in run.page()


def test_tokens_that_took_no_time_have_no_speed(run):
    """A TPOT of zero is shown, and no speed is made of it."""
    for record in run.records:
        record |= {"tpot_ms": 0.0, "itl_ms": [0.0] * 3}
    assert "<h2" in run.page()
