"""What is known of a set-up that is to be advised on: the answers to the questions of advice.toml, checked.

Sizes in GB (10^9 bytes), lengths in tokens, bandwidth in GB/s, rates in tokens/s. None: not known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from loadkit.capacity import quant, sizes
from loadkit.capacity.advise.table import engines, question, questions, rejected
from loadkit.capacity.errors import CardError

NOTE = "description"  # may stand in a file of facts and is not read
YES, NO = ("yes", "y", "true"), ("no", "n", "false")
MOST = 1e15  # beyond it an answer is none
UNITS = {"k": 1024, "m": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class Situation:
    """One answer per question. CardError names an answer that cannot be, or two that contradict each other."""

    engine: str | None = None
    weights_gb: float | None = None
    mem_gb: float | None = None
    users: int | None = None
    ctx_set: int | None = None
    quant_bits: float | None = None
    kv_bytes_per_token: float | None = None
    ctx_needed: int | None = None
    ctx_hard: bool | None = None
    moe: bool | None = None
    active_gb: float | None = None
    layers: int | None = None
    pcie_gen: int | None = None
    shared_prefix_share: float | None = None
    prefix_reuse: bool | None = None
    prefill_share: float | None = None
    bw_gbs: float | None = None
    target_tps: float | None = None
    measured_tps: float | None = None
    min_quant_bits: float | None = None
    draft_gb: float | None = None
    seqs: int | None = None
    want: str | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                _check(field.name, question(field.name)["kind"], value)
        _contradictions(self)

    def missing(self) -> list[str]:
        """Required fields without an answer, in the order of asking."""
        return [each["field"] for each in questions() if each.get("required") and getattr(self, each["field"]) is None]


def from_facts(facts: Mapping[str, Any]) -> Situation:
    """The situation of plain values by field name; strings are read as a person writes them. CardError otherwise."""
    known = {field.name for field in fields(Situation)}
    strange = sorted(set(facts) - known - {NOTE})
    if strange:
        raise CardError(f"facts: {strange[0][:40]!r} is not asked for; there are: {', '.join(sorted(known))}")
    read = {
        name: parse(name, value) if isinstance(value, str) else value for name, value in facts.items() if name != NOTE
    }
    return Situation(**read)


def parse(field: str, text: str) -> Any:
    """An answer in words as its value. CardError says what is accepted."""
    kind = question(field)["kind"]
    plain = text.strip().casefold()
    if kind in ("engine", "want"):
        return plain
    if kind == "yes":
        if plain not in YES + NO:
            raise CardError(f"{field}: answer yes or no, not {text.strip()[:40]!r}")
        return plain in YES
    if kind == "quant":
        return quant.bits(text)
    if kind == "size":
        return sizes.size(text) / 1e9
    try:
        if kind == "tokens":
            unit = UNITS.get(plain[-1:], 1)
            return _whole(float(plain[:-1] if unit > 1 else plain) * unit)
        return _whole(float(plain)) if kind == "count" else float(plain)
    except (ValueError, OverflowError):
        raise CardError(f"{field}: {text.strip()[:40]!r} is no number") from None


def _whole(value: float) -> int:
    if value != int(value):
        raise ValueError
    return int(value)


def _check(name: str, kind: str, value: Any) -> None:
    """CardError when a value is not one of its kind."""
    if kind in ("engine", "want"):
        known = engines() if kind == "engine" else rejected()
        if value not in known:
            raise CardError(f"{name}: {str(value)[:40]!r} is not known, only {', '.join(known)}")
    elif kind == "yes":
        if not isinstance(value, bool):
            raise CardError(f"{name} is yes or no, not {str(value)[:40]!r}")
    elif isinstance(value, bool) or not isinstance(value, (int, float)) or not -MOST < value < MOST:
        shown = str(value)[:40] if not isinstance(value, int) else "out of all proportion"
        raise CardError(f"{name} must be a number, it is {shown}")
    elif kind == "share":
        if not 0 <= value <= 1:
            raise CardError(f"{name} is a share from 0 to 1, it is {value:g}")
    elif value <= 0 or (kind in ("count", "tokens") and value != int(value)):
        what = "a whole number of at least 1" if kind in ("count", "tokens") else "above 0"
        raise CardError(f"{name} must be {what}, it is {value:g}")


def _contradictions(given: Situation) -> None:
    pairs = (
        ("active_gb", "weights_gb", "GB of the weights read for a token cannot exceed all of them"),
        ("ctx_needed", "ctx_set", "ask about the context it has to be started with, which is at least the one needed"),
        ("min_quant_bits", "quant_bits", "the weights cannot be narrower than the platform computes with"),
    )
    for small, large, why in pairs:
        low, high = getattr(given, small), getattr(given, large)
        if low is not None and high is not None and low > high:
            raise CardError(f"{small} {low:g} and {large} {high:g} contradict each other: {why}")
    if given.quant_bits is not None and given.quant_bits > 32:
        raise CardError(f"quant_bits must be at most 32, it is {given.quant_bits:g}")
    sizes_known = given.active_gb is not None and given.weights_gb is not None
    if given.moe is False and sizes_known and (given.active_gb or 0.0) < 0.5 * (given.weights_gb or 0.0):
        raise CardError("moe no and active_gb contradict each other: a dense model reads all its weights")
