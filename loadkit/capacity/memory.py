"""Does it fit, and how many sequences at once: the calculation as numbers and as lines to show before a conclusion.

max sequences = floor((GPUs x memory x use - weights - overhead) / cache of one sequence), the budget of vLLM. The
overhead is llm-d-planner's calibration of vLLM 0.19 on H100 (49 runs): activations 1.89 GiB, 2.25 for Qwen2 (told here
by its biases), 2.5 for a mixture of experts; outside PyTorch 0.27 GiB on one GPU, 2.1 GiB on each of several.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from loadkit.capacity import kv as cache
from loadkit.capacity.card import ModelCard
from loadkit.capacity.errors import CardError
from loadkit.capacity.params import total

GB = 1e9
GIB = 2.0**30
USE = 0.9  # share of the memory a server takes, vLLM's gpu_memory_utilization
ACTIVATION_GIB = 1.89
ACTIVATION_QKV_BIAS_GIB = 2.25
ACTIVATION_MOE_GIB = 2.5
OTHER_ONE_GPU_GIB = 0.27
OTHER_PER_GPU_GIB = 2.1


@dataclass(frozen=True, slots=True)
class Memory:
    """What there is: `gpus` of `bytes_each`, of which a server takes the share `use`."""

    bytes_each: float
    gpus: int = 1
    use: float = USE

    def __post_init__(self) -> None:
        if not self.bytes_each > 0:
            raise CardError(f"memory must be above 0 bytes, it is {self.bytes_each!r}")
        if self.gpus < 1:
            raise CardError(f"at least one GPU is needed, not {self.gpus}")
        if not 0 < self.use <= 1:
            raise CardError(f"the share of memory to use lies above 0 and at most at 1, it is {self.use!r}")

    @property
    def budget(self) -> float:
        """Bytes a server may take."""
        return self.bytes_each * self.gpus * self.use


@dataclass(frozen=True, slots=True)
class Fit:
    """One answer, bytes; per-GPU copies of a latent cache are counted once for each GPU."""

    budget: float
    weights: float
    overhead: float
    tokens: int  # of one sequence
    per_sequence: float
    pool: float  # left for the cache; negative when the weights alone are too big
    pool_tokens: int | None  # None where sequences stop growing: every layer slides
    max_sequences: int
    sequences: int  # asked for
    fits: bool
    lacks: str | None  # "weights", "cache" or None
    calculation: tuple[str, ...]


def weight_bytes(card: ModelCard, bits: float | None = None) -> float:
    """Bytes of all weights: at `bits` each if given, else the file's exact size, else at the card's bits or 16."""
    if bits is None and card.weight_bytes is not None:
        return float(card.weight_bytes)
    return total(card) * (bits or card.bits or 16) / 8


def overhead_bytes(card: ModelCard, gpus: int = 1) -> float:
    """Activations and what lives outside PyTorch; see above for the source."""
    dims = card.dims
    activation = ACTIVATION_GIB
    if dims is None or dims.moe:
        activation = ACTIVATION_MOE_GIB
    elif dims.qkv_bias:
        activation = ACTIVATION_QKV_BIAS_GIB
    return (activation + (OTHER_ONE_GPU_GIB if gpus == 1 else OTHER_PER_GPU_GIB * gpus)) * GIB


def fit(
    card: ModelCard,
    memory: Memory,
    tokens: int,
    *,
    sequences: int = 1,
    bits: float | None = None,
    kv: str = "bf16",
    overhead: float | None = None,
    block: int = cache.BLOCK,
) -> Fit:
    """Whether `sequences` of `tokens` each (prompt and answer) fit, and how many would.

    `overhead` in bytes instead of the calibration; `block` tokens are reserved at a time, 1 for an unpaged cache.
    """
    if tokens < 1 or sequences < 1:
        raise CardError(f"at least one sequence of one token is needed, not {sequences} of {tokens}")
    weights = weight_bytes(card, bits)
    extra = overhead_bytes(card, memory.gpus) if overhead is None else overhead
    copies = cache.per_gpu_share(card, memory.gpus) * memory.gpus if memory.gpus > 1 and card.dims else 1.0
    one = cache.per_sequence(card, tokens, kv, block) * copies
    pool = memory.budget - weights - extra
    most = max(0, int(pool // one))
    fits = most >= sequences
    lacks = None if fits else "weights" if pool <= 0 else "cache"
    growth = cache.per_token(card, kv) * copies
    pool_tokens = max(0, int(pool // growth)) if growth else None
    lines = _calculation(memory, weights, extra, pool, one, tokens, sequences, most)
    return Fit(memory.budget, weights, extra, tokens, one, pool, pool_tokens, most, sequences, fits, lacks, lines)


def sequences_per_tier(
    card: ModelCard, memory: Memory, tiers: Iterable[int], *, bits: float | None = None, kv: str = "bf16"
) -> dict[int, int]:
    """Most concurrent sequences for each length in tokens."""
    return {tokens: fit(card, memory, tokens, bits=bits, kv=kv).max_sequences for tokens in tiers}


def both_units(size: float) -> str:
    """Bytes in GB (10^9) and GiB (2^30), which people mix up: "42.95 GB (40.00 GiB)"."""
    return f"{size / GB:.2f} GB ({size / GIB:.2f} GiB)"


def _calculation(
    memory: Memory, weights: float, extra: float, pool: float, one: float, tokens: int, sequences: int, most: int
) -> tuple[str, ...]:
    wanted = one * sequences
    sign = "<=" if wanted <= pool else ">"
    lines = [
        f"budget   {memory.gpus} x {both_units(memory.bytes_each)} x {memory.use:g} = {both_units(memory.budget)}",
        f"weights  {both_units(weights)}",
        f"overhead {both_units(extra)}",
        f"left     {both_units(pool)} for the cache",
        f"cache    {sequences} x {both_units(one)} for {tokens} tokens = {both_units(wanted)} {sign} left",
        f"most     {most} sequences of {tokens} tokens",
    ]
    if pool > 0 and most == 0:
        lines.append("not even one sequence of this length fits")
    return tuple(lines)
