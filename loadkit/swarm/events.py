"""The custom events: one Locust EventHook each, fired on the process that measured, with builtin values only.

Subscribe in a locustfile with `events.ttft.add_listener(function)`; a listener takes keyword arguments and should end
with `**kwargs`. Every hook but `stage` and `retry` fires once per request, and a listener that raises loses nothing:
it is logged, the next one is called, and the records are written before any of them.

    ttft(request_id, cell, phase, ttft_ms)            first token; not fired for a request without one
    itl(request_id, cell, phase, itl_ms)              the gaps between token events, a list
    outcome(request_id, cell, phase, outcome, code)   how it ended; code is the HTTP status or None
    retry(request_id, cell, outcome, code, wait_ms)   once per attempt that was followed by another
    record(record)                                    the whole record as a dict; the writer listens to this one
    stage(run_id, cell, visit, state)                 a visit opened or closed: "open", "done", "ended" (429), "stopped"
"""

from locust.event import EventHook
from locust.exception import InterruptTaskSet, RescheduleTask, RescheduleTaskImmediately, StopTest, StopUser

import logging
from collections.abc import Callable
from typing import Any

# What Locust lets a listener raise to steer the user that fired.
STEERING = (StopUser, StopTest, RescheduleTask, RescheduleTaskImmediately, InterruptTaskSet)

Listener = Callable[..., Any]


def stronger(first: BaseException | None, second: BaseException) -> BaseException:
    """Of two things that were raised the one to go on with: a kill before what ends the user, and that before the rest.

    Of equals the first. A user that is killed while a listener asks for another task would else live on.
    """
    return second if first is None or _strength(second) > _strength(first) else first


def _strength(error: BaseException) -> int:
    return 2 if not isinstance(error, Exception) else int(isinstance(error, (StopUser, StopTest)))


class Hook(EventHook):
    """An EventHook that calls every listener, whatever the ones before it raised.

    Locust's own ends the round where a listener raises StopUser or where the user is killed while one runs, and it
    changes the exit code for any other exception. Here what steers is raised when all have been called.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged: set[Listener] = set()

    def add_first(self, listener: Listener) -> None:
        """Call this listener before those that are there already."""
        self._handlers.insert(0, listener)

    def fire(self, *, reverse: bool = False, **kwargs: Any) -> None:
        """Call the listeners with the keyword arguments."""
        steering: BaseException | None = None
        for listener in self._handlers[::-1] if reverse else self._handlers.copy():
            try:
                listener(**kwargs)
            except BaseException as error:  # noqa: BLE001 - logged, or raised below
                if isinstance(error, Exception) and not isinstance(error, STEERING):
                    self._log(listener)
                else:
                    steering = stronger(steering, error)
        if steering is not None:
            raise steering

    def _log(self, listener: Listener) -> None:
        # Once each: a traceback per request would take longer than what is measured.
        if listener not in self._logged:
            self._logged.add(listener)
            logging.exception("a listener raised; this is said once, it will be called again")


ttft = Hook()
itl = Hook()
outcome = Hook()
retry = Hook()
record = Hook()
stage = Hook()


def announce(row: dict[str, Any]) -> None:
    """Fire the events of one finished request, the record first, so that it is kept whatever a listener does.

    All are fired; what steers the user, such as StopUser, is raised after the last one.
    """
    about = {"request_id": row["request_id"], "cell": row["cell"]}
    phased = {**about, "phase": row["phase"]}
    calls: list[tuple[Hook, dict[str, Any]]] = [(record, {"record": row})]
    for attempt in row["attempts"][:-1]:
        tried = {"outcome": attempt["outcome"], "code": attempt["http_status"], "wait_ms": attempt["wait_ms"]}
        calls.append((retry, {**about, **tried}))
    if row["ttft_ms"] is not None:
        calls.append((ttft, {**phased, "ttft_ms": row["ttft_ms"]}))
        calls.append((itl, {**phased, "itl_ms": list(row["itl_ms"] or [])}))
    calls.append((outcome, {**phased, "outcome": row["outcome"], "code": row["http_status"]}))
    steering: BaseException | None = None
    for hook, words in calls:
        try:
            hook.fire(**words)
        except BaseException as error:  # noqa: BLE001 - raised below
            steering = stronger(steering, error)
    if steering is not None:
        raise steering
