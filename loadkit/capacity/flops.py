"""Floating point operations of a prefill, and the prompt length at which attention takes over.

Linear part: 2 P n, P the weights of matrix products without embedding and head. Attention: each query meets each key,
2 (q + v) operations per head and pair, q and v the widths of queries and values: 4 L H h n^2 when every pair is
computed, half of it when pairs above the diagonal are skipped (causal), which chunked prefill sums to as well. A linear
layer's state takes 6 x key x value operations per value head and token. Operations are not time: a kernel that runs
attention at e times the efficiency of its matrix products moves every length below by e.
"""

from collections.abc import Callable

from loadkit.capacity.card import Dimensions
from loadkit.capacity.errors import CardError
from loadkit.capacity.params import parameters

KNEE_EXCESS = 0.25  # a knee in length is where TTFT exceeds its straight line by this share


def linear_per_token(dims: Dimensions) -> float:
    """Operations per prompt token that do not depend on its position. The head runs once per prompt and is left out."""
    state = 0
    if dims.linear:
        state = dims.linear.layers * dims.linear.value_heads * 6 * dims.linear.key_dim * dims.linear.value_dim
    return 2 * parameters(dims).linear + state


def attention(dims: Dimensions, tokens: float, causal: bool = True) -> float:
    """Operations of attention over `tokens`; without `causal`, masked pairs of sliding layers are computed too."""
    pairs = dims.full_layers * _pairs(tokens, causal)
    if dims.sliding:
        pairs += dims.sliding.layers * _pairs(tokens, causal, dims.sliding.window)
    return _per_pair(dims) * pairs


def prefill(dims: Dimensions, tokens: float, causal: bool = True) -> float:
    """Operations of a whole prefill of `tokens`."""
    if tokens <= 0:
        raise CardError(f"a prefill needs at least one token, not {tokens}")
    return linear_per_token(dims) * tokens + attention(dims, tokens, causal)


def growth(dims: Dimensions, first: float, last: float, causal: bool = True) -> float:
    """How many times more a prefill of `last` tokens computes than one of `first`.

    8K to 128K is 48 for Llama-3-8B. Only the attention part grows 256 times, and the linear part grows 16 times.
    """
    return prefill(dims, last, causal) / prefill(dims, first, causal)


def local_exponent(dims: Dimensions, tokens: float, causal: bool = True) -> float:
    """Slope of log operations on log tokens at one length: 1 linear, 2 quadratic."""
    linear = linear_per_token(dims) * tokens
    rising = dims.full_layers * 2 * _pairs(tokens, causal)
    if dims.sliding:
        window = dims.sliding.window
        inside = not causal or tokens <= window
        rising += dims.sliding.layers * (2 * _pairs(tokens, causal, window) if inside else tokens * window)
    return (linear + _per_pair(dims) * rising) / prefill(dims, tokens, causal)


def remaining(dims: Dimensions, tokens: float, hit: float, causal: bool = True) -> float:
    """Share of a prefill still to compute when its first `hit` (0 to 1) comes from a prefix cache: 1 - F(h n) / F(n).

    More than 1 - hit, because the tokens left attend to the cached ones.
    """
    if not 0 <= hit < 1:
        raise CardError(f"a cache hit is a share from 0 to below 1, not {hit}")
    cached = prefill(dims, tokens * hit, causal) if hit else 0.0
    return 1 - cached / prefill(dims, tokens, causal)


def utilisation(operations: float, seconds: float, peak_per_s: float) -> float:
    """Share of the peak FLOP/s that a prefill used (MFU): operations / (TTFT x peak), queueing included."""
    if not (operations > 0 and seconds > 0 and peak_per_s > 0):
        raise CardError("a utilisation needs operations, a time and a peak above 0")
    return operations / (seconds * peak_per_s)


def crossover(dims: Dimensions, causal: bool = True) -> float | None:
    """Tokens T* at which attention computes as much as the linear part: P / (L H h) causal, half of it full.

    None when windows keep attention below it at any length.
    """
    return _where(dims, 1.0, causal)


def k25(dims: Dimensions, causal: bool = True) -> float | None:
    """Tokens at which attention adds a quarter to the linear part: T* / 4 where no layer slides. None as above."""
    return _where(dims, KNEE_EXCESS, causal)


def _where(dims: Dimensions, share: float, causal: bool) -> float | None:
    """Tokens at which attention is `share` of the linear part; attention per token only ever rises."""
    target = share * linear_per_token(dims)
    quadratic = dims.full_layers + (dims.sliding.layers if dims.sliding and not causal else 0)
    if quadratic == 0 and (
        dims.sliding is None or _per_pair(dims) * dims.sliding_layers * dims.sliding.window < target
    ):
        return None
    return _bisect(lambda tokens: attention(dims, tokens, causal) / tokens - target)


def _bisect(rising: Callable[[float], float]) -> float | None:
    """The zero of a rising function, within 1e-12 of it; None beyond 2^60."""
    high = 1.0
    while rising(high) < 0:
        high *= 2
        if high > 2.0**60:
            return None
    low = 0.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return high


def _pairs(tokens: float, causal: bool, window: float = float("inf")) -> float:
    """Query and key pairs that are computed, the diagonal's half pair left out."""
    if not causal:
        return tokens * tokens
    if tokens <= window:
        return tokens * tokens / 2
    return tokens * window - window * window / 2


def _per_pair(dims: Dimensions) -> float:
    """Operations per pair of positions and layer: scores 2 q, mixing 2 v, for every head."""
    if dims.mla:
        return 2 * dims.heads * (dims.mla.nope_dim + dims.mla.rope_dim + dims.mla.value_dim)
    return 4 * dims.heads * dims.head_dim
