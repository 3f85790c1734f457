"""Deadlines as a pure function of marks: each wait ends as itself."""

import pytest

from loadkit.call.attempt import Attempt
from loadkit.call.deadlines import FINISH_S, REFUSAL_S, WRITE_S, Marks, next_deadline
from loadkit.plan.endpoint import Timeouts
from loadkit.protocol import PROTOCOLS
from loadkit.record.names import Outcome

S = 1_000_000_000
LIMITS = Timeouts(connect=10, ttft=600, read=30, total=3600, ttft_scales=False)


def due(limits=LIMITS, **marks):
    """(seconds, outcome) of the next deadline for marks given in seconds; `status` as it is."""
    in_ns = {name: value if name == "status" else value * S for name, value in marks.items()}
    ns, outcome = next_deadline(limits, Marks(**in_ns))
    return ns / S, outcome


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({"started": 5}, (15, Outcome.CONNECT_TIMEOUT)),
        ({"started": 5, "t0": 8}, (8 + WRITE_S, Outcome.WRITE_TIMEOUT)),
        ({"started": 5, "t0": 8, "sent": 9}, (608, Outcome.TTFT_TIMEOUT)),
        ({"started": 5, "t0": 8, "sent": 9, "head": 10, "status": 200}, (608, Outcome.TTFT_TIMEOUT)),
        ({"started": 5, "t0": 8, "head": 10, "status": 200}, (608, Outcome.TTFT_TIMEOUT)),
        ({"started": 5, "t0": 8, "sent": 9, "head": 10, "status": 503}, (10 + REFUSAL_S, Outcome.READ_TIMEOUT)),
    ],
)
def test_the_wait_before_a_token(marks, expected):
    """Connect counts from the start, write and first token from t0; a refusal need not be read for long."""
    assert due(**marks) == expected


STREAMING = {"started": 0, "t0": 1, "sent": 2, "head": 3, "status": 200}


def test_keep_alives_do_not_move_the_first_token_deadline():
    """Reads without a token, as many and as late as they come, change nothing."""
    assert due(**STREAMING, first_read=10, last_event=599) == (601, Outcome.TTFT_TIMEOUT)


def test_after_the_first_token_the_gap_counts():
    """Each event moves the read deadline, which is no longer the first token's."""
    assert due(**STREAMING, first_token=50, last_event=50) == (80, Outcome.READ_TIMEOUT)
    assert due(**STREAMING, first_token=50, last_event=700) == (730, Outcome.READ_TIMEOUT)


def test_the_total_ends_what_trickles():
    """However often bytes come, the total from t0 stands."""
    assert due(**STREAMING, first_token=50, last_event=3590) == (3601, Outcome.TOTAL_TIMEOUT)


def test_after_the_finish_reason_nothing_is_waited_for_long():
    """An answer that has finished is complete: the wait for [DONE] and usage ends as ok."""
    assert due(**STREAMING, first_token=50, last_event=60, finish=60) == (60 + FINISH_S, Outcome.OK)


def test_a_short_first_token_limit_bounds_the_upload_too():
    """While the body is still going out, the write is what is late."""
    limits = Timeouts(ttft=5, total=100)
    assert due(limits, started=0, t0=1) == (6, Outcome.WRITE_TIMEOUT)


def test_limits_of_a_long_tier():
    """The default first-token limit grows with the tier, and the total with it."""
    limits = Timeouts().for_tier(1_048_576)
    assert due(limits, **STREAMING) == (4801, Outcome.TTFT_TIMEOUT)
    assert due(limits, **STREAMING, first_token=4800, last_event=8000) == (8401, Outcome.TOTAL_TIMEOUT)


def test_a_deadline_is_settled_only_while_it_can_but_move_on():
    """Before the first token and after the finish an earlier deadline may come, so the transport has to ask."""
    attempt = Attempt(PROTOCOLS["openai-chat"], LIMITS, 0, lambda: None)
    attempt.sending(1 * S)
    attempt.sent(2 * S)
    attempt.head(3 * S, 200, [("content-type", "text/event-stream")])
    settled = [attempt.settled]
    for at, delta in enumerate(["{}", '{"content": "a"}', '{"content": "b"}', '{}, "finish_reason": "stop"'], 4):
        attempt.read(at * S, b'data: {"choices": [{"delta": ' + delta.encode() + b"}]}\n\n")
        settled.append(attempt.settled)
    assert settled == [False, False, True, True, False]
    assert attempt.deadline(9 * S) == (round((7 + FINISH_S) * S), Outcome.OK)
