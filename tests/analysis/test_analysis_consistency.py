"""The numbers of a cell against each other and against the plan."""

import pytest

from loadkit.analysis.summary import summarise


def validity(records, manifest=None):
    return summarise(records, manifest)["cells"][0]["validity"]


@pytest.fixture
def pairs(request_of):
    """Pairs of requests at concurrency 2, each of 1 s, one pair every `every` seconds."""

    def build(every, **changed):
        return [request_of(100, 2, at=every * (i // 2), ttft=960.0, tpot=10.0, **changed) for i in range(8)]

    return build


def test_mean_in_flight_is_throughput_times_residence(pairs):
    """Four pairs of 1 s back to back are 2 streams; at one pair per 2 s, 8 s of work in 7 s are 8/7."""
    back_to_back = summarise(pairs(1.0))["cells"][0]
    assert back_to_back["mean_in_flight"] == pytest.approx(2.0)
    assert back_to_back["mean_in_flight"] == pytest.approx(back_to_back["requests_per_s"] * 1.0)
    assert summarise(pairs(2.0))["cells"][0]["mean_in_flight"] == pytest.approx(8 / 7)


def test_streams_that_pause_make_the_cell_suspect(pairs):
    """Full slots for half of the time are not the planned load, although the peak is right."""
    assert validity(pairs(1.0)) == {"status": "valid", "reasons": []}
    found = validity(pairs(2.0))
    assert found["status"] == "suspect"
    assert found["reasons"] == [
        "1.14 streams were in flight on average where 2 were planned "
        "(Little's law: requests per second x time in flight)"
    ]


def test_a_single_stream_may_pause(request_of):
    """What one stream does between its requests changes none of them."""
    assert validity([request_of(100, 1, at=9 * i, ttft=960.0) for i in range(4)])["status"] == "valid"


@pytest.fixture
def arrivals(request_of):
    """Requests of an open loop at 2/s and at most 8 streams, those whose numbers are given."""

    def build(numbers, **changed):
        return [
            request_of(100, 8, at=n / 2, ttft=90.0, rate=2.0, arrival=n, scheduled_ms=-1.0, round=1, visit=0)
            | {"start_ms": 500.0 * n, "queue_ms": 0.5, **changed}
            for n in numbers
        ]

    return build


def test_an_open_loop_needs_not_use_all_its_streams(arrivals):
    """It has a cell, a load and no rounds; its rate is in the name."""
    cell = summarise(arrivals(range(1, 101)))["cells"][0]
    assert (cell["cell"], cell["rate"], cell["concurrency"], cell["n"]) == ("100@2rps", 2.0, 8, 100)
    assert cell["validity"] == {"status": "valid", "reasons": []}
    assert cell["cell_flags"] == []
    assert cell["arrivals"]["offered_per_s"] == pytest.approx(2.0)
    assert cell["ttft_sched_ms"] is None  # these records were not given one


def test_dropped_arrivals_and_a_late_client_make_an_open_loop_suspect(arrivals):
    """One in a hundred may be dropped; what the client counted stands before what the numbers show."""
    assert validity(arrivals(range(1, 100)))["status"] == "valid"
    found = validity(arrivals([n for n in range(1, 101) if n not in (7, 8)]))
    assert found["status"] == "suspect"
    assert found["reasons"] == [
        "2 of 100 arrivals found no free stream and were dropped: "
        "the load was less than planned (--max-in-flight allows more streams)"
    ]
    counted = {"visits": [{"cell": "100@2rps", "arrivals": {"planned": 110, "offered": 110, "dropped": 11}}]}
    assert "11 of 110 arrivals" in validity(arrivals(range(1, 100)), counted)["reasons"][0]
    late = validity(arrivals(range(1, 100), queue_ms=60.0))
    assert late["reasons"] == ["requests were up to 60 ms late by the schedule (p99)"]


def test_requests_that_were_sent_and_are_not_recorded_are_missing(arrivals):
    """Arrivals less those dropped are what a finished visit measured; a dropped one is not missing."""

    def missing(counts, state="done"):
        visits = [{"visit": 0, "cell": "100@2rps", "round": 0, "state": state, "arrivals": counts}]
        cell = {"tier_tokens": 100, "concurrency": 8, "rate": 2.0}
        manifest = {"plan": {"cells": [cell], "rounds": 3}, "visits": visits, "ended_at": "2026-01-01"}
        return summarise(arrivals(range(1, 91)), manifest)["course"]["missing"]

    assert missing({"planned": 100, "offered": 100, "dropped": 10}) == []
    (found,) = missing({"planned": 100, "offered": 100, "dropped": 8})
    assert (found["cell"], found["n"], found["planned"]) == ("100@2rps", 90, 92)
    assert missing({"planned": 100, "offered": 95, "dropped": 0}, "stopped") == []


def test_rates_of_one_tier_are_cells_of_their_own_and_in_no_fit(arrivals, ladder):
    """A ladder's growth is the same with and without the open-loop cells beside it."""
    steps = ladder({128: 100.0, 256: 200.0, 512: 400.0, 1024: 800.0})
    beside = summarise([*steps, *arrivals(range(1, 50)), *arrivals(range(1, 50), rate=3.0)])
    assert [cell["cell"] for cell in beside["cells"]][:2] == ["100@2rps", "100@3rps"]
    alone = summarise(steps)
    for name in ("growth", "knee", "price", "tpot_across_tiers"):
        assert beside[name] == alone[name]
    assert alone["rate_search"] is None
    assert [row["cell"] for row in beside["rate_search"][0]["rates"]] == ["100@2rps", "100@3rps"]


@pytest.mark.parametrize(
    ("counted", "exact", "suspect"),
    [
        (1000, True, False),
        (1001, True, True),
        (1009, None, False),
        (1011, None, True),
        (985, None, True),
        (1090, False, False),
        (1110, False, True),
    ],
)
def test_prompt_tokens_are_held_against_what_was_sent(request_of, counted, exact, suspect):
    """Exact prompts must be counted exactly, estimates to 10 %, and to 1 % where nothing is known of them."""
    tiers = [] if exact is None else [{"tier_tokens": 1000, "exact": exact}]
    found = validity([request_of(1000, 1, ttft=50.0, prompt=counted)], {"prompts": {"tiers": tiers}})
    assert found["status"] == ("suspect" if suspect else "valid")


def test_the_reason_names_the_difference(request_of):
    """How many answers, how far off, and what was allowed."""
    rows = [request_of(1000, 1, at=i, ttft=50.0, prompt=n) for i, n in enumerate((1000, 950, 1000))]
    assert validity(rows)["reasons"] == [
        "the server counted other prompt tokens than were sent in 1 of 3 answers (up to -5.00 %, 1 % is allowed)"
    ]


def test_our_own_count_is_no_evidence(request_of):
    """Tokens the client counted itself say nothing about what the server read."""
    assert validity([request_of(1000, 1, ttft=50.0, prompt=500, prompt_tokens_source="tokenizer")])["status"] == "valid"


def test_reads_of_many_events_make_the_cell_suspect(request_of):
    """Two events with each read in the median answer hide the gaps; one answer of three that does is no rule."""
    reads = {"event_read": [1, 1, 2, 2, 3]}
    rows = [request_of(100, 1, at=i, ttft=50.0, **reads) for i in range(3)]
    found = summarise(rows)["cells"][0]
    assert found["events_per_read"] == pytest.approx(5 / 3)
    assert found["validity"]["reasons"] == [
        "1.7 events came with each read: a buffer on the way, or a client too slow, hides the gaps"
    ]
    single = {"event_read": [1, 2, 3, 4, 5]}
    rows[1:] = [request_of(100, 1, at=i, ttft=50.0, **single) for i in (1, 2)]
    assert validity(rows)["status"] == "valid"
