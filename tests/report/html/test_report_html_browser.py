"""The page in a real browser: it draws, stays silent, fetches nothing, and runs nothing of a server's."""

import json

import pytest

from loadkit.analysis.summary import summarise
from loadkit.report.html.page import render

PNG = b"\x89PNG\r\n"


@pytest.mark.parametrize(("dark", "width"), [(False, 1200), (True, 1200), (False, 390)])
def test_every_chart_is_drawn_without_a_word_or_a_request(run, opened, dark, width):
    """On a wide and a narrow screen, light and dark: all charts, a clean console, only the file itself loaded."""
    page = opened(run.page(), dark=dark, width=width)
    wanted = page.ask("Object.keys(JSON.parse(document.getElementById('specs').textContent))")
    assert {"ttft", "price", "map_ttft", "spread_ttft", "spread_itl", "outcomes", "visits", "lag", "cpu"} <= set(wanted)
    drawn = page.ask("[...document.querySelectorAll('.chart')].filter(c => c.querySelector('svg path')).map(c => c.id)")
    assert sorted(drawn) == sorted(f"chart-{name}" for name in wanted)
    assert page.complaints() == []
    assert [url.split("/")[-1] for url in page.requests()] == ["page0.html"]


@pytest.mark.parametrize("width", [1200, 390])
def test_nothing_is_wider_than_the_screen(run, opened, width):
    """Tables scroll in their own place; no chart is cut off, and none is a sliver."""
    page = opened(run.page(), width=width)
    assert page.ask("document.documentElement.scrollWidth") <= width
    charts = "[...document.querySelectorAll('.chart')]"
    sizes = page.ask(f"{charts}.map(c => [c.querySelector('svg').getBoundingClientRect().width, c.clientWidth])")
    assert all(0.9 * place <= svg <= place + 1 for svg, place in sizes)
    assert page.picture().startswith(PNG)


def test_the_charts_follow_the_scheme_of_the_screen(run, opened):
    """Switching from light to dark draws the charts again in other colours, on another ground."""
    page = opened(run.page())
    look = "[getComputedStyle(document.body).backgroundColor, document.querySelector('#chart-ttft svg').outerHTML]"
    before = page.ask(look)
    page.scheme(True)
    page.wait("dark")
    after = page.ask(look)
    assert before[0] != after[0]
    assert "#2468e5" in before[1]
    assert "#2468e5" not in after[1]
    assert page.complaints() == []


def test_a_browser_shows_the_numbers_of_the_summary(run, opened):
    """The cells of the table as the browser has them are those of summary.json."""
    summary, _ = run.examine()
    rows = opened(run.page()).ask(
        "[...document.getElementById('table-every-number').rows].map(r => [...r.cells].map(c => c.textContent))"
    )
    shown = {row[0]: row[1:] for row in rows}
    for key in ("p50", "p99", "mean"):
        wanted = [cell["ttft_ms"][key] for cell in summary["cells"]]
        assert [float(text) for text in shown[f"ttft_ms.{key}"]] == wanted


def test_hostile_text_does_not_run(run, opened):
    """Scripts and handlers in what servers said stay words."""
    page = opened(run.page())
    assert page.ask("typeof window.pwned") == "undefined"
    assert page.ask("document.querySelectorAll('main img, main script').length") == 0
    assert page.ask("document.body.textContent.includes('window.pwned = 1')") is True


def test_what_came_through_the_escaping_would_be_dead(run, opened):
    """The policy alone: a script put into the page does not run, and an address is not fetched."""
    page = opened(run.page())
    blocked = page.ask("""new Promise(done => {
      const found = [];
      document.addEventListener("securitypolicyviolation", event => {
        found.push(event.effectiveDirective);
        if (found.length === 2) done(found.sort());
      });
      const script = document.createElement("script");
      script.textContent = "window.pwned = 3";
      const image = document.createElement("img");
      image.src = "http://127.0.0.1:9/x.png";
      document.body.append(script, image);
    })""")
    assert blocked == ["img-src", "script-src-elem"]
    assert page.ask("typeof window.pwned") == "undefined"
    assert page.refusals() == ["csp"]


def test_a_table_is_copied_for_a_spreadsheet(run, opened):
    """The button gives the table as lines of cells with tabs between them."""
    page = opened(run.page())
    text = page.ask("""new Promise(done => {
      Object.defineProperty(navigator, "clipboard", {value: {writeText: async text => done(text)}});
      document.querySelector("button[data-table=table-latency]").click();
    })""")
    lines = [line.split("\t") for line in text.split("\n")]
    assert [line[:2] for line in lines[:3]] == [["tier", "conc"], ["128", "1"], ["128", "2"]]
    assert len({len(line) for line in lines}) == 1


def test_without_a_clipboard_the_table_is_selected(run, opened):
    """A closed clipboard leaves the table selected, which every browser copies as a table."""
    page = opened(run.page())
    selected = page.ask("""new Promise(done => {
      const refuse = async () => { throw new Error("no"); };
      Object.defineProperty(navigator, "clipboard", {value: {writeText: refuse}});
      document.addEventListener("selectionchange", () => getSelection().toString() && done(getSelection().toString()));
      document.querySelector("button[data-table=table-plan]").click();
    })""")
    assert "http://example.invalid/v1" in selected


def test_a_page_of_nothing_opens(opened, read):
    """A run without a record: no chart, no complaint."""
    text = render(summarise([]))
    page = opened(text)
    assert json.loads(read(text).scripts[0][1]) == {}
    assert page.complaints() == []
    assert page.ask("document.querySelector('.verdict h2').textContent") == "Nothing was measured"


def test_a_copied_text_is_no_formula(run, opened):
    """What a server said begins with an apostrophe where a spreadsheet would compute it; numbers stay as they are."""
    page = opened(run.page())
    text = page.ask("""new Promise(done => {
      const table = document.getElementById("table-latency");
      const said = ["=1+1", "+1+cmd|x", "-2+3", "@x", "-", "-12.3%", "+5 %", "1e-05", "-1e-05", "a=b"];
      said.forEach((word, i) => { table.rows[i % 3 + 1].cells[2 + Math.floor(i / 3)].textContent = word; });
      Object.defineProperty(navigator, "clipboard", {value: {writeText: async text => done(text)}});
      document.querySelector("button[data-table=table-latency]").click();
    })""")
    cells = [line.split("\t") for line in text.split("\n")]
    got = [cells[i % 3 + 1][2 + i // 3] for i in range(10)]
    assert got == ["'=1+1", "'+1+cmd|x", "'-2+3", "'@x", "-", "-12.3%", "+5 %", "1e-05", "-1e-05", "a=b"]
