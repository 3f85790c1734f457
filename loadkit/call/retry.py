"""When a request is tried again: a table, a back-off, and a budget that keeps the generator from feeding an overload.

This is the only layer that retries; the transports do not (but for a stale connection, which no server has refused).
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from loadkit.record.names import Outcome


class When(Enum):
    """On what condition an outcome is tried again."""

    BEFORE_TOKEN = "before_token"  # nothing generated yet: a refusal, or an in-band error that came first
    IF_ASKED = "if_asked"  # no connection: only where the user asked for it


# Outcomes not named here are final: 400, 401, 403, 404, 413, 422, quota_exhausted, other 5xx, timeouts, cut streams.
TABLE: Mapping[Outcome, When] = MappingProxyType(
    {
        Outcome.RATE_LIMITED: When.BEFORE_TOKEN,
        Outcome.OVERLOADED: When.BEFORE_TOKEN,
        Outcome.CONNECT_ERROR: When.IF_ASKED,
        Outcome.CONNECT_TIMEOUT: When.IF_ASKED,
        Outcome.DNS_ERROR: When.IF_ASKED,
    }
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Attempts in all, and the back-off in seconds. By default the waits can outlast a rate limit's window of a minute.

    `cap_s` is also the longest Retry-After that is honoured: a longer one ends the request, it is never cut short.
    """

    max_attempts: int = 6
    base_s: float = 4.0
    cap_s: float = 60.0
    connect_faults: bool = False
    lengthens: bool = True  # after a 429; False where concurrency can still be lowered, which comes first


NO_RETRY = RetryPolicy(max_attempts=1)


class RetryBudget:
    """A token bucket for a whole run: retries stay within `reserve` plus `ratio` of the first attempts."""

    def __init__(self, ratio: float = 0.2, reserve: float = 5.0) -> None:
        self._ratio = ratio
        self._tokens = reserve

    def first_attempt(self) -> None:
        """A request is sent for the first time."""
        self._tokens += self._ratio

    def take(self) -> bool:
        """Pay for one retry; False when the budget is spent."""
        # The small allowance is for the rounding of sums such as 5 * 0.2.
        if self._tokens < 1 - 1e-9:
            return False
        self._tokens -= 1
        return True


@dataclass(frozen=True, slots=True)
class Ending:
    """What the table needs to know of an attempt that has ended. `final` overrides it: waiting could not help."""

    outcome: Outcome
    tokens: bool = False
    final: bool = False
    retry_after_s: float | None = None


def backoff_s(policy: RetryPolicy, attempt: int, rng: random.Random) -> float:
    """Full jitter: uniform between 0 and base * 2**(attempt - 1), capped. `attempt` is the one that ended, from 1."""
    return rng.uniform(0, min(policy.cap_s, policy.base_s * 2 ** min(attempt - 1, 32)))


def next_wait_s(
    policy: RetryPolicy, budget: RetryBudget, rng: random.Random, attempt: int, ending: Ending
) -> float | None:
    """Seconds to wait before the next attempt, or None when this one was the last.

    A stated Retry-After is honoured, never undercut, and spread by a tenth so that users do not return in step.
    """
    when = TABLE.get(ending.outcome)
    if when is None or ending.final or ending.tokens or attempt >= policy.max_attempts:
        return None
    if when is When.IF_ASKED and not policy.connect_faults:
        return None
    stated = ending.retry_after_s
    if stated is not None and stated > policy.cap_s:
        return None
    if not budget.take():
        return None
    if stated is None:
        short = ending.outcome is Outcome.RATE_LIMITED and not policy.lengthens
        return backoff_s(policy, 1 if short else attempt, rng)
    return stated * (1 + 0.1 * rng.random())
