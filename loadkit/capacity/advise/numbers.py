"""The arithmetic of advice, done before any conclusion: what is needed, what there is, and how fast it can be.

K = cache bytes per token x context x sequences; need = weights + K + 1 GB; budget = 0.9 x memory; bound of one stream's
tokens/s = bandwidth / (weights read + K), of which engines reach about 0.85.
"""

import math
from dataclasses import dataclass, replace

from loadkit.capacity.advise.situation import Situation
from loadkit.capacity.memory import GB, both_units
from loadkit.capacity.quant import Q4_K_M

OVERHEAD_GB = 1.0
USE = 0.9
REACH = 0.85  # of the bound: what a good engine gets
FOUR_BITS = 5.0  # a quantisation of up to so many bits per weight counts as 4 bit, scales included
DEFAULT_CUT = 16_384  # tokens, where nobody knows the need
SHORTEST_CUT = 4096
NPU_ENGINES = ("rkllm", "rkllama")
PCIE_GBS = {3: 15.75, 4: 31.5, 5: 63.0}  # 16 lanes, one direction, after 128b/130b coding


@dataclass(frozen=True, slots=True)
class Numbers:
    """Sizes in GB, rates in tokens/s; None where an input is missing."""

    seqs: int
    kv_gb: float
    kv_needed_gb: float  # at the context that is needed; the set one where that is not known
    need_gb: float
    need_at_needed_gb: float
    budget_gb: float
    left_gb: float  # for the cache, beside weights and overhead; negative when the weights do not fit
    fits: bool
    weights_fit: bool
    kv_share: float  # of the whole memory
    largest_cut: int  # largest power of two of tokens that fits, 0 when not even one does
    short_share: float  # of the weights that does not fit
    can_quantise: bool
    floor_bits: float
    weights_floor_gb: float
    roofline_tps: float | None
    floor_roofline_tps: float | None
    calculation: tuple[str, ...]


def numbers(given: Situation) -> Numbers:
    """The arithmetic of a situation without missing answers."""
    assert not given.missing()
    weights, bits = given.weights_gb or 0.0, given.quant_bits or 0.0
    seqs, per_token = given.seqs or given.users or 1, (given.kv_bytes_per_token or 0.0) / GB
    context = given.ctx_set or 0
    kv, kv_needed = per_token * context * seqs, per_token * (given.ctx_needed or context) * seqs
    budget = USE * (given.mem_gb or 0.0)
    left = budget - weights - OVERHEAD_GB
    can, floor = _floor(given, bits)
    active = weights if given.active_gb is None else given.active_gb
    need = weights + kv + OVERHEAD_GB
    made = Numbers(
        seqs=seqs,
        kv_gb=kv,
        kv_needed_gb=kv_needed,
        need_gb=need,
        need_at_needed_gb=weights + kv_needed + OVERHEAD_GB,
        budget_gb=budget,
        left_gb=left,
        fits=need <= budget,
        weights_fit=left >= 0,
        kv_share=kv / (given.mem_gb or 1.0),
        largest_cut=_power_of_two(left / (per_token * seqs)) if left > 0 else 0,
        short_share=max(0.0, -left) / weights,
        can_quantise=can,
        floor_bits=floor,
        weights_floor_gb=weights * floor / bits,
        roofline_tps=given.bw_gbs / (active + kv) if given.bw_gbs else None,
        floor_roofline_tps=given.bw_gbs / (active * floor / bits + kv) if given.bw_gbs else None,
        calculation=(),
    )
    return _with_lines(given, made)


def _floor(given: Situation, bits: float) -> tuple[bool, float]:
    """Whether the weights can go to 4 bit, and the bits they would have: the platform's narrowest, else Q4_K_M."""
    narrow = 4.0 if given.engine in NPU_ENGINES else Q4_K_M
    floor = max(narrow, given.min_quant_bits or 0.0)
    can = bits >= 8 and floor <= FOUR_BITS
    return can, floor if can else bits


def _power_of_two(tokens: float) -> int:
    return 2 ** int(math.log2(tokens)) if tokens >= 1 else 0


def _with_lines(given: Situation, made: Numbers) -> Numbers:
    """The calculation as lines to show, sizes in both units."""
    fits = "fits" if made.fits else "does not fit"
    cache = both_units(made.kv_gb * GB)
    larger = "weights" if (given.weights_gb or 0) >= made.kv_gb else "cache"
    lines = [
        f"weights  {both_units((given.weights_gb or 0) * GB)} at {given.quant_bits:g} bits",
        f"cache    {given.kv_bytes_per_token:,.0f} B x {given.ctx_set} tokens x {made.seqs} = {cache}",
        f"need     weights + cache + {both_units(OVERHEAD_GB * GB)} = {both_units(made.need_gb * GB)}",
        f"budget   {USE:g} x {both_units((given.mem_gb or 0) * GB)} = {both_units(made.budget_gb * GB)}: it {fits}",
        f"larger   the {larger}; the cache is {100 * made.kv_share:.0f}% of the memory",
    ]
    if given.ctx_needed is not None and given.ctx_needed != given.ctx_set:
        lines.append(f"needed   {given.ctx_needed} tokens: {both_units(made.need_at_needed_gb * GB)} in all")
    if not made.weights_fit:
        lines.append(f"lacking  {both_units(-made.left_gb * GB)}, {100 * made.short_share:.0f}% of the weights")
        if given.pcie_gen in PCIE_GBS:
            speed = PCIE_GBS[given.pcie_gen]
            copy = f"copying what lacks takes {-made.left_gb / speed:.2f} s"
            lines.append(f"PCIe {given.pcie_gen}   16 lanes move {speed:g} GB/s: {copy}")
    if made.roofline_tps is not None:
        read = "active weights" if given.active_gb is not None else "weights"
        lines.append(
            f"bound    {given.bw_gbs:g} GB/s / ({read} + cache) = {made.roofline_tps:.2f} tokens/s for each stream"
        )
    return replace(made, calculation=tuple(lines))
