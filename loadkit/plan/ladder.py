"""The ladder: cells to measure, the visits they become, and what they will take before anything is sent."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from loadkit.plan.endpoint import Endpoint, Timeouts
from loadkit.plan.errors import ConfigError
from loadkit.plan.tiers import TEMPLATE_RESERVE, K, M, fit_tier, tier_name

SHORT_WARMUP_TOKENS = 128  # prompt of a warm-up request that only has to open the connection

ENGINE_TIERS = (128, 256, 512, 1024, 1536, 2048)
URL_TIERS = (128, K, 4 * K)
URL_CONCURRENCY = (1, 2, 4)
EDGE_TIERS = (128, 512, 1024)
RATE_TIERS = {"engine": (512,), "board": (512,)}  # of an open loop; elsewhere 1K
LONG_TIERS = (4 * K, 32 * K, 128 * K, 512 * K, M)


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the map. `tier_tokens` is its name on the axis; `target_tokens` is what prompts are built for,
    less than the tier only where the tier stands at the window. Both are server-counted prompt tokens.

    With a `rate` (requests/s) it is a cell of an open loop, and `concurrency` the most streams it may use."""

    tier_tokens: int
    concurrency: int
    target_tokens: int = 0  # 0 = the tier itself
    rate: float | None = None
    stage: int | None = None  # its place, from 1, in a list of stages; a load that comes twice is two cells
    seconds: float | None = None  # how long a stage is measured

    def __post_init__(self) -> None:
        if not self.target_tokens:
            object.__setattr__(self, "target_tokens", self.tier_tokens)

    @property
    def id(self) -> str:
        """'4096x2', '4096@2.5rps' in an open loop, '4096x2#3' as the third stage: what records and folders call it."""
        load = f"x{self.concurrency}" if self.rate is None else f"@{self.rate:.6g}rps"
        return f"{self.tier_tokens}{load}" + ("" if self.stage is None else f"#{self.stage:g}")


@dataclass(frozen=True, slots=True)
class Visit:
    """One cell once, the unit of resume. `round` is 0 where all rounds are run together; `first` means warm-up.

    `attempt` counts the earlier tries of it; a repeat has an index and prompts of its own.
    """

    index: int
    cell: Cell
    round: int
    first: bool
    attempt: int = 0


class Requests(NamedTuple):
    """Requests a plan takes; `drain` is the least that keeps the streams up while the last measured ones end."""

    measured: int
    warmup: int
    drain: int

    @property
    def total(self) -> int:
        return self.measured + self.warmup + self.drain


class Tokens(NamedTuple):
    """Prompt tokens, and the most output tokens, of all requests of a plan."""

    input: int
    output: int

    @property
    def total(self) -> int:
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class Estimate:
    """How fast a server is thought to be: milliseconds per prompt token and per output token, and before any."""

    prefill_ms: float
    decode_ms: float
    fixed_ms: float = 0.0

    def ttft_s(self, prompt_tokens: int) -> float:
        """Seconds to the first token of one prompt alone."""
        return (self.fixed_ms + self.prefill_ms * prompt_tokens) / 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about a run but where it goes. Headers, extra body and timeouts are the ones in effect (endpoint and
    options together). Equal plans with equal seeds send equal bytes."""

    name: str
    cells: tuple[Cell, ...]
    seed: int
    rounds: int = 3
    warmup: int = 1
    short_warmup: bool = False
    max_tokens: int = 128
    temperature: float = 0.0
    ignore_eos: bool = False
    retry: bool = True
    slo: str = ""
    timeouts: Timeouts = field(default_factory=Timeouts)
    headers: dict[str, str] = field(default_factory=dict)
    extra_body: dict[str, Any] = field(default_factory=dict)
    proxy: bool = True  # False = proxy variables are ignored
    filler: str = "en"
    shared_prefix: float = 0.0  # fraction of every prompt that is the same, to measure prefix caches
    tokenizer: str | None = None  # file or folder; None = the server's own count, else an estimate
    token_ids: bool = False  # prompts are sent as ids of that tokenizer
    prompts: str | None = None  # file of public prompts; None = prompts made from the filler
    refine: int = 0  # the most tiers that may be added at concurrency 1 to narrow the knee
    full_grid: bool = False  # no cell is left out because it lies beyond a knee or a rate limit
    duration_s: float | None = None  # a cell is measured for so long, whatever came, and not for a number of rounds
    think_s: tuple[float, float] = (0.0, 0.0)  # pause between two requests of a stream, drawn from this range
    budget_tokens: int | None = None  # prompt and output tokens of the whole run, resumed or not
    budget_cost: float | None = None  # the same in the endpoint's currency
    max_duration_s: float | None = None  # of one start of the run
    arrivals: str = "poisson"  # how the requests of an open loop come, of plan.arrivals.KINDS
    rate_search: bool = False  # rates are added until the highest one that holds is known to a few percent

    @property
    def soak(self) -> bool:
        """Whether streams go on until a time is over; `rounds` is then the least and not what is measured."""
        return not self.open_loop and (self.duration_s is not None or self.staged)

    @property
    def staged(self) -> bool:
        """Whether the load goes by a list of stages; every cell is then one of them."""
        return any(cell.stage is not None for cell in self.cells)

    def seconds_of(self, cell: Cell) -> float | None:
        """How long a cell is measured where that is a time, else None."""
        return self.duration_s if cell.seconds is None else cell.seconds

    @property
    def open_loop(self) -> bool:
        """Whether requests come by a schedule, whatever the streams do."""
        return any(cell.rate is not None for cell in self.cells)

    def visits(self) -> tuple[Visit, ...]:
        """Concurrency 1 once per round, tiers shuffled inside the round by the seed, so that a drift of the server
        does not fall on one tier; then each higher concurrency once, ascending, all rounds together; then every rate
        of an open loop once, ascending. Stages come in their own order, and only the first of them warms up: in the
        others one request of each stream but one fills it up (`plan.stages`)."""
        if self.staged:
            return tuple(Visit(i, cell, 0, first=i == 0) for i, cell in enumerate(self.cells))
        single = [cell for cell in self.cells if cell.concurrency == 1 and cell.rate is None]
        order: list[tuple[Cell, int]] = []
        for number in range(1, self.rounds + 1):
            shuffled = list(single)
            random.Random(f"{self.seed}/{number}").shuffle(shuffled)
            order += [(cell, number) for cell in shuffled]
        together = [cell for cell in self.cells if cell not in single]
        order += [(c, 0) for c in sorted(together, key=lambda c: (c.rate or 0, c.concurrency, c.tier_tokens))]
        return tuple(Visit(i, cell, number, first=number <= 1) for i, (cell, number) in enumerate(order))

    def rounds_of(self, visit: Visit) -> tuple[int, ...]:
        """The rounds every stream of a visit measures."""
        return (visit.round,) if visit.round else tuple(range(1, self.rounds + 1))

    def warmup_of(self, visit: Visit) -> int:
        """Warm-up requests of a visit: every stream has had one before anything is measured, but for an open loop,
        which may never use most of them."""
        return self.warmup_requests(visit.cell) if visit.first else 0

    def warmup_requests(self, cell: Cell) -> int:
        """Warm-up requests of a cell on its first visit; of a list of stages only the first has any."""
        if cell.stage is not None and cell != self.cells[0]:
            return 0
        return max(self.warmup, cell.concurrency) if cell.rate is None else self.warmup

    def measured_of(self, cell: Cell) -> int:
        """Measured requests of a cell; of an open loop, as many as are expected to arrive."""
        if cell.rate is None:
            return self.rounds * cell.concurrency
        return round(cell.rate * (self.seconds_of(cell) or 0))

    def warmup_tokens(self, cell: Cell) -> int:
        """Prompt tokens of a warm-up request of the cell."""
        return min(SHORT_WARMUP_TOKENS, cell.target_tokens) if self.short_warmup else cell.target_tokens

    def requests(self) -> Requests:
        """How many requests the whole plan takes."""
        return Requests(
            measured=sum(map(self.measured_of, self.cells)),
            warmup=sum(map(self.warmup_requests, self.cells)),
            drain=sum(cell.concurrency - 1 for cell in self.cells if cell.rate is None),
        )

    def tokens(self) -> Tokens:
        """How many tokens they take; every request is counted with its full max_tokens."""
        prompt = 0
        for cell in self.cells:
            full = self.measured_of(cell) + (cell.concurrency - 1 if cell.rate is None else 0)
            prompt += full * cell.target_tokens + self.warmup_requests(cell) * self.warmup_tokens(cell)
        return Tokens(prompt, self.requests().total * self.max_tokens)

    def refine_tokens(self) -> int:
        """The most tokens the tiers take that `refine` may add; they lie below the longest one at concurrency 1."""
        longest = max((cell.target_tokens for cell in self.cells if cell.concurrency == 1), default=0)
        return self.refine * (self.rounds + max(self.warmup, 1)) * (longest + self.max_tokens) if longest else 0

    def seconds(self, estimate: Estimate) -> float:
        """Time of the whole plan on a server of that speed that reads one prompt at a time and writes together."""
        decode = self.max_tokens * estimate.decode_ms / 1000
        total = 0.0
        for visit in self.visits():
            streams = visit.cell.concurrency
            measured = streams * estimate.ttft_s(visit.cell.target_tokens) + decode + sum(self.think_s) / 2
            total += self.seconds_of(visit.cell) or len(self.rounds_of(visit)) * measured
            warm = self.warmup_of(visit)
            total += warm * estimate.ttft_s(self.warmup_tokens(visit.cell)) + -(-warm // streams) * decode
        return total

    def cost(self, endpoint: Endpoint) -> float | None:
        """The most it costs, in the endpoint's currency; None where a price is not known."""
        if endpoint.price_input is None or endpoint.price_output is None:
            return None
        tokens = self.tokens()
        return (tokens.input * endpoint.price_input + tokens.output * endpoint.price_output) / 1e6

    def to_json(self) -> dict[str, Any]:
        """Builtin values only, for the manifest and for workers."""
        return {**asdict(self), "cells": [asdict(cell) for cell in self.cells]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Plan":
        """What `to_json` wrote, also after a trip through JSON. ConfigError where it is something else."""
        try:
            cells = tuple(Cell(**cell) for cell in data["cells"])
            low, high = data.get("think_s", (0.0, 0.0))
            built = {"cells": cells, "timeouts": Timeouts(**data["timeouts"]), "think_s": (low, high)}
            return cls(**{**data, **built})
        except (KeyError, TypeError, ValueError):
            raise ConfigError("the stored plan is damaged or of another version of loadkit") from None


def grid(tiers: Iterable[int], concurrency: Iterable[int]) -> list[tuple[int, int]]:
    """Every tier at every concurrency."""
    levels = list(concurrency)
    return [(tier, level) for tier in tiers for level in levels]


NAMED_PLANS: dict[str, list[tuple[int, int]]] = {
    "engine": [*grid(ENGINE_TIERS, (1,)), (512, 2)],
    "url": grid(URL_TIERS, URL_CONCURRENCY),
    "long": [*grid(LONG_TIERS, (1,)), *grid((128 * K, 512 * K), (2, 4))],
    "edge": grid(EDGE_TIERS, (1,)),
}


def clip(pairs: Iterable[tuple[int, int]], window: int | None) -> list[tuple[int, int]]:
    """Pairs with tiers above the window brought down to it, each once."""
    clipped = [(tier if window is None else min(tier, window), level) for tier, level in pairs]
    return list(dict.fromkeys(clipped))


def fit_cells(
    pairs: Iterable[tuple[int, int]], window: int | None, max_tokens: int, rates: Iterable[float | None] = (None,)
) -> tuple[Cell, ...]:
    """Cells of (tier, concurrency) pairs, of an open loop at every rate; prompts shrunk where a tier stands at the
    window. ConfigError above it."""
    fitted = [(tier, level, fit_tier(tier, window, max_tokens)) for tier, level in dict.fromkeys(pairs)]
    cells = tuple(Cell(*place, rate) for rate in rates for place in fitted)
    if not cells:
        raise ConfigError("the plan has no cell: name tiers and concurrency")
    return cells


def shrink_notes(plan: Plan) -> list[str]:
    """One line per tier whose prompts are shorter than its name, for the reader of the plan."""
    shrunk = {c.tier_tokens: c.target_tokens for c in plan.cells if c.target_tokens < c.tier_tokens}
    return [
        f"tier {tier_name(tier)} stands at the window: its prompts have {target:,} tokens, "
        f"which leaves {plan.max_tokens} for the output and {TEMPLATE_RESERVE} for the template"
        for tier, target in sorted(shrunk.items())
    ]
