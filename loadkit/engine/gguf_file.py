"""A GGUF file: metadata and weights, dequantised to float32 by the `gguf` package."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

from loadkit.engine.config import ModelConfig, from_gguf
from loadkit.engine.errors import EngineError
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
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# What the reader raises on a damaged file: it trusts every length and type it reads.
DAMAGE = (ValueError, KeyError, IndexError, TypeError, OverflowError, MemoryError, OSError, struct.error)


class GgufFile:
    """An opened GGUF file. Raises EngineError when it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            reader = GGUFReader(path)
            self.metadata: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
            self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        except FileNotFoundError:
            raise EngineError(f"{path}: no such file") from None
        except DAMAGE as error:
            raise EngineError(f"{path.name}: not a readable GGUF file: {error}") from None

    def read(self, name: str) -> Array:
        """The tensor `name` (GGUF's name) as float32, [out, in] for matrices."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise EngineError(f"{self.path.name}: no tensor {name}")
        try:
            values = dequantize(tensor.data, tensor.tensor_type)
        except (NotImplementedError, KeyError):
            kind = tensor.tensor_type.name
            raise EngineError(f"{self.path.name}: {name} is {kind}, which cannot be dequantised here") from None
        return np.ascontiguousarray(values, np.float32)


def load(file: GgufFile) -> tuple[ModelConfig, Weights]:
    """Config and weights of an opened GGUF file."""
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise EngineError(f"{file.path.name}: no tensor token_embd.weight")
    if "rope_freqs.weight" in file.tensors:
        raise EngineError(f"{file.path.name}: scaled RoPE frequencies (rope_freqs.weight) are not supported")
    config = from_gguf(
        file.metadata,
        vocab=int(embedding.shape[1]),
        tied="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
    )
    # Converters to GGUF interleave llama's query and key rows and leave qwen2's as they are.
    pairs = config.architecture == "llama"
    return config, pack(config, lambda name: file.read(gguf_name(name)), rope_pairs=pairs)


def gguf_name(name: str) -> str:
    """GGUF's name of a Hugging Face tensor: model.layers.3.mlp.up_proj.weight -> blk.3.ffn_up.weight."""
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[module]}.{kind}"
