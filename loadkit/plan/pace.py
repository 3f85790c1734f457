"""How long things take by choice: times as options give them, and the pause of a stream between two requests."""

import random
import re
from typing import Any

from loadkit.plan.errors import ConfigError
from loadkit.plan.given import Given
from loadkit.plan.ladder import Plan, Visit
from loadkit.plan.stages import Ticket

SECONDS_PER_UNIT = {"ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
SHORTEST_S = 0.1
LONGEST_S = 30 * 86_400.0
LONGEST_THINK_S = 3600.0


def parse_seconds(name: str, text: str, low: float = 0.0, high: float = LONGEST_S) -> float:
    """'500ms', '20s', '10m' or '2h' in seconds; a bare number is seconds. ConfigError outside [low, high]."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|)", text.strip())
    value = float(match[1]) * SECONDS_PER_UNIT[match[2]] if match else None
    if value is None or not low <= value <= high:
        raise ConfigError(
            f"{name} {text[:40]!r}: must be a time from {low:g} s to {high:g} s, such as 500ms, 20s, 10m or 2h"
        )
    return value


def parse_think(text: str) -> tuple[float, float]:
    """'500ms' or '0.2s..1s' as the least and the most seconds of a pause."""
    low, dots, high = text.partition("..")
    least = parse_seconds("--think", low, 0.0, LONGEST_THINK_S)
    most = parse_seconds("--think", high, 0.0, LONGEST_THINK_S) if dots else least
    if most < least:
        raise ConfigError(f"--think {text[:40]!r}: the range ends before it begins")
    return least, most


def think_s(plan: Plan, visit: Visit, ticket: Ticket) -> float:
    """Seconds a stream pauses before this request: the same for the same seed, whatever the workers."""
    least, most = plan.think_s
    if least == most:
        return least
    key = (plan.seed, visit.cell.id, visit.attempt, visit.round, ticket.slot, ticket.phase.value, ticket.turn)
    return random.Random("/".join(map(str, key))).uniform(least, most)


def pace_of(options: Given) -> dict[str, Any]:
    """The fields of the plan that are times and budgets of tokens and money, as they were given."""
    if options.text("duration") is not None and options.text("rounds") is not None:
        raise ConfigError("--duration and --rounds both say how long a cell is measured: keep one")
    think = options.text("think")
    if think is not None and options.text("rate") is not None:
        raise ConfigError("--think is a pause of streams and --rate sends whatever the streams do: keep one")
    return {
        "duration_s": _time(options, "duration"),
        "think_s": (0.0, 0.0) if think is None else parse_think(think),
        "max_duration_s": _time(options, "max-duration"),
        "budget_tokens": options.number("budget-tokens", int, 1, 10**15),
        "budget_cost": options.number("budget-cost", float, 1e-9, 1e12),
    }


def _time(options: Given, name: str) -> float | None:
    text = options.text(name)
    return None if text is None else parse_seconds(f"--{name}", text, SHORTEST_S)
