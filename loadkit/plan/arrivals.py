"""When the requests of an open loop are due: one absolute schedule, made before the first of them. Pure.

Nothing that a server or a client does moves a time of it: a request that is sent late is late by the schedule, so the
waiting that a slow server causes stays in the numbers (the trap called coordinated omission).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

NS = 1_000_000_000


class Arrival(NamedTuple):
    """One request of a schedule: its number, from 1, and when it is due (ns after the start)."""

    number: int
    due_ns: int


def _constant(rate: float, _: random.Random) -> Iterator[int]:
    """One every 1/rate s, the first at once. Each time is worked out from its number, so nothing adds up."""
    return (round(number * NS / rate) for number in count())


def _poisson(rate: float, rng: random.Random) -> Iterator[int]:
    """A Poisson process: independent gaps, exponentially distributed with mean 1/rate s."""
    at = 0.0
    while True:
        at += rng.expovariate(rate)
        yield round(at * NS)


KINDS: dict[str, Callable[[float, random.Random], Iterator[int]]] = {"constant": _constant, "poisson": _poisson}


def schedule(kind: str, rate: float, seconds: float, seed: str) -> tuple[Arrival, ...]:
    """Every arrival before `seconds`, in order; `rate` in requests/s, above 0. Equal arguments, equal schedules."""
    end = round(seconds * NS)
    found = []
    for number, due in enumerate(KINDS[kind](rate, random.Random(seed)), 1):
        if due >= end:
            break
        found.append(Arrival(number, due))
    return tuple(found)


def share(arrivals: Sequence[Arrival], index: int, workers: int) -> tuple[Arrival, ...]:
    """The arrivals of worker `index`, from 0, of so many: every `workers`-th, numbers and times as they are."""
    return tuple(arrivals[index::workers])
