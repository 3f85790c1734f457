"""Whether the numbers of a cell agree with each other and with the plan: load, prompt lengths, reads.

Nothing here can be blamed on the load generator's health; a cell that does not agree is suspect, with the numbers.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from loadkit.analysis.reading import number, numbers, rows
from loadkit.analysis.strata import Stratum
from loadkit.measure.validity import Validity

IN_FLIGHT = 0.10  # a closed loop may fall short of its planned streams by this share, on average over the window
DROPPED = 0.01  # an open loop may miss its schedule by this share
LATE_MS = 50.0  # p99 of how late an open loop may be
LEAST_THOUGHTS = 10  # measured requests per stream, from which on the time they pause can be told
EVENTS_PER_READ = 1.5  # in the median answer: from here on reads show a buffer and not the decoder
DECLARED = {True: 0.0, False: 0.10, None: 0.01}  # prompt tokens off their target, by what the run said of the prompts


class Consistency:
    """What the plan of a run lets one expect; ask `of(stratum, cell)` for what a cell says against it."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        prompts = manifest.get("prompts")
        self._think = think_s(manifest)
        self._own = own_users(manifest)
        tiers = rows(prompts, "tiers") if isinstance(prompts, Mapping) else []
        self._exact = {
            int(tokens): tier["exact"]
            for tier in tiers
            if (tokens := number(tier, "tier_tokens")) is not None and isinstance(tier.get("exact"), bool)
        }

    def of(self, stratum: Stratum, cell: Mapping[str, Any]) -> list[Validity]:
        """A suspect verdict for each thing that does not agree."""
        reasons = [self._load(cell), self._prompts(stratum), _reads(cell)]
        return [Validity("suspect", [reason]) for reason in reasons if reason]

    def _load(self, cell: Mapping[str, Any]) -> str | None:
        """Little's law: streams in flight = requests per second x mean time in flight. Planned streams or a rate."""
        mean, planned = cell["mean_in_flight"], cell["concurrency"]
        if cell["rate"] is not None:
            return _arrivals(cell["arrivals"])
        # A wrong peak is told by itself (`analysis.health`); a single stream may pause between its requests.
        if mean is None or planned == 1 or not cell["ok"] or self._own:
            return None
        if self._think:
            return self._load_with_think(cell)
        if cell["peak_in_flight"] != planned:
            return None
        if mean >= (1 - IN_FLIGHT) * planned:
            return None
        return (
            f"{mean:.2f} streams were in flight on average where {planned} were planned "
            "(Little's law: requests per second x time in flight)"
        )

    def _load_with_think(self, cell: Mapping[str, Any]) -> str | None:
        """The same where streams pause: those in flight and those that pause (rate x mean pause) are the planned ones.

        Only the pauses of measured requests can be counted, so a cell of a few requests per stream says nothing.
        """
        mean, planned, seconds = cell["mean_in_flight"], cell["concurrency"], cell["window_s"]
        if not seconds or cell["n"] < LEAST_THOUGHTS * planned:
            return None
        thinking = cell["n"] / seconds * self._think
        if mean + thinking >= (1 - IN_FLIGHT) * planned:
            return None
        return (
            f"{mean:.2f} streams in flight and {thinking:.2f} pausing on average are fewer than the {planned} planned "
            "(Little's law: requests per second x (time in flight + pause))"
        )

    def _prompts(self, stratum: Stratum) -> str | None:
        """Prompt tokens by the server's usage against those the prompt was built for."""
        if not len(stratum.off_target):
            return None
        allowed = DECLARED[self._exact.get(stratum.tier_tokens)]
        ratios = np.array(stratum.off_target)
        off = np.abs(ratios - 1)
        count = int((off > allowed + 1e-9).sum())
        if not count:
            return None
        worst = 100 * (ratios[int(off.argmax())] - 1)
        told = {True: "exact ones were declared", False: "10 % were allowed", None: "1 % is allowed"}
        return (
            f"the server counted other prompt tokens than were sent in {count} of {len(ratios)} answers "
            f"(up to {worst:+.2f} %, {told[self._exact.get(stratum.tier_tokens)]})"
        )


def _arrivals(load: Mapping[str, Any]) -> str | None:
    """The load that was sent against the schedule of an open loop."""
    if load["dropped"] > DROPPED * load["offered"]:
        return (
            f"{load['dropped']} of {load['offered']} arrivals found no free stream and were dropped: "
            "the load was less than planned (--max-in-flight allows more streams)"
        )
    late = load["late_ms_p99"]
    return f"requests were up to {late:,.0f} ms late by the schedule (p99)" if late and late > LATE_MS else None


def think_s(manifest: Mapping[str, Any]) -> float:
    """Mean pause of a stream between two requests (s), by the plan; 0 where there is none."""
    plan = manifest.get("plan")
    think = numbers(plan, "think_s") if isinstance(plan, Mapping) else []
    return sum(think) / len(think) if len(think) else 0.0


def own_users(manifest: Mapping[str, Any]) -> bool:
    """Whether the run walked no plan: user classes of the caller's own, which may pause as they like."""
    return manifest.get("visits") == []


def _reads(cell: Mapping[str, Any]) -> str | None:
    events = cell["events_per_read"]
    if events is None or events < EVENTS_PER_READ:
        return None
    return f"{events:.2g} events came with each read: a buffer on the way, or a client too slow, hides the gaps"
