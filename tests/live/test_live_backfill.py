"""A finished run as OpenMetrics with timestamps."""

import json
import re
import shutil
from collections import defaultdict
from itertools import groupby, pairwise

import pytest

from loadkit.cli import backfill as verb
from loadkit.live import backfill
from loadkit.live.backfill import about_of, moments
from loadkit.plan.errors import ConfigError
from loadkit.record.errors import FolderError

MANIFEST = {
    "schema": "loadkit-manifest/1",
    "run_id": "r1-20260101T000000",
    "plan": {"name": "grid", "seed": 1, "slo": "", "cells": [{"tier_tokens": 4096, "concurrency": 1}]},
    "endpoint": {"name": "e", "model": "m", "protocol": "openai-chat", "base_url": "http://h:1/v1"},
    "target": {"kind": "endpoint"},
    "started_at": "2026-01-01T00:00:00.000+00:00",
    "visits": [
        {
            "visit": 0,
            "cell": "4096x1",
            "round": 1,
            "state": "done",
            "opened_at": "2026-01-01T00:00:00.000+00:00",
            "closed_at": "2026-01-01T00:02:00.000+00:00",
        }
    ],
}
START = 1767225600.0  # 2026-01-01T00:00:00Z
EMPTY = {"cells": [], "objectives": [], "knee": {"length": None, "concurrency": []}}


@pytest.fixture
def records(answer):
    """Three answers, a minute apart."""
    stamps = [f"2026-01-01T00:0{minute}:00.000+00:00" for minute in range(3)]
    return [answer(request_id=f"r1-{n}", timestamp=stamp) for n, stamp in enumerate(stamps)]


@pytest.fixture
def series(records, tmp_path):
    """(name, labels) -> [(time, value)], in the order of the file."""
    path = tmp_path / "metrics.om"
    count = backfill.write(about_of(MANIFEST), moments(records, [], MANIFEST), EMPTY, path)
    # prometheus_client's parser drops samples where a metric has several points; promtool reads it in another test.
    line = re.compile(r"(\w+)\{(.*)\} (\S+) (\d+\.\d{3})")
    found = defaultdict(list)
    for text in path.read_text().splitlines():
        if not text.startswith("#"):
            name, labels, value, at = line.fullmatch(text).groups()
            pairs = re.findall(r'(\w+)="([^"]*)"', labels)
            found[name, tuple(sorted(pair for pair in pairs if pair[0] not in ("run", "endpoint")))].append(
                (float(at), float(value))
            )
    assert sum(map(len, found.values())) == count
    return found


def test_a_counter_rises_when_the_requests_ended(series):
    """Zero before the run, then one more at the first step after each end: the parser takes it, times ascend."""
    name = "loadkit_ttft_seconds_count", (("concurrency", "1"), ("tier", "4096"))
    points = series[name]
    assert [at for at, _ in points] == sorted({at for at, _ in points})
    assert points[0] == (START - 5.0, 0)
    for end, count in ((0.441, 1), (60.441, 2), (120.441, 3)):
        first = min(at for at, value in points if value >= count)
        assert START + end <= first <= START + end + 5.0


def test_points_of_a_metric_stand_together(series, tmp_path):
    """As OpenMetrics wants it: one series after the other, and of a histogram one point after the other."""
    text = (tmp_path / "metrics.om").read_text()
    heads = re.findall(r"# TYPE (\S+)", text)
    assert len(heads) == len(set(heads))
    counters = [line.rsplit(" ", 2)[0] for line in text.splitlines() if line.startswith("loadkit_requests_total")]
    assert len([key for key, _ in groupby(counters)]) == len(set(counters))
    times = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith("loadkit_ttft_seconds")]
    assert len([at for at, _ in groupby(times)]) == len(set(times)) == 4


def test_no_series_is_silent_for_long(series):
    """Prometheus forgets after five minutes what nobody repeats: no gap is longer than a minute and a step."""
    for (name, _), points in series.items():
        if name == "loadkit_requests_total":
            times = [at for at, _ in points]
            assert max(b - a for a, b in pairwise(times)) <= 65.0


def test_a_visit_opens_and_closes_at_its_times(series):
    """The start of the stage is the wall clock of the manifest."""
    place = (("concurrency", "1"), ("tier", "4096"))
    assert series["loadkit_stage_start_timestamp_seconds", place][-1][1] == START
    assert series["loadkit_target_concurrency", ()][-1][1] == 0
    assert {value for _, value in series["loadkit_target_concurrency", ()]} == {0, 1}


def test_the_rows_of_a_master_speak_for_the_run():
    """In a fleet its row comes among those of workers."""
    rows = [{"kind": "server"}, {"kind": "telemetry", "worker": "w"},
            {"kind": "telemetry", "worker": "m", "workers_live": 2}]  # fmt: skip
    assert about_of(MANIFEST, rows).process == "m"
    assert about_of(MANIFEST, rows[:2]).process == "w"
    assert about_of(MANIFEST).host == "h:1"


def run_folder(path, manifest, rows):
    (path / "manifest.json").write_text(json.dumps(manifest))
    (path / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def backfilled(*words):
    parser = verb.argparse.ArgumentParser()
    verb.add_arguments(parser)
    return verb.main(parser.parse_args([str(word) for word in words]))


def test_without_promtool_it_says_the_command(records, tmp_path, monkeypatch, capsys):
    """The file is there, and what makes blocks of it is told."""
    folder = run_folder(tmp_path, MANIFEST, records)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert backfilled(folder) == 0
    assert (folder / "metrics.om").read_text().endswith("# EOF\n")
    assert "promtool tsdb create-blocks-from openmetrics" in capsys.readouterr().err


def test_a_run_of_which_nothing_is_known_is_an_error(tmp_path):
    """No time anywhere: one line, and what is wrong."""
    manifest = {**MANIFEST, "started_at": None, "visits": []}
    with pytest.raises(ConfigError, match="nothing in the run has a time"):
        backfilled(run_folder(tmp_path, manifest, []))


def test_a_manifest_of_another_kind_is_an_error(records, tmp_path):
    """Not a traceback."""
    with pytest.raises(FolderError, match="not as loadkit writes them"):
        backfilled(run_folder(tmp_path, {**MANIFEST, "plan": {"cells": [7]}}, records))
