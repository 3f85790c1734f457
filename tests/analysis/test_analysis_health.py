"""Validity from the manifest, from telemetry, or from the records alone."""

from datetime import UTC, datetime, timedelta

import pytest

from loadkit.analysis.summary import summarise
from loadkit.measure.histogram import LAG_BOUNDS_S, Histogram

START = datetime(2026, 1, 1, tzinfo=UTC)


def lag(*samples_ms):
    """The event loop's lag of a second as a row carries it."""
    histogram = Histogram(LAG_BOUNDS_S)
    for value in samples_ms:
        histogram.add(value)
    return histogram.to_wire()


def second(at, **values):
    """A telemetry row of a healthy worker, changed by values."""
    row = {
        "kind": "telemetry",
        "worker": "local-1",
        "hub_lag": lag(*[0.3] * 100),
        "cpu": 0.2,
        "users_planned": 1,
        "users_live": 1,
    }
    return row | {"timestamp": (START + timedelta(seconds=at)).isoformat()} | values


@pytest.fixture
def verdict(request_of):
    """The validity of one cell of one request that lasts 5 s (ITL 100 ms), given telemetry, manifest and changes."""

    def judge(telemetry=(), manifest=None, concurrency=1, **changed):
        record = request_of(100, concurrency, ttft=4600.0, tpot=100.0, **changed)
        return summarise([record], manifest, telemetry)["cells"][0]["validity"]

    return judge


def test_a_healthy_client_leaves_the_cell_valid(verdict):
    """Low lag, low CPU and the planned users: valid, and nothing to say."""
    assert verdict([second(i) for i in range(1, 6)]) == {"status": "valid", "reasons": []}


@pytest.mark.parametrize(
    ("values", "status", "reason"),
    [
        ({"hub_lag": lag(6.3)}, "suspect", "event loop lag p99 6.29 ms is above 5 ms"),
        ({"hub_lag": lag(31.5)}, "invalid", "event loop lag p99 31.4 ms is above 25 ms"),
        ({"cpu": 0.8}, "suspect", "load generator CPU 80% is above 70% of a core"),
        ({"cpu": 0.95}, "invalid", "load generator CPU 95% is above 90% of a core"),
        ({"users_live": 0}, "invalid", "0 live users where 1 were planned"),
        ({"hub_lag": [1, 2]}, "suspect", "event loop lag was not measured"),
        ({"cpu": None}, "suspect", "CPU of the load generator was not measured"),
    ],
)
def test_a_sick_client_is_named(verdict, values, status, reason):
    """The limits of the design on lag (5 % and 25 % of an ITL of 100 ms), CPU and users, each with its reason."""
    assert verdict([second(i, **values) for i in range(1, 5)]) == {"status": status, "reasons": [reason]}


def test_the_worst_worker_counts(verdict):
    """One saturated worker of two makes the cell invalid."""
    rows = [second(i, worker=w, cpu=cpu) for i in range(1, 5) for w, cpu in (("a", 0.1), ("b", 0.99))]
    assert verdict(rows)["status"] == "invalid"


def test_one_bad_second_is_weighed_by_its_samples(verdict, request_of):
    """A second whose p99 is 90 ms spoils a window of 4 s; in 200 s it is 0.5 % of the samples, and the p99 stands."""
    bad, good = {"hub_lag": lag(*[0.1] * 50, *[90.0] * 50)}, {"hub_lag": lag(*[0.1] * 99, 0.9)}
    assert verdict([second(1, **bad), *(second(i, **good) for i in range(2, 5))])["status"] == "invalid"
    rows = [second(i, **(bad if i == 50 else good)) for i in range(200)]
    record = request_of(100, 1, ttft=199_600.0, tpot=100.0)
    assert summarise([record], None, rows)["cells"][0]["validity"]["status"] == "valid"


def test_cpu_is_the_mean_over_the_window(verdict):
    """Three idle seconds and a full one are 40 %: busy moments show as lag, not as CPU."""
    assert verdict([second(1, cpu=1.0), *(second(i) for i in range(2, 5))])["status"] == "valid"


def test_only_rows_inside_the_window_count(verdict):
    """A bad second before the cell, or long after it, says nothing about it."""
    rows = [second(-1, hub_lag=lag(99.0)), second(2), second(3), second(60, hub_lag=lag(99.0))]
    assert verdict(rows)["status"] == "valid"


def test_the_row_after_a_window_covers_its_last_second_but_not_its_users(verdict):
    """A row tells of the second before it; users of the next stage in it are not held against the cell."""
    assert verdict([second(2), second(5.5, hub_lag=lag(*[99.0] * 50))])["status"] == "invalid"
    assert verdict([second(2), second(5.5, users_planned=9, users_live=0)])["status"] == "valid"


def test_rows_that_name_cells_count_for_their_own(verdict):
    """The second after a visit belongs to the next one, however near it is."""
    rows = [second(2, cell="100x1"), second(5.1, cell=None, hub_lag=lag(99.0)), second(5.2, cell="9x1", cpu=1.0)]
    assert verdict(rows)["status"] == "valid"


def test_a_verdict_of_the_run_itself_wins(verdict):
    """What the manifest says of a visit stands; the reasons are kept."""
    manifest = {"visits": [{"cell": "100x1", "validity": {"status": "invalid", "reasons": ["1 worker lost"]}}]}
    assert verdict([second(2)], manifest) == {"status": "invalid", "reasons": ["1 worker lost"]}
    valid = {"visits": [{"cell": "100x1", "validity": {"status": "valid", "reasons": []}}, "damaged"]}
    assert verdict([second(2, cpu=1.0)], valid)["status"] == "valid"


def test_records_alone_can_clear_a_cell_but_not_condemn_it(verdict):
    """Without telemetry the worst lag inside a request bounds the p99: low is valid, high is only suspect."""
    assert verdict(hub_lag_max_ms=0.4) == {"status": "valid", "reasons": []}
    found = verdict(hub_lag_max_ms=900.0)
    assert found["status"] == "suspect"
    assert found["reasons"] == ["event loop lag p99 900 ms is above 25 ms at its worst inside a request"]
    assert verdict(hub_lag_max_ms=None)["reasons"] == ["event loop lag was not measured"]


def test_missing_streams_make_a_cell_suspect(verdict):
    """One stream in flight where two were planned is not that cell."""
    found = verdict(concurrency=2)
    assert found == {"status": "suspect", "reasons": ["at most 1 streams were in flight where 2 were planned"]}


@pytest.mark.parametrize("flag", ["prefix_cache_hit", "prompt_truncated", "client_saturated", "throttled", "unlocked"])
def test_flags_that_spoil_a_number_make_it_suspect(verdict, flag):
    """A cached, cut, late or throttled request is counted in the reason."""
    assert verdict(flags=[flag]) == {"status": "suspect", "reasons": [f"1 of 1 requests carry {flag}"]}


def test_cache_hits_are_wanted_under_a_shared_prefix(verdict):
    """The plan says so; other flags still count, and so do hits where nothing is shared."""
    shared = {"plan": {"shared_prefix": 0.5}}
    assert verdict(manifest=shared, flags=["prefix_cache_hit"])["status"] == "valid"
    assert verdict(manifest=shared, flags=["prefix_cache_hit", "throttled"])["status"] == "suspect"
    assert verdict(manifest={"plan": {"shared_prefix": 0.0}}, flags=["prefix_cache_hit"])["status"] == "suspect"


@pytest.mark.parametrize("field", ["response_model", "fingerprint"])
def test_a_change_of_model_makes_every_cell_suspect(request_of, field):
    """Two models or fingerprints in one run raise model_drift; a missing name is no other name."""
    records = [request_of(100, 1, at=at, ttft=50, **{field: name}) for at, name in enumerate(("a", None, "a"))]
    assert summarise(records)["cells"][0]["validity"]["status"] == "valid"
    records.append(request_of(200, 1, ttft=50, **{field: "b"}))
    cells = summarise(records)["cells"]
    assert ["model_drift" in cell["cell_flags"] for cell in cells] == [True, True]
    assert {cell["validity"]["status"] for cell in cells} == {"suspect"}


def test_rows_are_matched_by_the_monotonic_clock(verdict):
    """The wall clock of the telemetry stepped an hour ahead; its monotonic time is inside the window all the same."""
    rows = [second(3600 + i, worker="a", at_ms=7000.0 + 1000 * i, cpu=0.99) for i in range(1, 5)]
    assert verdict(rows, worker="a", start_ms=7000.0)["status"] == "invalid"
    outside = [second(i, worker="a", at_ms=90_000.0, cpu=0.99) for i in range(1, 5)]
    assert "load generator CPU" not in str(verdict(outside, worker="a", start_ms=7000.0))


def test_more_streams_than_planned_make_a_cell_suspect(request_of):
    """Two streams in flight are not the cell of one."""
    found = summarise([request_of(100, 1, ttft=50), request_of(100, 1, ttft=50)])["cells"][0]["validity"]
    assert found["status"] == "suspect"
    assert found["reasons"] == ["2 streams were in flight at once where 1 were planned"]


def test_a_damaged_histogram_is_no_sample(verdict):
    """A count no histogram can hold is left out, like any other damage."""
    found = verdict([second(i, hub_lag=[5, 1, 10**400]) for i in range(1, 5)])
    assert found == {"status": "suspect", "reasons": ["event loop lag was not measured"]}
