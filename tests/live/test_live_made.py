"""What is made from the table: the docs page, the rules, their cases."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from loadkit.live import render
from loadkit.live.labels import CLOSED, PLACE
from loadkit.live.made import FILES
from loadkit.live.rule_tests import cases
from loadkit.live.rules import alerts, recordings
from loadkit.live.table import BY_NAME, METRICS


@pytest.mark.parametrize("name", FILES)
def test_what_is_committed_is_what_is_made(root, name):
    """`python -m loadkit.live` writes it again after a change of the table."""
    assert (root / name).read_text() == FILES[name]()


def test_the_table_keeps_to_its_own_rules():
    """Names once each, with our prefix; counters end in _total; labels are known; buckets rise and are few."""
    assert len(BY_NAME) == len(METRICS)
    open_labels = {*PLACE, "slo", "worker", "sensor", "version", "locust_version", "plan", "seed", "target", "model",
                   "protocol", "host"}  # fmt: skip
    for metric in METRICS:
        assert re.fullmatch(r"loadkit_[a-z0-9_]+[a-z0-9]", metric.name)
        assert metric.kind in ("counter", "gauge", "histogram", "info")
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert (metric.kind == "histogram") == bool(metric.bounds)
        assert set(metric.labels) <= open_labels | set(CLOSED)
        assert list(metric.bounds) == sorted(set(metric.bounds))
        assert metric.help.endswith(".")


def test_series_budget_of_a_histogram():
    """Product of the label sets times finite bounds, +Inf, sum and count."""
    assert 2 * 5 * 8 * (24 + 3) == 2160
    assert BY_NAME["loadkit_ttft_seconds"].lines == 54 + 3


def test_rules_name_only_what_the_page_has(registry):
    """Every metric in a rule is on the page, or is recorded by a rule."""
    made = registry(slo="ttft=1s")
    page = b"".join(render.pieces(made, False)).decode()
    names = {one.name for family in text_string_to_metric_families(page) for one in family.samples}
    names |= {metric.name for metric in METRICS} | {recording.record for recording in recordings()}
    for rule in (*recordings(), *alerts()):
        used = set(re.findall(r"(?:[a-z]+:)?loadkit_[a-z0-9_:]+", rule.expr))
        assert used
        assert used <= names


def test_rules_are_right(root, promtool):
    """promtool finds no fault in them."""
    code, said = promtool("check", "rules", root / "grafana/rules/loadkit.rules.yaml")
    assert code == 0, said
    assert f"{len([*recordings(), *alerts()])} rules found" in said


def test_each_alert_fires_and_does_not(root, promtool):
    """`promtool test rules` holds; every alert has a case in which it fires and one in which it must not."""
    code, said = promtool("test", "rules", "loadkit.test.yaml", cwd=root / "grafana/rules")
    assert code == 0, said
    firing = {case.alert for case in cases() if case.fires}
    quiet = {case.alert for case in cases() if not case.fires}
    assert firing == quiet == {alert.name for alert in alerts()}


def test_a_wrong_case_is_found(root, promtool, tmp_path):
    """The cases can fail: with another threshold in the rules they do."""
    rules = (root / "grafana/rules/loadkit.rules.yaml").read_text()
    (tmp_path / "loadkit.rules.yaml").write_text(rules.replace("> 0.05", "> 0.5"))
    (tmp_path / "loadkit.test.yaml").write_text((root / "grafana/rules/loadkit.test.yaml").read_text())
    assert promtool("test", "rules", "loadkit.test.yaml", cwd=tmp_path)[0] != 0
