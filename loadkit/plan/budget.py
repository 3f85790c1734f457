"""Limits that stop a run cleanly in the middle: pure functions of what was spent and of what would be next."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from loadkit.plan.endpoint import Endpoint
from loadkit.plan.errors import ConfigError
from loadkit.plan.ladder import Plan
from loadkit.record.names import Outcome

# An attempt that ended so was never read by a server; neither was one that it refused (status 400 and above).
UNREAD = frozenset(
    {
        Outcome.CONNECT_ERROR,
        Outcome.DNS_ERROR,
        Outcome.TLS_ERROR,
        Outcome.PROXY_ERROR,
        Outcome.CONNECT_TIMEOUT,
        Outcome.POOL_TIMEOUT,
    }
)

ROUNDING = 1e-6  # tokens; what was asked for must fit into the share that was given for it


class Spent(NamedTuple):
    """Prompt tokens and output tokens."""

    input: int = 0
    output: int = 0

    def plus(self, other: "Spent") -> "Spent":
        """Both together."""
        return Spent(self.input + other.input, self.output + other.output)


@dataclass(frozen=True, slots=True)
class Budget:
    """The most a run may take; None = no limit. Prices are per million tokens."""

    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    price_input: float = 0.0
    price_output: float = 0.0
    currency: str = "USD"

    def cost_of(self, spent: Spent) -> float:
        """What so many tokens cost."""
        return (spent.input * self.price_input + spent.output * self.price_output) / 1e6

    def exhausted(self, spent: Spent, seconds: float) -> str | None:
        """Which limit is used up ('tokens', 'cost' or 'seconds'), or None: at a limit nothing more may start."""
        used = (
            ("tokens", sum(spent), self.tokens),
            ("cost", self.cost_of(spent), self.cost),
            ("seconds", seconds, self.seconds),
        )
        return next((name for name, value, limit in used if limit is not None and value >= limit), None)

    def part(self, share: float) -> "Budget":
        """That share (0 to 1) of the tokens and of the cost; the time is not shared."""
        tokens = None if self.tokens is None else int(self.tokens * share + ROUNDING)
        cost = None if self.cost is None else self.cost * share * (1 + ROUNDING**2)
        return replace(self, tokens=tokens, cost=cost)

    def share_of(self, spent: Spent) -> float:
        """The share of the budget that this is, of the limit of which it takes most; 0 where nothing is limited."""
        used = ((sum(spent), self.tokens), (self.cost_of(spent), self.cost))
        return max((value / limit for value, limit in used if limit), default=0.0)

    def passed_by(self, spent: Spent) -> str | None:
        """Which limit lies below what would be spent in all, or None."""
        if self.tokens is not None and sum(spent) > self.tokens:
            return "tokens"
        return "cost" if self.cost is not None and self.cost_of(spent) > self.cost else None

    def sentence(self, name: str, spent: Spent, seconds: float) -> str:
        """Why the run ends at the limit of this name, for manifest, report and terminal."""
        used, limit = {
            "tokens": (f"{sum(spent):,} tokens are spent", f"{self.tokens or 0:,} tokens"),
            "cost": (f"{self.cost_of(spent):,.4f} {self.currency} are spent", f"{self.cost or 0:g} {self.currency}"),
            "seconds": (f"{seconds:,.0f} s have passed", f"{self.seconds or 0:g} s"),
        }[name]
        if name == "seconds":
            return f"the budget of {limit} is used up: {used}"
        return f"the budget of {limit} has no room left: {used}, and what is in flight or next might pass it"


def budget_of(plan: Plan, endpoint: Endpoint) -> Budget:
    """The budget of a plan at an endpoint. ConfigError where its cost is limited and a price is not known."""
    if plan.budget_cost is not None and (endpoint.price_input is None or endpoint.price_output is None):
        raise ConfigError(
            f"--budget-cost: the prices of endpoint {endpoint.name} are not known: "
            "put price_input and price_output (per million tokens) into endpoints.toml, or use --budget-tokens"
        )
    return Budget(
        plan.budget_tokens,
        plan.budget_cost,
        plan.max_duration_s,
        endpoint.price_input or 0.0,
        endpoint.price_output or 0.0,
        endpoint.currency,
    )


def spent_by(record: Mapping[str, Any]) -> Spent:
    """The tokens of a finished request as they were counted: the prompt once for each attempt a server took in."""
    attempts = record.get("attempts") or ()
    taken = sum(
        attempt["outcome"] not in UNREAD and (attempt["http_status"] is None or attempt["http_status"] < 400)
        for attempt in attempts
    )
    prompt = record.get("prompt_tokens") or record.get("target_tokens") or record.get("tier_tokens") or 0
    return Spent(int(prompt) * taken, int(record.get("output_tokens") or 0))


class Ledger:
    """What a run has spent, and what its requests in flight may yet spend."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.spent = Spent()
        self._reserved: dict[str, Spent] = {}
        self._ahead = Spent()  # all of them together
        self._longer = 1.0  # the most by which prompts were longer than they were built for

    def refuse(self, most: Spent) -> str | None:
        """The limit that a request of up to `most` might pass, those in flight included, or None."""
        return self.budget.passed_by(self.with_next(most))

    def with_next(self, most: Spent) -> Spent:
        """What may be spent in all by what has ended, what is in flight and a request of up to `most`."""
        ahead = self._ahead.plus(most)
        return self.spent.plus(Spent(math.ceil(ahead.input * self._longer), ahead.output))

    def start(self, request_id: str, most: Spent) -> None:
        """A request starts."""
        self._release(request_id)
        self._reserved[request_id] = most
        self._ahead = self._ahead.plus(most)

    def end(self, record: Mapping[str, Any]) -> None:
        """It has ended, and is counted by what it took."""
        self._release(str(record.get("request_id")))
        planned, counted = record.get("target_tokens"), record.get("prompt_tokens")
        if planned and counted:
            self._longer = max(self._longer, counted / planned)
        self.spent = self.spent.plus(spent_by(record))

    def _release(self, request_id: str) -> None:
        if (held := self._reserved.pop(request_id, None)) is not None:
            self._ahead = Spent(self._ahead.input - held.input, self._ahead.output - held.output)
