"""Which technique changes a constant and which the order of a cost, and which to look at first for a kind of bill."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from loadkit.capacity.errors import CardError

INPUT_HEAVY, OUTPUT_HEAVY = 0.8, 0.5  # shares of a request's time before its first token: from, and up to
ACCEPT, CUT = "accept it", "cut the input (shorten, retrieve, cache)"


@dataclass(frozen=True, slots=True)
class Technique:
    """`changes`: "constant" or "order"; `helps`: "input", "output" or "both"; the cost it lowers, and when it pays."""

    name: str
    changes: str
    helps: str
    cost: str
    pays: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What a prefill share says: the kind of bill, a sentence, and what to look at, in order."""

    kind: str  # "input-heavy", "output-heavy" or "mixed"
    sentence: str
    picks: tuple[str, ...]


@cache
def techniques() -> tuple[Technique, ...]:
    """The table."""
    text = resources.files("loadkit.capacity.advise").joinpath("techniques.toml").read_text("utf-8")
    return tuple(Technique(**row) for row in tomllib.loads(text)["technique"])


def prefill_share(ttft_s: float, output_tokens: int, tpot_s: float) -> float:
    """Share of a request's time before its first token: TTFT / (TTFT + (n - 1) x TPOT)."""
    if not (ttft_s > 0 and tpot_s > 0 and output_tokens >= 1):
        raise CardError("a prefill share needs times above 0 and at least one output token")
    return ttft_s / (ttft_s + (output_tokens - 1) * tpot_s)


def choose(share: float) -> Choice:
    """What pays at a prefill share: sparse attention or less input for a bill of input, KV for one of output."""
    if not 0 <= share <= 1:
        raise CardError(f"a prefill share lies from 0 to 1, it is {share!r}")
    orders = tuple(each.name for each in techniques() if each.changes == "order")
    outputs = tuple(each.name for each in techniques() if each.helps == "output")
    percent = f"{share:.0%} of the time passes before the first token"
    if share >= INPUT_HEAVY:
        return Choice("input-heavy", f"{percent}: {ACCEPT}, {CUT}, or take sparse attention.", (ACCEPT, CUT, *orders))
    if share <= OUTPUT_HEAVY:
        return Choice("output-heavy", f"{percent}: fewer KV bytes and paging pay (GQA, paging, FP4 KV).", outputs)
    return Choice("mixed", f"{percent}: neither part is the whole bill; measure both.", (CUT, *outputs))
