"""The page: prometheus_client's parsers and promtool read it, and what they read is what was counted."""

import statistics
import threading
import time
from itertools import pairwise

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from loadkit.live import render
from loadkit.live.exporter import Exporter
from loadkit.live.table import METRICS

LARGEST = tuple((1024 * 2**step, 2**level) for step in range(10) for level in range(10))
READERS = {True: read_openmetrics, False: read_text}


def page(registry, openmetrics):
    return b"".join(render.pieces(registry, openmetrics)).decode()


def samples(text, openmetrics):
    """(name, labels) -> value, exemplar."""
    return {
        (one.name, tuple(sorted(one.labels.items()))): (one.value, one.exemplar)
        for family in READERS[openmetrics](text)
        for one in family.samples
    }


@pytest.fixture
def used(registry, answer):
    """A registry in which everything has happened once."""
    made = registry(slo="ttft=1s", model="m", version="0.1", host="h:1")
    made.stage("4096x1", "open")
    made.observe(answer(connect_ms=3.0))
    made.observe(answer(outcome="rate_limited", http_status=429))
    made.stage("4096x1", "done")
    made.health({"kind": "telemetry", "worker": "p", "users_live": 1, "users_planned": 1, "streams_in_flight": 1,
                 "cpu": 0.1, "hub_lag_p99_ms": 0.1, "hub_lag_max_ms": 0.2})  # fmt: skip
    made.health({"kind": "server", "running": 1.0, "waiting": 0.0, "kv_usage": 0.5, "preemptions": 0.0,
                 "prefix_hit": 0.1, "queue_ms": 1.0, "prefill_ms": 2.0, "ttft_ms": 4.0})  # fmt: skip
    made.health({"kind": "board", "temperature_c": {"soc": 40.0}, "frequency_hz": {"big": 2.4e9},
                 "power_w": {"in": 7.5}, "memory_bytes_per_s": {"all": 1e9}, "cooling": {"cpu": 0.0},
                 "load": {"npu": 0.1}, "memory": {"total": 1e9}})  # fmt: skip
    times = {"p50": 1.0, "p90": 1.0, "p95": 1.0, "p99": 1.0, "n": 1}
    cell = {"tier_tokens": 4096, "concurrency": 1, "validity": {"status": "valid"}}
    cell |= dict.fromkeys(("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"), times)
    found = {"tier_tokens": 4096, "metric": "throughput", "knee": 2.0, "probability": 0.9}
    met = [{"cell": "4096x1", "name": "ttft.p95", "met": True}]
    made.summary({"cells": [cell], "objectives": met, "knee": {"length": found, "concurrency": [found]}})
    made.scraped()
    return made


@pytest.mark.parametrize("openmetrics", [True, False])
def test_the_page_reads_back_as_the_library_writes_it(used, openmetrics):
    """Our text and prometheus_client's own of the same registry hold the same samples."""
    library = {
        (name, labels): value
        for (name, labels), (value, _) in samples(generate_latest(used.prometheus).decode(), False).items()
    }
    ours = samples(page(used, openmetrics), openmetrics)
    assert {key: value for key, (value, _) in ours.items()} == library
    assert len(ours) == used.series


def test_every_metric_of_the_table_is_fed(used):
    """No name is in the table that nothing sets."""
    assert [metric.name for metric in METRICS if not used.families[metric.name].series] == []


def test_a_ttft_bucket_names_a_request(used, answer):
    """The exemplar is the last value of its bucket, and lies in it; text 0.0.4 has none."""
    used.observe(answer(request_id="r1-last", ttft_ms=390.0))
    found = samples(page(used, True), True)
    named = {labels: one for (name, labels), (_, one) in found.items() if name == "loadkit_ttft_seconds_bucket" and one}
    ((labels, exemplar),) = named.items()
    assert dict(labels)["le"] == "0.4"
    assert (exemplar.labels, exemplar.value) == ({"request_id": "r1-last"}, 0.39)
    assert "# {" not in page(used, False)


def test_promtool_finds_nothing_to_say(used, promtool):
    """`promtool check metrics` is clean, for a page on which every metric is."""
    assert promtool("check", "metrics", text=page(used, False)) == (0, "")


def test_a_piece_is_short(registry):
    """Others may run after every few hundred lines, however large the registry is."""
    made = registry(cells=LARGEST, slo="ttft=1s,itl=50ms,tpot=50ms,e2e=9s")
    for _ in range(2):
        assert max(piece.count(b"\n") for piece in render.pieces(made, True)) <= 300
    assert made.series > 30_000


def test_a_scrape_of_the_largest_registry_is_quick(registry, answer):
    """With one cell under load, a scrape writes what changed: under 5 ms of CPU, the library takes over 100."""
    made = registry(cells=LARGEST, slo="ttft=1s,itl=50ms,tpot=50ms,e2e=9s")
    page(made, True)
    spent = []
    for number in range(30):
        made.observe(answer(tier_tokens=1024, concurrency=4, ttft_ms=float(number)))
        made.scraped()
        since = time.thread_time()
        list(render.pieces(made, True))
        spent.append(time.thread_time() - since)
    assert statistics.median(spent) < 5e-3


def test_no_slice_of_a_page_is_long(registry, answer):
    """The largest registry with every cell changed: the CPU time between two pauses is a fraction of the whole."""
    made = registry(cells=LARGEST, slo="ttft=1s,itl=50ms,tpot=50ms,e2e=9s")
    for tier, concurrency in LARGEST:
        made.observe(answer(tier_tokens=tier, concurrency=concurrency))
    marks = [time.thread_time()]
    exporter = Exporter(made, now=time.thread_time, sleep=lambda _: marks.append(time.thread_time()))
    page = b"".join(exporter._in_slices(render.pieces(made, True)))
    assert page.endswith(b"# EOF\n")
    slices = [later - earlier for earlier, later in pairwise(marks)]
    assert len(slices) > 5
    assert max(slices) < 20e-3


def test_a_page_may_be_read_while_it_is_fed(registry, answer):
    """Two threads, as in a process without gevent: each page is whole and no histogram contradicts itself."""
    made = registry()
    stop = threading.Event()

    def feed():
        while not stop.is_set():
            made.observe(answer())

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        for _ in range(20):
            found = {key: value for key, (value, _) in samples(page(made, False), False).items()}
            for (name, labels), count in found.items():
                if name == "loadkit_itl_seconds_count":
                    top = tuple(sorted({**dict(labels), "le": "+Inf"}.items()))
                    assert found["loadkit_itl_seconds_bucket", top] == count
    finally:
        stop.set()
        feeder.join()
