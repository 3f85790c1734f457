"""A load that changes by a list of stages, as k6 and Locust have them: steps, ramps and spikes.

`60s:1,30s:8,60s:1` is a spike of streams, `60s:1-8` a ramp, `60s:2rps,10s:20rps` the same of an open loop. A ramp is a
staircase: a load that changes while it is measured has no number of its own. Every step is a cell of its own, also one
that comes to a load for the second time, so that before and after a spike stay apart.
"""

import re
from dataclasses import dataclass
from math import floor
from typing import Any

from loadkit.plan import rates
from loadkit.plan.errors import ConfigError
from loadkit.plan.given import Given
from loadkit.plan.ladder import Cell
from loadkit.plan.pace import parse_seconds
from loadkit.plan.tiers import fit_tier, parse_tiers

MOST_STEPS = 20  # of one ramp
SHORTEST_STEP_S = 1.0
MOST_STAGES = 500
MOST_STREAMS = 10_000
SHOWN = "must be TIME:LOAD, such as 60s:1,30s:8,60s:1, a ramp 60s:1-8, or rates 60s:2rps"
NOT_WITH_STAGES = ("concurrency", "plan", "rounds", "duration", "rate", "refine")

_STAGE = re.compile(r"\s*([^:,]+):\s*([0-9.]+)(?:\s*-\s*([0-9.]+))?\s*(rps)?\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Step:
    """So many seconds at one load: streams, or requests/s where `rate` is true."""

    seconds: float
    load: float
    rate: bool


def parse_stages(text: str) -> tuple[Step, ...]:
    """The steps of a list of stages, in order; ramps are made of steps. ConfigError says what is wrong."""
    steps: list[Step] = []
    for item in text.split(","):
        match = _STAGE.fullmatch(item)
        if match is None:
            raise ConfigError(f"--stages {item.strip()[:40]!r}: {SHOWN}")
        seconds = parse_seconds("--stages", match[1], SHORTEST_STEP_S)
        rate = match[4] is not None
        low = _load(item, match[2], rate)
        high = low if match[3] is None else _load(item, match[3], rate)
        steps += _ramp(seconds, low, high, rate)
    if len({step.rate for step in steps}) > 1:
        raise ConfigError("--stages: streams and rates (rps) are two kinds of load: keep to one")
    if len(steps) > MOST_STAGES:
        raise ConfigError(f"--stages: {len(steps)} steps are more than {MOST_STAGES}: name fewer")
    return tuple(steps)


def _load(item: str, text: str, rate: bool) -> float:
    plain = re.fullmatch(r"[0-9]*\.?[0-9]+" if rate else r"[0-9]{1,6}", text)
    if plain is None or not 0 < float(text) <= (rates.HIGHEST_RATE if rate else MOST_STREAMS):
        kind = (
            f"requests per second above 0, at most {rates.HIGHEST_RATE:g}" if rate else f"1 to {MOST_STREAMS} streams"
        )
        raise ConfigError(f"--stages {item.strip()[:40]!r}: the load must be {kind}")
    return float(f"{float(text):.6g}")


def _ramp(seconds: float, low: float, high: float, rate: bool) -> list[Step]:
    """The steps of a ramp: as many as there are whole loads (20 at most), none shorter than a second."""
    if low == high:
        return [Step(seconds, low, rate)]
    wanted = MOST_STEPS if rate else min(MOST_STEPS, int(abs(high - low)) + 1)
    count = max(2, min(wanted, floor(seconds / SHORTEST_STEP_S)))
    loads = [low + (high - low) * number / (count - 1) for number in range(count)]
    return [Step(seconds / count, float(f"{load:.6g}") if rate else float(round(load)), rate) for load in loads]


def staged(options: Given, usual_tier: int, window: int | None, max_tokens: int) -> dict[str, Any]:
    """Name, cells and what else of the plan follows from --stages; nothing where they are not given."""
    text = options.text("stages")
    if text is None:
        return {}
    for name in NOT_WITH_STAGES:
        if options.text(name) is not None:
            raise ConfigError(f"--{name} does not go with --stages, which say how much load and how long: keep one")
    if options.flag("rate-search"):
        raise ConfigError("--rate-search looks for a rate and --stages name them: keep one")
    tiers = parse_tiers(options.text("tiers") or str(usual_tier))
    if len(tiers) > 1:
        raise ConfigError("--stages are of one prompt length: name one with --tiers")
    steps = parse_stages(text)
    open_loop = steps[0].rate
    if not open_loop and (options.text("arrivals") or options.text("max-in-flight")):
        raise ConfigError(
            "--arrivals and --max-in-flight are about an open loop: give --stages rates, such as 60s:2rps"
        )
    if open_loop and options.text("think") is not None:
        raise ConfigError("--think is a pause of streams and a rate sends whatever the streams do: keep one")
    slots = rates.slots_of(options)
    target = fit_tier(tiers[0], window, max_tokens)
    cells = tuple(
        Cell(
            tiers[0],
            slots if step.rate else int(step.load),
            target,
            step.load if step.rate else None,
            stage=number,
            seconds=step.seconds,
        )
        for number, step in enumerate(steps, 1)
    )
    kind = {"arrivals": rates.kind_of(options)} if open_loop else {}
    if open_loop and (most := sum(step.load * step.seconds for step in steps)) > rates.MOST_ARRIVALS:
        raise ConfigError(f"--stages: {most:,.0f} requests are more than {rates.MOST_ARRIVALS:,}: shorten them")
    return {"name": "stages", "cells": cells, "rounds": 1, "refine": 0, **kind}
