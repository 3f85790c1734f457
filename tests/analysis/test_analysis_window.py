"""The measured window and the streams inside it."""

import pytest

from loadkit.analysis.window import Window, interval


def window_of(*records):
    window = Window()
    for record in records:
        window.add(record, record["phase"] == "measure")
    return window


def test_windows_of_visits_are_added(request_of):
    """Two visits of 0.1 s and 0.14 s make 0.24 s, whatever time lies between them."""
    window = window_of(request_of(100, 1, at=0, ttft=60, visit=1), request_of(100, 1, at=500, ttft=100, visit=2))
    assert window.seconds() == pytest.approx(0.24, abs=1e-5)


def test_warm_up_and_drain_do_not_lengthen_the_window(request_of):
    """Only measured requests open and close the window."""
    window = window_of(
        request_of(100, 1, at=-5, ttft=60, phase="warmup"),
        request_of(100, 1, at=0, ttft=60),
        request_of(100, 1, at=7, ttft=60, phase="drain"),
    )
    assert window.seconds() == pytest.approx(0.1, abs=1e-5)


def test_streams_of_any_phase_load_the_server(request_of):
    """A drain request that overlaps a measured one counts in flight; one after the window does not."""
    window = window_of(
        request_of(100, 2, at=0.0, ttft=60),
        request_of(100, 2, at=0.05, ttft=60, phase="drain"),
        request_of(100, 2, at=3.0, ttft=60, phase="drain"),
        request_of(100, 2, at=3.0, ttft=60, phase="drain"),
        request_of(100, 2, at=3.0, ttft=60, phase="drain"),
    )
    assert window.peak() == 2


def test_a_stream_that_follows_another_does_not_overlap_it(request_of):
    """A handover within the resolution of the wall clock is one stream, not two."""
    assert window_of(request_of(100, 1, at=0, ttft=60), request_of(100, 1, at=0.0995, ttft=60)).peak() == 1


def test_a_retried_request_begins_with_its_first_attempt(request_of):
    """The answering attempt began 2 s after the first one; the window holds both."""
    start, end = interval(request_of(100, 1, at=10, ttft=60, ttft_first_attempt_ms=2060))
    assert end - start == pytest.approx(2.1, abs=1e-5)


def test_without_times_there_is_no_window(request_of):
    """A record whose timestamp cannot be read gives no window and no peak."""
    window = window_of(request_of(100, 1, ttft=60, timestamp="yesterday"), request_of(100, 1, ttft=60, timestamp=None))
    assert window.seconds() is None
    assert window.peak() is None


def test_a_step_of_the_wall_clock_moves_nothing(request_of):
    """Two requests one after the other; the wall clock went back 10 s between them. The monotonic clock did not."""
    window = window_of(
        request_of(100, 1, at=50, ttft=60, worker="a", start_ms=7000.0),
        request_of(100, 1, at=40.2, ttft=60, worker="a", start_ms=7200.0),
    )
    assert window.seconds() == pytest.approx(0.3, abs=1e-6)
    assert window.peak() == 1


def test_processes_measure_side_by_side_on_clocks_of_their_own(request_of):
    """The longest of their windows is the visit's, and their streams in flight add up."""
    window = window_of(
        request_of(100, 2, ttft=60, worker="a", start_ms=7000.0),
        request_of(100, 2, ttft=160, worker="b", start_ms=9_000_000.0),
    )
    assert window.seconds() == pytest.approx(0.2, abs=1e-6)
    assert window.peak() == 2


@pytest.mark.parametrize("visit", [[1], {"a": 1}, "x", None, 10**400])
def test_a_damaged_visit_is_no_visit(request_of, visit):
    """Whatever stands there, the window has a length."""
    assert window_of(request_of(100, 1, ttft=60, visit=visit)).seconds() == pytest.approx(0.1, abs=1e-6)
