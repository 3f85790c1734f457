"""The live page in a real browser: it draws, stays silent, asks the exporter only, and shows what was counted."""

import random
from itertools import count

import pytest

from loadkit.live.exporter import Exporter

PNG = b"\x89PNG\r\n"
CELLS = tuple((tier, load) for tier in (128, 512, 2048) for load in (1, 4))
HOSTILE = "<img src=x onerror='window.pwned=1'></script><script>window.pwned=2</script>"
CHARTS = ("load", "rate", "ttft", "heat", "itl", "tpot", "outcomes", "price", "lag", "cpu")


@pytest.fixture
def loaded(registry, answer):
    """A registry of a run under way, with something of everything, and an exporter that serves it."""
    clock = (1000 + step / 1000 for step in count())
    made = registry(
        CELLS,
        now=clock.__next__,
        slo="ttft=2s",
        model=HOSTILE,
        protocol="openai-chat",
        host="127.0.0.1:8000",
        plan="grid",
    )
    draw = random.Random(7)
    for tier, load in CELLS:
        made.stage(f"{tier}x{load}", "open")
        for _ in range(6 * load):
            ttft = (20 + 0.4 * tier) * load**0.5 * draw.uniform(0.9, 1.2)
            gaps = [draw.uniform(18, 24) * load**0.3 for _ in range(8)]
            times = {"ttft_ms": ttft, "itl_ms": gaps, "tpot_ms": sum(gaps) / 8, "e2e_ms": ttft + sum(gaps)}
            made.observe(answer(tier_tokens=tier, concurrency=load, output_tokens=9, **times))
        made.stage(f"{tier}x{load}", "done")
    made.observe(answer(tier_tokens=2048, concurrency=4, outcome="rate_limited", http_status=429, ttft_ms=None))
    made.stage("2048x4", "open")
    sample = {"users_live": 4, "users_planned": 4, "streams_in_flight": 3, "cpu": 0.4}
    made.health({"kind": "telemetry", "worker": "p", "hub_lag_p99_ms": 0.6, "hub_lag_max_ms": 1.5, **sample})
    made.health({"kind": "server", "running": 3.0, "waiting": 1.0, "kv_usage": 0.4, "queue_ms": 2.0})
    made.health({"kind": "board", "temperature_c": {"soc": 61.0}, "power_w": {"in": 7.5}})
    exporter = Exporter(made, port=0)
    exporter.start()
    yield made, exporter
    exporter.stop()


def site(exporter):
    return exporter.url.removesuffix("metrics")


@pytest.mark.parametrize(("dark", "width"), [(False, 1200), (True, 1200), (False, 390)])
def test_everything_is_drawn_without_a_word(loaded, pages, dark, width):
    """On a wide and a narrow screen, light and dark: all charts, a clean console, and only the exporter is asked."""
    _, exporter = loaded
    page = pages(site(exporter), dark=dark, width=width)
    page.when("root.dataset.points >= 2")
    empty = page.ask("[...document.querySelectorAll('.chart')].filter(c => c.querySelector('.empty')).map(c => c.id)")
    assert empty == []
    drawn = page.ask("[...document.querySelectorAll('.chart')].map(c => c.id)")
    assert sorted(drawn) == sorted(f"chart-{name}" for name in CHARTS)
    assert page.ask("document.documentElement.scrollWidth") <= width
    assert page.complaints() == []
    assert {url for url in page.requests() if not url.startswith("data:")} == {site(exporter), exporter.url}
    assert page.picture().startswith(PNG)


def test_it_shows_what_was_counted(loaded, pages):
    """The rows of cells are the registry's: answers, exact medians of visited cells, the cell that is loaded now."""
    made, exporter = loaded
    page = pages(site(exporter))
    page.when("root.dataset.points >= 1")
    rows = page.ask("[...document.querySelectorAll('#cells tbody tr')].map(r => [...r.cells].map(c => c.textContent))")
    assert [row[:3] for row in rows] == [[str(tier), str(load), str(6 * load)] for tier, load in CELLS]
    exact = made.families["loadkit_stage_quantile_seconds"]
    for row, (tier, load) in zip(rows, CELLS, strict=True):
        number, unit = row[3].split()
        shown = float(number) / {"ms": 1e3, "s": 1}[unit]
        assert shown == pytest.approx(exact.value(("e", str(tier), str(load), "ttft", "0.5")), rel=0.06)
    assert page.ask("document.querySelector('tr.now').cells[0].textContent") == "2048"
    assert rows[-1][7] == "4 %"  # one of 25
    text = page.ask("document.body.textContent")
    for word in ("measuring", "61.0 °C", "7.5 W", "rate_limited 429", made.about.run):
        assert word in text


def test_what_others_said_is_text(loaded, pages):
    """A model's name that is markup is shown as it came through the label, and runs nothing; nor would an injected
    script."""
    _, exporter = loaded
    page = pages(site(exporter))
    page.when("root.dataset.points >= 1")
    assert page.ask("document.querySelectorAll('header img, header script').length") == 0
    blocked = page.ask("""new Promise(done => {
      document.addEventListener("securitypolicyviolation", event => done(event.effectiveDirective));
      const script = document.createElement("script");
      script.textContent = "window.pwned = 3";
      document.body.append(script);
    })""")
    assert blocked == "script-src-elem"
    assert page.ask("typeof window.pwned") == "undefined"


def test_it_follows_the_run_to_its_end(loaded, pages):
    """Verdicts and knees when they are there; then the last state stays, with a word that it is the last."""
    made, exporter = loaded
    page = pages(site(exporter))
    page.when("root.dataset.points >= 1")
    assert "the verdict comes with the report" in page.ask("document.getElementById('knee').textContent")
    made.finished()
    length = {"knee": 512.0, "probability": 0.97}
    made.summary({"cells": [], "objectives": [], "knee": {"length": length, "concurrency": []}})
    page.when("document.getElementById('knee').textContent.startsWith('TTFT bends')")
    assert page.ask("document.getElementById('knee').textContent") == "TTFT bends at 512 tokens (probability 0.97)."
    assert page.ask("document.getElementById('state').textContent") == "finished"
    exporter.stop()
    page.when("root.dataset.ended")
    assert page.ask("document.getElementById('state').textContent") == "ended: this is the last that was heard"
    assert page.ask("document.querySelectorAll('#cells tbody tr').length") == len(CELLS)
    page.ask("dispatchEvent(new Event('resize'))")
    assert page.ask("document.getElementById('state').textContent") == "ended: this is the last that was heard"


def test_its_quantiles_are_those_of_prometheus(loaded, pages):
    """Linear within a bucket, the last finite bound above it, nothing for nothing."""
    _, exporter = loaded
    page = pages(site(exporter))
    buckets = "[[0.1, 0], [0.2, 4], [0.4, 4], [0.8, 8], [Infinity, 10]]"
    for q, wanted in ((0.2, 0.15), (0.4, 0.2), (0.6, 0.6), (0.99, 0.8)):
        assert page.ask(f"Metrics.quantile({q}, {buckets})") == pytest.approx(wanted)
    assert page.ask("Metrics.quantile(0.5, [[0.1, 0], [Infinity, 0]])") is None
    read = 'Metrics.parse(\'loadkit_x{a="q\\\\\\\\u\\\\"o\\\\nte",b="}"} 2.5\\n# HELP x y\').get(\'loadkit_x\')[0]'
    assert page.ask(read) == {"labels": {"a": 'q\\u"o\nte', "b": "}"}, "value": 2.5}
