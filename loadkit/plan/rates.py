"""The options of an open loop: rates, how requests arrive, how long, and how many streams there may be at once."""

import re
from typing import Any

from loadkit.plan.arrivals import KINDS
from loadkit.plan.errors import ConfigError
from loadkit.plan.given import Given
from loadkit.plan.text import duration

START_RATE = 1.0  # where a search begins that names no rate
DURATION_S = 60.0
MAX_IN_FLIGHT = 128
LEAST_ARRIVALS = 10  # expected in a cell; fewer say nothing about a rate
MOST_ARRIVALS = 1_000_000
HIGHEST_RATE = 1e5
NOT_IN_OPEN_LOOP = {
    "concurrency": "an open loop has as many streams as its requests take: use --max-in-flight",
    "plan": "a named plan keeps streams in flight: use --tiers",
    "rounds": "an open loop is measured for a time: use --duration",
    "refine": "--refine adds tiers at concurrency 1",
}


def rates_of(options: Given) -> tuple[float, ...]:
    """The rates (requests/s) to measure, ascending; none for a closed loop. ConfigError where options do not agree."""
    text = options.text("rate")
    if options.text("stages") is not None:
        return ()
    if text is None and not options.flag("rate-search"):
        for name in ("arrivals", "max-in-flight"):
            if options.text(name) is not None:
                raise ConfigError(f"--{name} is about an open loop: give it a --rate")
        return ()
    for name, why in NOT_IN_OPEN_LOOP.items():
        if options.text(name) is not None:
            raise ConfigError(f"--{name} does not go with --rate: {why}")
    return (START_RATE,) if text is None else _rates(text)


def _rates(text: str) -> tuple[float, ...]:
    items = [item.strip() for item in text.split(",")]
    plain = all(re.fullmatch(r"[0-9]*\.?[0-9]+|[0-9]+\.", item) for item in items)
    if not plain or not all(0 < float(item) <= HIGHEST_RATE for item in items):
        raise ConfigError(
            f"--rate {text[:40]!r}: must be requests per second above 0, at most {HIGHEST_RATE:g}, such as 2.5 or 1,2,4"
        )
    return tuple(sorted({float(f"{float(item):.6g}") for item in items}))


def slots_of(options: Given) -> int:
    """The most streams of an open loop at once."""
    return options.number("max-in-flight", int, 1, 10_000) or MAX_IN_FLIGHT


def kind_of(options: Given) -> str:
    """How the requests of an open loop arrive."""
    kind = options.text("arrivals") or "poisson"
    if kind not in KINDS:
        raise ConfigError(f"--arrivals {kind[:40]!r}: must be one of {', '.join(KINDS)}")
    return kind


def open_loop(options: Given, rates: tuple[float, ...], duration_s: float | None) -> dict[str, Any]:
    """The fields of the plan that only an open loop has, `duration_s` as it was given."""
    kind = kind_of(options)
    seconds = DURATION_S if duration_s is None else duration_s
    if rates[0] * seconds < LEAST_ARRIVALS:
        raise ConfigError(
            f"--rate {rates[0]:g} for {duration(seconds)} is fewer than {LEAST_ARRIVALS} requests: "
            f"give it a --duration of {LEAST_ARRIVALS / rates[0]:.3g}s or more"
        )
    if rates[-1] * seconds > MOST_ARRIVALS:
        raise ConfigError(
            f"--rate {rates[-1]:g} for {duration(seconds)} is more than {MOST_ARRIVALS:,} requests: shorten --duration"
        )
    return {"arrivals": kind, "duration_s": seconds, "rate_search": options.flag("rate-search")}
