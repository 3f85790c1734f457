"""A GGUF file, memory-mapped: metadata and weights, dequantised to float32 by the `gguf` package."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
from gguf.quants import dequantize

from loadkit.engine.config import ModelConfig, from_gguf
from loadkit.engine.errors import EngineError
from loadkit.engine.gguf_header import Damaged, read_header
from loadkit.engine.hf_folder import forget
from loadkit.engine.weights import EMBEDDING, FINAL_NORM, HEAD, Array, Weights, pack

NAMES = {
    EMBEDDING: "token_embd.weight",
    FINAL_NORM: "output_norm.weight",
    HEAD: "output.weight",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
ROPE_FACTORS = "rope_freqs.weight"
PART = 2**20  # values dequantised at a time: the package makes several temporaries of their size


class GgufFile:
    """An opened GGUF file. Raises EngineError when it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise EngineError(f"{path}: no such file") from None
        except (OSError, ValueError) as error:
            raise EngineError(f"{path.name}: not a readable GGUF file: {error}") from None
        try:
            self.metadata, self.tensors = read_header(self._data)
        except Damaged as error:
            raise EngineError(f"{path.name}: not a readable GGUF file: {error}") from None

    def read(self, name: str) -> Array:
        """The tensor `name` (GGUF's name) as float32, [out, in] for matrices."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise EngineError(f"{self.path.name}: no tensor {name}")
        columns, rows = tensor.shape[-1], tensor.rows
        raw = np.frombuffer(self._data, np.uint8, rows * tensor.row_bytes, tensor.begin).reshape(rows, -1)
        values = np.empty((rows, columns), np.float32)
        step = max(PART // columns, 1)
        try:
            for first in range(0, rows, step):
                values[first : first + step] = dequantize(raw[first : first + step], tensor.kind)
        except (NotImplementedError, KeyError):
            kind = tensor.kind.name
            raise EngineError(f"{self.path.name}: {name} is {kind}, which cannot be dequantised here") from None
        forget(self._data, tensor.begin, tensor.end)
        return values.reshape(tensor.shape)


def load(file: GgufFile, threads: int = 1) -> tuple[ModelConfig, Weights]:
    """Config and weights of an opened GGUF file, laid out for `threads` threads."""
    embedding = file.tensors.get(NAMES[EMBEDDING])
    if embedding is None:
        raise EngineError(f"{file.path.name}: no tensor token_embd.weight")
    factors = file.read(ROPE_FACTORS).reshape(-1) if ROPE_FACTORS in file.tensors else None
    config = from_gguf(
        file.metadata,
        vocab=embedding.shape[0],
        tied="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
        rope_factors=None if factors is None else tuple(map(float, factors)),
    )
    # Converters to GGUF interleave llama's query and key rows and leave those of qwen2 and qwen3 as they are.
    pairs = config.architecture == "llama"
    return config, pack(config, lambda name: file.read(gguf_name(name)), rope_pairs=pairs, threads=threads)


def gguf_name(name: str) -> str:
    """GGUF's name of a Hugging Face tensor: model.layers.3.mlp.up_proj.weight -> blk.3.ffn_up.weight."""
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[module]}.{kind}"
