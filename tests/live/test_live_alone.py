"""Which times of histograms are one request's: only those of a window that held it and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from loadkit.live.alone import ROUNDING_MS, Alone, tells
from loadkit.live.server_metrics import parse


def page(queue=(), prefill=(), decode=(), engine="vllm"):
    """The page of a vLLM that has counted these times (s)."""
    lines = [f"{engine}:num_requests_running 0"]
    for name, values in (("queue", queue), ("prefill", prefill), ("decode", decode)):
        if values is not None:
            lines += [f"{engine}:request_{name}_time_seconds_sum {sum(values)!r}"]
            lines += [f"{engine}:request_{name}_time_seconds_count {len(values)}"]
    return parse("\n".join(lines))


def rounded(times):
    return {name: round(value, 6) for name, value in times.items()}


def test_a_window_of_one_request_has_its_times():
    """Each rise is the request's own, whatever was counted before; without a page before it nothing is known."""
    alone = Alone()
    alone.ended(ok=True)
    assert alone.look(page([9.0], [9.0], [9.0]), 1e9) == {}
    alone.ended(ok=True)
    found = alone.look(page([9.0, 0.25], [9.0, 0.5], [9.0, 2.0]), 800.0)
    assert rounded(found) == {"queue_ms": 250.0, "prefill_ms": 500.0, "decode_ms": 2000.0}


def test_two_requests_in_a_window_have_none():
    """The mean of two is no request's; the window after it counts again."""
    alone = Alone()
    alone.look(page(), None)
    for _ in range(2):
        alone.ended(ok=True)
    assert alone.look(page([1.0, 2.0], [1.0, 2.0], [1.0, 2.0]), 1e9) == {}
    alone.ended(ok=True)
    assert rounded(alone.look(page([1.0, 2.0, 0.5], [1.0, 2.0, 0.5], [1.0, 2.0, 0.5]), 1e9))["queue_ms"] == 500.0


def test_a_request_that_is_counted_late_is_nobodys():
    """One that the page does not have yet is not given to the next, nor is the next one's to it."""
    alone = Alone()
    alone.look(page(), None)
    alone.ended(ok=True)
    assert alone.look(page(), 1e9) == {}
    alone.ended(ok=True)
    assert alone.look(page([1.0], [1.0], [1.0]), 1e9) == {}, "one counted, two ended"
    alone.ended(ok=True)
    assert alone.look(page([1.0] * 3, [1.0] * 3, [1.0] * 3), 1e9) == {}, "the late one and this one"
    alone.ended(ok=True)
    assert alone.look(page([1.0] * 4, [1.0] * 4, [1.0] * 4), 1e9) != {}


def test_somebody_elses_request_is_not_ours():
    """More were counted than ended here: other clients load the server, and no time is ours."""
    alone = Alone()
    alone.look(page(), None)
    alone.ended(ok=True)
    assert alone.look(page([1.0, 1.0], [1.0, 1.0], [1.0, 1.0]), 1e9) == {}


def test_times_that_cannot_be_true_are_left_out():
    """Queue and prefill end before the first token; a restarted server and a failed request begin anew."""
    alone = Alone()
    alone.look(page(), None)
    alone.ended(ok=True)
    assert alone.look(page([1.0], [1.0], [1.0]), 2000.0 - ROUNDING_MS - 0.1) == {}
    alone.ended(ok=True)
    assert alone.look(page(), 1e9) == {}, "restarted"
    alone.ended(ok=False)
    alone.ended(ok=True)
    assert alone.look(page([1.0], [1.0], [1.0]), 1e9) == {}, "failed before"
    alone.ended(ok=True)
    assert alone.look(page([1.0, 2.0], [1.0, 2.0], [1.0, 2.0]), 1e9)["decode_ms"] == 2000.0


def test_a_time_that_is_not_counted_is_absent():
    """A server that counts the queue alone tells the queue alone, and one that counts no such time is not asked."""
    assert tells(page())
    assert tells(parse("tgi_batch_current_size 1\ntgi_request_queue_duration_count 0"))
    assert not tells(parse("llamacpp:requests_processing 0"))
    assert not tells({})
    alone = Alone()
    alone.look(page([], None, None), None)
    alone.ended(ok=True)
    assert alone.look(page([0.5], None, None), 1e9) == {"queue_ms": 500.0}


STEPS = st.lists(st.sampled_from(["ours", "late", "theirs", "two"]), max_size=12)


@given(STEPS)
def test_a_time_that_is_told_is_the_requests_own(steps):
    """Whatever happens in between: every time told is that of the request that had just ended.

    One of somebody else's in exactly the place of a late one of ours cannot be told apart; it does not occur here.
    """
    alone, counted, late, told = Alone(), [], [], 0
    alone.look(page(), None)
    for number, step in enumerate(steps, 1):
        mine = number / 1000
        alone.ended(ok=True)
        if step == "two":
            alone.ended(ok=True)
            counted.append(100.0)
        if step == "theirs":
            counted.append(200.0)
        if step == "late":
            late.append(mine)
        else:
            counted += [*late, mine]
            late = []
        found = alone.look(page(counted, counted, counted), 1e9)
        assert not found or {round(value, 6) for value in found.values()} == {float(number)}, steps[:number]
        told += bool(found)
    assert told >= (steps == ["ours"] * len(steps)) * len(steps)
