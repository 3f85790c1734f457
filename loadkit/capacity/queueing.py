"""Is it consistent, and how long does it wait: Little's law, Erlang's formula, and where a queue begins.

A batching engine is no M/M/c queue: the time of service itself grows with the load. Erlang's waiting probability is
therefore a bound to check an answer with, never a prediction.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from loadkit.capacity.inputs import InputError, not_negative, positive

ELASTIC = 1.0  # TTFT that grows faster than the load waits in a queue
SATURATED = 0.95  # of the greatest throughput


def residence_s(ttft_s: float, gap_s: float, output_tokens: float) -> float:
    """Seconds a request is in the system: TTFT and a gap before each later token."""
    return not_negative("TTFT", ttft_s) + max(positive("output tokens", output_tokens) - 1, 0) * gap_s


def in_flight(requests_per_s: float, ttft_s: float, gap_s: float, output_tokens: float) -> float:
    """Requests in the system on average, N = X R (Little, 1961): what a result table must agree with."""
    return not_negative("requests/s", requests_per_s) * residence_s(ttft_s, gap_s, output_tokens)


def running(requests_per_s: float, unqueued_ttft_s: float, gap_s: float, output_tokens: float) -> float:
    """Of those in the system, the ones that are served: Little's law with a TTFT in which nothing waited."""
    return in_flight(requests_per_s, unqueued_ttft_s, gap_s, output_tokens)


@dataclass(frozen=True, slots=True)
class Wait:
    """M/M/c: offered load in servers, the share that waits, and how long all wait on average (s)."""

    offered: float
    servers: int
    service_s: float
    p_wait: float
    mean_s: float

    @property
    def utilisation(self) -> float:
        """Offered load per server; from 1 on the queue grows without end."""
        return self.offered / self.servers

    def quantile_s(self, q: float) -> float:
        """The wait (s) that a share q of all requests does not exceed: P(W > t) = p_wait exp(-(c - a) t / S)."""
        if not 0 < q < 1:
            raise InputError(f"a quantile lies between 0 and 1, it is {q!r}")
        if self.offered >= self.servers:
            return math.inf
        if self.p_wait <= 1 - q:
            return 0.0
        return self.service_s / (self.servers - self.offered) * math.log(self.p_wait / (1 - q))


def waiting(arrivals_per_s: float, service_s: float, servers: int) -> Wait:
    """Erlang-C for `servers` slots: P(wait), mean wait P S / (c - a), a = arrivals x service. p_wait 1 and an infinite
    wait from an offered load of `servers` on. The blocking recursion is stable for thousands of slots."""
    offered = positive("arrivals/s", arrivals_per_s) * positive("service time", service_s)
    if servers < 1:
        raise InputError(f"at least one slot is needed, not {servers}")
    if offered >= servers:
        return Wait(offered, servers, service_s, 1.0, math.inf)
    blocked = 1.0
    for slot in range(1, servers + 1):
        blocked = offered * blocked / (slot + offered * blocked)
    p_wait = blocked / (1 - offered / servers * (1 - blocked))
    return Wait(offered, servers, service_s, p_wait, p_wait * service_s / (servers - offered))


@dataclass(frozen=True, slots=True)
class Onset:
    """Where TTFT begins to grow faster than the load. `last_good` and `first_bad` are measured loads, None without.

    `cold_start`: the first load was slower than the second, so it met a cold server and is left out.
    """

    last_good: float | None
    first_bad: float | None
    cold_start: bool


def onset(loads: Sequence[float], ttft: Sequence[float]) -> Onset:
    """The last measured load before the elasticity d ln TTFT / d ln load exceeds 1, from one TTFT (any unit) per load.

    It needs no repeats, so that published tables can be read; `analysis.knee` says how sure a knee is where there are
    some. All five published series of its test are reproduced.
    """
    pairs = sorted(zip(loads, ttft, strict=True))
    for load, time in pairs:
        positive("load", load)
        positive("TTFT", time)
    if len({load for load, _ in pairs}) < len(pairs):
        raise InputError("a load is given twice")
    cold = len(pairs) > 2 and pairs[0][1] > pairs[1][1]
    pairs = pairs[1:] if cold else pairs
    for (load, time), (higher, later) in pairwise(pairs):
        if math.log(later / time) > ELASTIC * math.log(higher / load):
            return Onset(load, higher, cold)
    return Onset(pairs[-1][0] if pairs else None, None, cold)


def saturation(loads: Sequence[float], throughput: Sequence[float]) -> tuple[float, float]:
    """(lowest load with 95 % of the greatest throughput, load of the greatest one)."""
    top = max(zip(throughput, [-load for load in loads], strict=True))
    enough = [load for load, rate in zip(loads, throughput, strict=True) if rate >= SATURATED * top[0]]
    return min(enough), -top[1]
