"""Whether a number may be used: the load generator must have been healthy and must have kept to its plan.

Plain values in, a verdict with reasons out; the same rules live and offline.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from loadkit.record.names import ExitCode

Status = Literal["valid", "suspect", "invalid"]
ORDER: tuple[Status, ...] = ("valid", "suspect", "invalid")


@dataclass(frozen=True, slots=True)
class Validity:
    """A verdict. `reasons` are sentences for people; a valid verdict has none."""

    status: Status = "valid"
    reasons: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HealthLimit:
    """Where a client stops being healthy: lag above max(lag_ms, itl_share * ITL), or CPU above cpu."""

    status: Status
    lag_ms: float
    itl_share: float
    cpu: float


# The stricter first: the first limit that is passed gives the verdict.
HEALTH_LIMITS = (HealthLimit("invalid", 5.0, 0.25, 0.90), HealthLimit("suspect", 1.0, 0.05, 0.70))


def client_health(lag_p99_ms: float | None, itl_ms: float | None, cpu: float | None) -> Validity:
    """The verdict on the load generator, of the worst process.

    lag_p99_ms: p99 of how late its event loop woke; itl_ms: the ITL (p50) it had to resolve, None where streams had
    no gaps; cpu: its share of one core, 1.0 = all of it. Health that was not measured is suspect.
    """
    return worst(_lag(lag_p99_ms, itl_ms), _cpu(cpu))


def cell_validity(planned_users: int, live_users: Sequence[int], workers_lost: int, *health: Validity) -> Validity:
    """The verdict on a cell: planned users were live in every sample of the window, no worker lost, client healthy.

    live_users: samples of the live users over the measured window, all workers together; none at all is suspect.
    health: verdicts of `client_health`, one per worker or one for all.
    """
    return worst(_users(planned_users, live_users), _workers(workers_lost), *health)


def worst(*verdicts: Validity) -> Validity:
    """The verdicts as one: the worst status, and every reason once."""
    if not verdicts:
        return Validity()
    status = max((verdict.status for verdict in verdicts), key=ORDER.index)
    reasons = dict.fromkeys(reason for verdict in verdicts for reason in verdict.reasons)
    return Validity(status, list(reasons))


def exit_code(
    *,
    usage: bool = False,
    target: bool = False,
    stopped: bool = False,
    saturated: bool = False,
    incomplete: bool = False,
    slo_failed: bool = False,
) -> int:
    """The exit code of a run: the first that applies in the order of `ExitCode.CHECKED`, 0 when none does.

    usage: usage or configuration; target: unreachable, unauthorised or wrong model; stopped: by a signal, after
    draining; saturated: the load generator was the limit; incomplete: budget, lost worker or invalid cell.
    """
    applies = {
        ExitCode.USAGE: usage,
        ExitCode.TARGET: target,
        ExitCode.STOPPED: stopped,
        ExitCode.SATURATED: saturated,
        ExitCode.INCOMPLETE: incomplete,
        ExitCode.SLO_FAILED: slo_failed,
        ExitCode.COMPLETE: True,
    }
    return next(code for code in ExitCode.CHECKED if applies[code])


def _lag(lag_p99_ms: float | None, itl_ms: float | None) -> Validity:
    if lag_p99_ms is None:
        return Validity("suspect", ["event loop lag was not measured"])
    for limit in HEALTH_LIMITS:
        allowed = max(limit.lag_ms, limit.itl_share * (itl_ms or 0.0))
        if lag_p99_ms > allowed:
            return Validity(limit.status, [f"event loop lag p99 {lag_p99_ms:.3g} ms is above {allowed:.3g} ms"])
    return Validity()


def _cpu(cpu: float | None) -> Validity:
    if cpu is None:
        return Validity("suspect", ["CPU of the load generator was not measured"])
    for limit in HEALTH_LIMITS:
        if cpu > limit.cpu:
            return Validity(limit.status, [f"load generator CPU {cpu:.0%} is above {limit.cpu:.0%} of a core"])
    return Validity()


def _users(planned: int, live: Sequence[int]) -> Validity:
    if not live:
        return Validity("suspect", ["live users were not sampled"])
    wrong = [users for users in live if users != planned]
    if wrong:
        return Validity("invalid", [f"{wrong[0]} live users where {planned} were planned"])
    return Validity()


def _workers(lost: int) -> Validity:
    if not lost:
        return Validity()
    return Validity("invalid", [f"{lost} worker{'s' if lost > 1 else ''} lost"])
