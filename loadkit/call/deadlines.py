"""When an attempt must end, and as what: a pure function of its marks. Each wait has a name of its own.

Only a generated token satisfies the first-token deadline: keep-alives, comments and role deltas do not. After it,
keep-alives and comments are silence too.
"""

from dataclasses import dataclass

from loadkit.plan.endpoint import Timeouts
from loadkit.record.names import Outcome

WRITE_S = 300.0  # a 6 MB body over 160 kbit/s
REFUSAL_S = 10.0  # the body of an answer that is not a 200 explains it; it is not worth a longer wait
FINISH_S = 5.0  # usage and [DONE] follow a finish reason at once, or never


@dataclass(slots=True)
class Marks:
    """What has happened so far in one attempt, in ns of perf_counter; None = not yet."""

    started: int
    t0: int | None = None
    sent: int | None = None
    head: int | None = None
    status: int | None = None
    first_read: int | None = None
    last_event: int | None = None  # the last read that completed a data event: comments and pings are silence
    first_token: int | None = None
    finish: int | None = None


def next_deadline(timeouts: Timeouts, marks: Marks) -> tuple[int, Outcome]:
    """The earliest moment (ns) at which the attempt must end, and its outcome then; OK = it was complete already.

    `timeouts` are those of the tier (`Timeouts.for_tier`). The total counts from t0, the gap from the last
    read that held an event.
    """
    if marks.t0 is None:
        return _after(marks.started, timeouts.connect), Outcome.CONNECT_TIMEOUT
    due = _phase(timeouts, marks, marks.t0)
    if timeouts.total is not None:
        last = _after(marks.t0, timeouts.total)
        if last < due[0]:
            return last, Outcome.TOTAL_TIMEOUT
    return due


def _phase(timeouts: Timeouts, marks: Marks, t0: int) -> tuple[int, Outcome]:
    if marks.head is not None and marks.status != 200:
        return _after(marks.head, REFUSAL_S), Outcome.READ_TIMEOUT
    if marks.finish is not None:
        return _after(marks.finish, FINISH_S), Outcome.OK
    if marks.first_token is not None:
        return _after(marks.last_event or marks.first_token, timeouts.read), Outcome.READ_TIMEOUT
    if marks.sent is None and marks.head is None:
        return _after(t0, min(WRITE_S, timeouts.ttft)), Outcome.WRITE_TIMEOUT
    return _after(t0, timeouts.ttft), Outcome.TTFT_TIMEOUT


def _after(ns: int, seconds: float) -> int:
    return ns + int(seconds * 1e9)
