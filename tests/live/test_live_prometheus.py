"""A real Prometheus scrapes real runs: what it holds in the end is what the records hold."""

import os
import shutil
import signal
import time
from collections import Counter

import pytest

RUN = (
    "--tiers",
    "96,160",
    "--concurrency",
    "1,3",
    "--rounds",
    "2",
    "--max-tokens",
    "24",
    "--seed",
    "5",
    "--slo",
    "ttft=2s",
)
SHORT = ("--tiers", "96", "--rounds", "1", "--concurrency", "1", "--max-tokens", "4")


@pytest.fixture(scope="module")
def sim(make_sim):
    """Slow enough for a few scrapes, and every ninth request is refused once with 503."""
    return make_sim("--ttft-ms", "150", "--itl-ms", "30", "--error-rate", "0.1", "--retry-after", "0.2")


@pytest.fixture(scope="module")
def watched(make_prometheus, free_port, loadkit, sim):
    """Prometheus and two runs that it saw, one after another on the same port."""
    port = free_port()
    prometheus = make_prometheus([f"127.0.0.1:{port}"])
    runs = []
    for _ in range(2):
        run = loadkit("run", sim, "--metrics-port", port, *RUN)
        run.said(f"metrics: http://127.0.0.1:{port}/metrics")
        assert run.end() in (0, 6), run.err
        runs.append(run)
    return prometheus, runs


def last(prometheus, selector):
    """The last value of each series, also of those whose process is gone."""
    return prometheus.ask(f"last_over_time({selector}[1h])")


def total(prometheus, selector):
    return sum(last(prometheus, selector).values())


def expected_requests(run):
    """(tier, concurrency, phase, outcome) -> requests by the records."""
    keys = ("tier_tokens", "concurrency", "phase", "outcome")
    return Counter(tuple(str(row[key]) for key in keys) for row in run.rows())


def counted_requests(prometheus, run):
    found = Counter()
    for labels, value in last(prometheus, f'loadkit_requests_total{{run="{run.label}"}}').items():
        known = dict(labels)
        found[tuple(known[key] for key in ("tier", "concurrency", "phase", "outcome"))] += int(value)
    return +found


def same_as_the_records(prometheus, run):
    """Every counter and the count and sum of every histogram."""
    rows, mine = run.rows(), f'run="{run.label}"'
    measured = [row for row in rows if row["phase"] == "measure" and row["outcome"] == "ok"]
    assert counted_requests(prometheus, run) == expected_requests(run)
    for direction, name in (("input", "prompt_tokens"), ("output", "output_tokens")):
        counted = total(prometheus, f'loadkit_tokens_total{{{mine},direction="{direction}"}}')
        assert counted == sum(row[name] or 0 for row in rows)
    assert total(prometheus, f"loadkit_attempts_total{{{mine}}}") == sum(len(row["attempts"]) for row in rows)
    retried = [attempt for row in rows for attempt in row["attempts"][:-1]]
    assert total(prometheus, f"loadkit_retries_total{{{mine}}}") == len(retried)
    waited = sum(attempt["wait_ms"] for attempt in retried) / 1e3
    assert total(prometheus, f"loadkit_retry_wait_seconds_total{{{mine}}}") == pytest.approx(waited)
    for name, values in (
        ("ttft", [row["ttft_ms"] for row in measured]),
        ("e2e", [row["e2e_ms"] for row in measured]),
        ("tpot", [row["tpot_ms"] for row in measured]),
        ("itl", [gap for row in measured for gap in row["itl_ms"]]),
    ):
        assert total(prometheus, f"loadkit_{name}_seconds_count{{{mine}}}") == len(values)
        assert total(prometheus, f'loadkit_{name}_seconds_bucket{{{mine},le="+Inf"}}') == len(values)
        assert total(prometheus, f"loadkit_{name}_seconds_sum{{{mine}}}") == pytest.approx(sum(values) / 1e3)
    assert total(prometheus, f"loadkit_slo_total{{{mine}}}") == sum(row["phase"] == "measure" for row in rows)


def same_as_the_report(prometheus, run):
    """The exact quantiles and the verdicts."""
    for cell in run.summary["cells"]:
        place = f'run="{run.label}",tier="{cell["tier_tokens"]}",concurrency="{cell["concurrency"]}"'
        (value,) = last(prometheus, f'loadkit_stage_quantile_seconds{{{place},metric="ttft",q="0.5"}}').values()
        assert value == pytest.approx(cell["ttft_ms"]["p50"] / 1e3)
        verdicts = last(prometheus, f"loadkit_cell_validity{{{place}}}").items()
        assert [dict(labels)["status"] for labels, on in verdicts if on] == [cell["validity"]["status"]]


def test_after_the_linger_every_counter_equals_the_records(watched):
    """Two scrapes have seen the end, so nothing of a run of a few seconds is missing."""
    prometheus, runs = watched
    for run in runs:
        same_as_the_records(prometheus, run)
        same_as_the_report(prometheus, run)


def test_two_runs_do_not_mix(watched):
    """Same endpoint, plan and port: two run ids, and the first one's series ended with it."""
    prometheus, runs = watched
    labels = {run.label for run in runs}
    assert len(labels) == 2
    assert {dict(found)["run"] for found in last(prometheus, "loadkit_run_info")} == labels
    for name in ("loadkit_requests_total", "loadkit_ttft_seconds_count"):
        assert {dict(found)["run"] for found in last(prometheus, name)} == labels


def test_errors_are_there_before_they_happen(watched):
    """increase() needs a first sample at zero: what was refused is seen as an increase from zero."""
    prometheus, (run, _) = watched
    refused = sum(a["http_status"] == 503 for row in run.rows() for a in row["attempts"])
    assert refused
    code = f'loadkit_attempts_total{{run="{run.label}",code="503"}}'
    assert sum(prometheus.ask(f"min_over_time({code}[1h])").values()) == 0
    assert sum(prometheus.ask(f"max_over_time({code}[1h])").values()) == refused


def test_an_exemplar_leads_to_its_record(watched):
    """The request id on a bucket of TTFT is that of a record with that TTFT."""
    prometheus, (run, _) = watched
    window = {"start": run.rows()[0]["timestamp"], "end": time.time() + 60}
    found = prometheus.api("query_exemplars", query=f'loadkit_ttft_seconds_bucket{{run="{run.label}"}}', **window)
    times = {row["request_id"]: row["ttft_ms"] / 1e3 for row in run.rows()}
    exemplars = [one for series in found for one in series["exemplars"]]
    assert exemplars
    for one in exemplars:
        assert float(one["value"]) == pytest.approx(times[one["labels"]["request_id"]])


def test_it_says_where_to_look_and_that_it_waits(watched):
    """The address, the run to choose, the budget; and why it does not end at once."""
    _, (run, _) = watched
    (line,) = [line for line in run.err.splitlines() if "/metrics" in line]
    assert f'run="{run.label}", at most ' in line
    assert "metrics: waiting up to " in run.err


def test_workers_go_with_the_run(watched):
    """No gauge of a process stands on after it."""
    prometheus, _ = watched
    assert prometheus.ask('{__name__=~"loadkit_.*",worker!=""}') == {}


def test_backfill_answers_as_the_records_do(watched, make_prometheus, loadkit):
    """`loadkit backfill` and promtool make blocks; a Prometheus that never scraped anything serves them."""
    _, (run, _) = watched
    made = loadkit("backfill", "runs/latest", cwd=run.cwd)
    assert made.end() == 0, made.err
    assert "1 blocks" in made.err
    prometheus = make_prometheus(data=run.folder / "prometheus")
    same_as_the_records(prometheus, run)
    same_as_the_report(prometheus, run)
    assert prometheus.ask(f'last_over_time(loadkit_run_info{{run="{run.label}"}}[1h])')
    assert prometheus.one(f'max_over_time(loadkit_users{{run="{run.label}"}}[1h])') == 3


def test_backfill_does_not_mix_blocks(loadkit, sim, tmp_path):
    """A second time into the same folder would count everything twice: it is refused, with what to do."""
    run = loadkit("run", sim, "--no-metrics", *SHORT, cwd=tmp_path)
    assert run.end() in (0, 6), run.err
    assert "metrics:" not in run.err
    codes = []
    for _ in range(2):
        made = loadkit("backfill", cwd=tmp_path)
        codes.append(made.end())
    assert codes == [0, 2]
    assert "is not empty: remove it, or name another folder with --out" in made.err
    shutil.rmtree(run.folder / "prometheus")
    assert loadkit("backfill", cwd=tmp_path).end() == 0


def test_a_run_that_nobody_scrapes_ends_at_once(loadkit, sim):
    """No word about waiting; the page was there."""
    run = loadkit("run", sim, "--metrics-port", "0", *SHORT)
    assert run.end() in (0, 6), run.err
    assert "metrics: http://127.0.0.1:" in run.err
    assert "waiting" not in run.err


def test_a_signal_ends_the_linger(loadkit, sim, free_port, fetch):
    """Somebody looked once; Ctrl-C while it waits for more ends it with the run's own code and no word of draining."""
    port = free_port()
    run = loadkit("run", sim, "--metrics-port", port, *SHORT)
    run.said("/metrics")
    fetch(f"http://127.0.0.1:{port}/metrics")
    run.said("metrics: waiting up to")
    run.process.send_signal(2)
    assert run.end() in (0, 6)
    assert "draining" not in run.err


def test_a_page_that_cannot_be_served_stops_nothing(loadkit, sim):
    """An address that is not this machine's: one line, and the run goes on."""
    run = loadkit(
        "run", sim, "--metrics-port", "192.0.2.1:9646", "--tiers", "96", "--rounds", "1", "--concurrency", "1"
    )
    assert run.end() in (0, 6), run.err
    assert "metrics: not served, cannot listen on 192.0.2.1 port 9646: Cannot assign requested address" in run.err


def test_the_engines_own_times_are_sampled(loadkit):
    """The embedded engine tells queue and prefill; they stand in telemetry.jsonl as rows of the server."""
    run = loadkit("run", "--target", "engine", "--tiers", "128", "--rounds", "2", "--metrics-port", "0")
    assert run.end() in (0, 6), run.err
    rows = run.rows("telemetry.jsonl", "server")
    assert {row["engine"] for row in rows} == {"loadkit"}
    assert rows[-1]["prefill_ms"] > 0
    assert rows[-1]["queue_ms"] >= 0
    assert rows[-1]["ttft_ms"] >= rows[-1]["prefill_ms"]


def test_a_run_of_a_dozen_seconds_is_not_under_counted(make_prometheus, free_port, loadkit, sim):
    """Scraped every 5 s, as is usual, where the last scrape of the run itself would miss a third of it."""
    port = free_port()
    prometheus = make_prometheus([f"127.0.0.1:{port}"], interval="5s")
    run = loadkit("run", sim, "--metrics-port", port, *RUN)
    assert run.end() in (0, 6), run.err
    same_as_the_records(prometheus, run)


@pytest.fixture(scope="module")
def fleet(make_prometheus, free_port, loadkit, make_sim, until):
    """A run on two workers, one of which is killed while it streams, and the Prometheus that saw it; the name of the
    dead one."""
    sim = make_sim("--ttft-ms", "300", "--itl-ms", "40")
    port = free_port()
    prometheus = make_prometheus([f"127.0.0.1:{port}"])
    plan = ("--tiers", "96", "--concurrency", "2,4", "--rounds", "6", "--max-tokens", "24", "--slo", "ttft=2s")
    run = loadkit("run", sim, "--workers", "2", "--metrics-port", port, *plan)
    run.said("/metrics")
    streaming = "loadkit_inflight > 0"
    worker = until(lambda: prometheus.ask(streaming), "a worker that streams")
    name = dict(next(iter(worker)))["worker"]
    os.kill(int(name.rpartition("-")[2]), signal.SIGKILL)

    def others():
        """The processes on the last page that came, once the dead one is not among them."""
        assert run.process.poll() is None, run.err
        shown = {dict(labels)["worker"] for labels in prometheus.ask("loadkit_worker_cpu_ratio")}
        return shown - {name} if name not in shown else None

    run.others = until(others, "a page without the dead worker")
    assert run.end() in (0, 3, 6), run.err
    return prometheus, run, name


def test_a_fleet_with_a_dead_worker_counts_as_its_records_do(fleet):
    """The master counts what it writes, also what it found in the spool of the dead."""
    prometheus, run, _ = fleet
    assert len({row["worker"] for row in run.rows()}) >= 2
    same_as_the_records(prometheus, run)
    same_as_the_report(prometheus, run)


def test_a_dead_workers_series_do_not_linger(fleet):
    """Its gauges were gone while the run went on, those of the others were not; the loss is counted once."""
    prometheus, run, name = fleet
    assert len(run.others) >= 2  # the master, and a worker that lives
    assert name not in run.others
    assert total(prometheus, f'loadkit_worker_lost_total{{run="{run.label}"}}') == 1


def test_the_backfill_of_a_fleet_answers_the_same(fleet, loadkit, make_prometheus):
    """Blocks made from its folder say what its records say."""
    _, run, _ = fleet
    made = loadkit("backfill", cwd=run.cwd)
    assert made.end() == 0, made.err
    same_as_the_records(make_prometheus(data=run.folder / "prometheus"), run)
