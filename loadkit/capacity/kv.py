"""Bytes of the key and value cache: per token, per sequence, per GPU.

Grouped-query attention stores 2 K h values per token and layer, latent attention kv_lora + rope of them, a sliding
layer no more than its window, a linear layer a state of fixed size. Quantised caches count their scales: a q8_0 block
is 34 bytes for 32 values, q4_0 18, NVFP4 4 bits plus an FP8 scale for 16, MXFP4 4 bits plus a byte for 32.
"""

import math
from collections.abc import Iterable

from loadkit.capacity.card import Dimensions, ModelCard
from loadkit.capacity.errors import CardError

BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "q8_0": 34 / 32,
    "q4_0": 18 / 32,
    "nvfp4": 9 / 16,
    "mxfp4": 17 / 32,
}
BLOCK = 16  # tokens per block of a paged cache, vLLM's default


def value_bytes(kv: str) -> float:
    """Bytes of one cached value, scales included. CardError for a name that is not in BYTES."""
    if kv not in BYTES:
        raise CardError(f"KV cache type {kv!r} is not known, only {', '.join(BYTES)}")
    return BYTES[kv]


def layer_bytes(dims: Dimensions, kv: str = "bf16") -> float:
    """Bytes one token adds to one softmax attention layer."""
    if dims.mla:
        return (dims.mla.kv_lora_rank + dims.mla.rope_dim) * value_bytes(kv)
    return 2 * dims.kv_heads * dims.head_dim * value_bytes(kv)


def per_token(card: ModelCard, kv: str = "bf16") -> float:
    """Bytes one more token adds to a long sequence: full layers only, since sliding and linear ones are full by then.

    A stated growth goes before the arithmetic, whatever `kv` is.
    """
    if card.kv_bytes_per_token is not None:
        return card.kv_bytes_per_token
    dims = card.need()
    return dims.full_layers * layer_bytes(dims, kv)


def per_sequence(card: ModelCard, tokens: int, kv: str = "bf16", block: int = BLOCK) -> float:
    """Bytes of one sequence of `tokens`, rounded up to whole blocks; a linear state is counted at 2 bytes a value.

    The convolution's few positions are left out. Where the growth is stated, windows and states are not known and left
    out too.
    """
    tokens = rounded(tokens, block)
    if card.kv_bytes_per_token is not None:
        return card.kv_bytes_per_token * tokens
    dims = card.need()
    window = rounded(dims.sliding.window, block) if dims.sliding else 0
    positions = dims.full_layers * tokens + dims.sliding_layers * min(tokens, window)
    return positions * layer_bytes(dims, kv) + state(dims)


def rounded(tokens: int, block: int = BLOCK) -> int:
    """Tokens a paged cache reserves: whole blocks."""
    return math.ceil(tokens / block) * block


def state(dims: Dimensions, bytes_per_value: int = 2) -> int:
    """Bytes of the linear layers' states of one sequence: value heads x key dimension x value dimension each."""
    if dims.linear is None:
        return 0
    linear = dims.linear
    return linear.layers * linear.value_heads * linear.key_dim * linear.value_dim * bytes_per_value


def per_gpu_share(card: ModelCard, tensor_parallel: int) -> float:
    """Share of the cache that each of `tensor_parallel` GPUs holds.

    Key heads are split, and copied once there are more GPUs than heads; a latent has no heads and is copied to each.
    CardError when neither number divides the other, which servers refuse.
    """
    dims = card.need()
    if dims.mla:
        return 1.0
    few, many = sorted((dims.kv_heads, tensor_parallel))
    if few < 1 or many % few:
        raise CardError(f"{card.name}: {dims.kv_heads} key heads cannot be split over {tensor_parallel} GPUs")
    return 1 / min(tensor_parallel, dims.kv_heads)


def latent_ratio(dims: Dimensions) -> float:
    """Latent cache against the keys and values it stands for: (kv_lora + rope) / (H (nope + rope + value)).

    DeepSeek-V3 makes 1.4 %. The often quoted 5 to 7 % compares DeepSeek-V2 with another model, DeepSeek-67B.
    """
    if dims.mla is None:
        raise CardError("only latent attention has a latent")
    mla = dims.mla
    return (mla.kv_lora_rank + mla.rope_dim) / (dims.heads * (mla.nope_dim + mla.rope_dim + mla.value_dim))


def compressed_per_token(layers: Iterable[tuple[int, float, int]]) -> float:
    """Bytes per token of compressed attention: sum of layers x bytes of an entry / tokens that share it."""
    return sum(count * entry / ratio for count, entry, ratio in layers)
