"""TTFT of a prompt of any length from the tiers of a run at concurrency 1.

Between two measured tiers TTFT is a straight line, unless a knee may lie there: then only its ends are told. Below the
shortest tier a fixed cost may or may not be shared, beyond the longest one attention may or may not take over: the
interval spans both, and the answer says that nothing was measured there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from loadkit.analysis.forecast.span import Span
from loadkit.plan.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Tier:
    """Prompt tokens that were computed, and TTFT in ms: the median, the 90 % interval of it (the range of the requests
    where they are too few for one)."""

    tokens: float
    ms: float
    low: float
    high: float

    @property
    def price(self) -> float:
        """ms per token."""
        return self.ms / self.tokens


@dataclass(frozen=True, slots=True)
class Lengths:
    """The tiers ascending, at least one; `quadratic` are a and b of TTFT = a n + b n^2 (ms), `knee` the interval in
    which TTFT leaves its line, None without one; `single`: a tier has one request, so that its scatter is unknown."""

    tiers: tuple[Tier, ...]
    single: bool
    quadratic: tuple[float, float] | None
    knee: tuple[float, float] | None

    def ttft(self, tokens: float) -> Span:
        """TTFT in ms of a prompt of so many tokens alone on the server."""
        found = self._ttft(tokens)
        alone = "; a tier has one request, whose scatter is not known" if self.single else ""
        return replace(found, how=found.how + alone)

    def _ttft(self, tokens: float) -> Span:
        first, last = self.tiers[0], self.tiers[-1]
        if tokens <= first.tokens:
            return self._below(tokens, first)
        if tokens > last.tokens:
            return self._beyond(tokens, last)
        below, above = next(pair for pair in pairwise(self.tiers) if tokens <= pair[1].tokens)
        if tokens == above.tokens:
            return Span(above.low, above.ms, above.high, f"measured at {above.tokens:g} tokens")
        if self.knee and self.knee[0] < above.tokens and self.knee[1] > below.tokens:
            how = f"a knee may lie between {below.tokens:g} and {above.tokens:g} tokens, so nothing is interpolated"
            return Span(below.low, None, above.high, how)
        part = (tokens - below.tokens) / (above.tokens - below.tokens)
        low, value, high = (
            getattr(below, name) + part * (getattr(above, name) - getattr(below, name))
            for name in ("low", "ms", "high")
        )
        return Span(low, value, high, f"on the line between {below.tokens:g} and {above.tokens:g} tokens")

    def by_price(self, tokens: float) -> Span:
        """Tokens x unit price of the tier nearest in length: the article's rule, true where the price is stable."""
        near = min(self.tiers, key=lambda tier: abs(tier.tokens - tokens))
        factor = tokens / near.tokens
        how = f"{tokens:g} tokens x {near.price:.4g} ms, the unit price at {near.tokens:g} tokens"
        return Span(near.low * factor, near.ms * factor, near.high * factor, how)

    def by_fit(self, tokens: float) -> Span | None:
        """TTFT of the fit a n + b n^2 through all tiers; None with fewer than three."""
        if self.quadratic is None:
            return None
        a, b = self.quadratic
        value = a * tokens + b * tokens**2
        return Span(value, value, value, f"{a:.4g} n + {b:.4g} n^2 ms, n = {tokens:g}") if value > 0 else None

    def _below(self, tokens: float, first: Tier) -> Span:
        factor = tokens / first.tokens
        if tokens == first.tokens:
            return Span(first.low, first.ms, first.high, f"measured at {first.tokens:g} tokens")
        how = f"below the shortest tier ({first.tokens:g} tokens): from no fixed cost to nothing but it"
        return Span(first.low * factor, first.ms * factor, first.high, how)

    def _beyond(self, tokens: float, last: Tier) -> Span:
        line = self.by_price(tokens)
        fit = self.by_fit(tokens)
        square = last.high * (tokens / last.tokens) ** 2
        how = (
            f"{tokens / last.tokens:.3g} times the longest tier ({last.tokens:g} tokens), where nothing was measured: "
            "from linear to quadratic growth"
        )
        return Span(line.low, max(line.middle, fit.middle if fit else 0.0), max(square, line.high), how)


def lengths(summary: Mapping[str, Any]) -> Lengths:
    """The tiers of a summary at concurrency 1. ConfigError where none has a price."""
    cells = {
        cell["tier_tokens"]: cell for cell in summary["cells"] if cell["concurrency"] == 1 and cell["rate"] is None
    }
    tiers = [_tier(row, cells[row["tier_tokens"]]) for row in summary["price"]["tiers"]]
    if not tiers:
        raise ConfigError("no cell at concurrency 1 can be used: there is no unit price to estimate from")
    fit, knee = summary["price"]["quadratic"], summary["knee"]["length"]
    found = knee["ci"] if knee and knee["kind"] != "none" else None
    return Lengths(
        tuple(sorted(tiers, key=lambda tier: tier.tokens)),
        any(cells[row["tier_tokens"]]["ttft_ms"]["n"] < 2 for row in summary["price"]["tiers"]),
        (fit["a_ms"], fit["b_ms"]) if fit else None,
        (found[0], found[1]) if found else None,
    )


def _tier(row: Mapping[str, Any], cell: Mapping[str, Any]) -> Tier:
    """Price x tokens; the relative interval is that of TTFT."""
    value, times = row["price_ms"] * row["tokens"], cell["ttft_ms"]
    low, high = times["ci"] or (times["min"], times["max"])
    return Tier(row["tokens"], value, value * low / times["p50"], value * high / times["p50"])
