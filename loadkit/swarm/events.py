"""The custom events: one Locust EventHook each, fired on the process that measured, with builtin values only.

Subscribe in a locustfile with `events.ttft.add_listener(function)`; a listener takes keyword arguments and should end
with `**kwargs`. Every hook but `stage` and `retry` fires once per request, and a listener that raises loses nothing:
Locust logs it and calls the next one.

    ttft(request_id, cell, phase, ttft_ms)            first token; not fired for a request without one
    itl(request_id, cell, phase, itl_ms)              the gaps between token events, a list
    outcome(request_id, cell, phase, outcome, code)   how it ended; code is the HTTP status or None
    retry(request_id, cell, outcome, code, wait_ms)   once per attempt that was followed by another
    record(record)                                    the whole record as a dict; the writer listens to this one
    stage(run_id, cell, visit, state)                 a visit opened or closed: state is "open", "done" or "stopped"
"""

from locust.event import EventHook

ttft = EventHook()
itl = EventHook()
outcome = EventHook()
retry = EventHook()
record = EventHook()
stage = EventHook()


def announce(row: dict) -> None:
    """Fire the events of one finished request, the record first, so that it is kept whatever a listener does."""
    record.fire(record=row)
    about = {"request_id": row["request_id"], "cell": row["cell"]}
    for attempt in row["attempts"][:-1]:
        retry.fire(**about, outcome=attempt["outcome"], code=attempt["http_status"], wait_ms=attempt["wait_ms"])
    about["phase"] = row["phase"]
    if row["ttft_ms"] is not None:
        ttft.fire(**about, ttft_ms=row["ttft_ms"])
        itl.fire(**about, itl_ms=list(row["itl_ms"] or []))
    outcome.fire(**about, outcome=row["outcome"], code=row["http_status"])
