"""The model card of a GGUF file: dimensions from metadata, biases and norms from the tensors that are there.

The file states its own parameter count, the sum of its tensors, and `params.check` holds the dimensions against it.
"""

from pathlib import Path
from typing import Any

from loadkit.capacity.card import Dimensions, Mla, ModelCard, Moe, Sliding
from loadkit.capacity.errors import CardError
from loadkit.capacity.gguf_header import Header, Tensor, read_header
from loadkit.capacity.params import check

# llama.cpp keeps these patterns in its code: one layer in so many is full, the others slide (0: none slides).
SLIDES_EVERY = {
    "llama": 0,
    "qwen2": 0,
    "qwen2moe": 0,
    "qwen3": 0,
    "qwen3moe": 0,
    "internlm2": 0,
    "deepseek2": 0,
    "glm4moe": 0,
    "phi3": 0,  # its window is read but not used
    "gemma2": 2,
    "gemma3": 6,
    "gpt-oss": 2,
}
NOT_WEIGHTS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


def read(path: Path) -> ModelCard:
    """The card of a GGUF file. CardError when it is damaged, of an unknown architecture, or contradicts itself."""
    card = from_header(read_header(path), path.stem)
    return check(card)


def from_header(header: Header, name: str) -> ModelCard:
    """The card of a header; its counts are not held against each other here."""
    meta = Metadata(header)
    tensors = _weights(header, meta.layers)
    size = sum(tensor.bytes for tensor in tensors.values())
    elements = sum(tensor.elements for tensor in tensors.values())
    context = meta.optional("context_length")
    return ModelCard(
        name=name,
        source="the header of its GGUF file",
        dims=_dimensions(meta, tensors, context),
        params=elements,
        bits=8 * size / elements if elements else None,
        weight_bytes=size,
        context=context,
    )


class Metadata:
    """Numbers of a header's metadata by their name without the architecture in front."""

    def __init__(self, header: Header) -> None:
        self._values = header.metadata
        self.architecture = str(header.metadata.get("general.architecture"))
        if self.architecture not in SLIDES_EVERY:
            known = ", ".join(SLIDES_EVERY)
            raise CardError(f"GGUF: architecture {self.architecture[:40]!r} is not known, only {known}")
        # Layers that only predict further tokens are stored behind the others and not run by a plain server.
        self.layers = self.number("block_count") - (self.optional("nextn_predict_layers") or 0)

    def raw(self, name: str) -> Any:
        """The value as the file has it, None when it is missing."""
        return self._values.get(f"{self.architecture}.{name}")

    def optional(self, name: str) -> int | None:
        """A whole number, or the one that every layer has; None when it is missing."""
        value = self.raw(name)
        if isinstance(value, list):
            if len(set(value)) != 1:
                raise CardError(f"GGUF: {name} differs from layer to layer, which is not supported")
            value = value[0]
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise CardError(f"GGUF: {name} must be a whole number, it is {str(value)[:40]!r}")
        return value

    def number(self, name: str) -> int:
        """`optional`, CardError when it is missing."""
        value = self.optional(name)
        if value is None:
            raise CardError(f"GGUF: metadata {self.architecture}.{name} is missing")
        return value


def _weights(header: Header, layers: int) -> dict[str, Tensor]:
    """Tensors that a plain decode uses: no frequency tables, no layers behind the last."""
    kept = {}
    for name, tensor in header.tensors.items():
        parts = name.split(".")
        behind = parts[0] == "blk" and len(parts) > 1 and parts[1].isdecimal() and int(parts[1]) >= layers
        if name not in NOT_WEIGHTS and parts[-2:-1] not in (["rope_freqs"],) and not behind:
            kept[name] = tensor
    return kept


def _dimensions(meta: Metadata, tensors: dict[str, Tensor], context: int | None) -> Dimensions:
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise CardError("GGUF: no tensor token_embd.weight; a further part of a split file has no dimensions")
    heads, hidden = meta.number("attention.head_count"), meta.number("embedding_length")
    kv_heads, head_dim = meta.optional("attention.head_count_kv"), meta.optional("attention.key_length")
    block = {name.split(".", 2)[2] for name in tensors if name.startswith("blk.0.")}
    norms = sum(name.endswith("_norm.weight") and not name.startswith(("attn_q", "attn_k")) for name in block)
    return Dimensions(
        layers=meta.layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads if kv_heads is None else kv_heads,
        head_dim=hidden // max(1, heads) if head_dim is None else head_dim,
        ffn=meta.optional("feed_forward_length") or 0,
        vocab=embedding.shape[1],
        tied="output.weight" not in tensors,
        qkv_bias=bool(block & {"attn_q.bias", "attn_qkv.bias"}),
        out_bias="attn_output.bias" in block,
        qk_norm="attn_q_norm.weight" in block,
        norms=norms,
        sinks="attn_sinks.weight" in block,
        context=context,
        mla=_mla(meta) if meta.architecture == "deepseek2" else None,
        moe=_moe(meta, tensors),
        sliding=_sliding(meta),
    )


def _moe(meta: Metadata, tensors: dict[str, Tensor]) -> Moe | None:
    experts = meta.optional("expert_count")
    if not experts:
        return None
    width = meta.optional("expert_feed_forward_length") or meta.number("feed_forward_length")
    shared = meta.optional("expert_shared_feed_forward_length")
    last = f"blk.{meta.layers - 1}."
    return Moe(
        experts=experts,
        active=meta.number("expert_used_count"),
        expert_ffn=width,
        shared_ffn=width * (meta.optional("expert_shared_count") or 0) if shared is None else shared,
        shared_gate=f"{last}ffn_gate_inp_shexp.weight" in tensors,
        dense_layers=meta.optional("leading_dense_block_count") or 0,
        bias=f"{last}ffn_up_exps.bias" in tensors,
    )


def _mla(meta: Metadata) -> Mla:
    """Newer files give the widths of a head before compression as *_mla, older ones under the plain names."""
    rope = meta.number("rope.dimension_count")
    key = meta.optional("attention.key_length_mla") or meta.number("attention.key_length")
    return Mla(
        kv_lora_rank=meta.number("attention.kv_lora_rank"),
        rope_dim=rope,
        nope_dim=key - rope,
        value_dim=meta.optional("attention.value_length_mla") or meta.number("attention.value_length"),
        q_lora_rank=meta.optional("attention.q_lora_rank") or 0,
    )


def _sliding(meta: Metadata) -> Sliding | None:
    """Sliding layers: from the pattern in the file, else from llama.cpp's for the architecture."""
    window = meta.optional("attention.sliding_window")
    if not window:
        return None
    pattern = meta.raw("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        count = sum(bool(slides) for slides in pattern[: meta.layers])
    else:
        every = pattern or SLIDES_EVERY[meta.architecture]
        count = meta.layers - meta.layers // every if every else 0
    return Sliding(count, window) if count and window < (meta.optional("context_length") or window + 1) else None
