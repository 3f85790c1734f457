"""The dimensions of a model, read from a Hugging Face config.json or from GGUF metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from loadkit.engine.errors import EngineError
from loadkit.engine.rope import llama3_factors
from loadkit.engine.untrusted import integer, number, shown

ARCHITECTURES = {"Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3", "LlamaForCausalLM": "llama"}
MOST = 2**31  # no dimension of a model is larger; a number from a file that is would only exhaust memory
LONGEST_CONTEXT = 2**21  # positions: RoPE factors for all of them stay below half a gigabyte


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One dense decoder: RMSNorm, RoPE, grouped-query attention, SwiGLU."""

    architecture: str  # "qwen2" (biases), "qwen3" (norms of queries and keys) or "llama" (neither): one block
    layers: int
    hidden: int  # D
    heads: int  # H, query heads
    kv_heads: int  # K, key and value heads; G = H / K query heads share one
    head_dim: int  # h
    ffn: int  # F
    vocab: int  # V
    context_length: int  # positions the model was trained for
    rope_theta: float
    rms_eps: float
    tied: bool  # the output head is the embedding
    qkv_bias: bool
    qk_norm: bool = False  # each head's query and key is RMS-normed before RoPE
    rope_factors: tuple[float, ...] | None = None  # [h/2], what each RoPE frequency is divided by; None for all 1

    @property
    def group(self) -> int:
        """Query heads per key head."""
        return self.heads // self.kv_heads

    @property
    def qkv_width(self) -> int:
        """Columns of the fused query, key, value projection: (H + 2 K) h."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def parameters(self) -> int:
        """Number of weights, norms and biases included, a tied head counted once."""
        attention = self.hidden * self.qkv_width + self.heads * self.head_dim * self.hidden
        extra = (self.qkv_width if self.qkv_bias else 0) + (2 * self.head_dim if self.qk_norm else 0)
        layer = attention + extra + 3 * self.hidden * self.ffn + 2 * self.hidden
        return self.layers * layer + self.hidden + self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def dimensions(self) -> dict[str, int | bool]:
        """The shape as plain numbers, for those who want to predict what a prompt costs."""
        names = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "tied", "qkv_bias")
        return {name: getattr(self, name) for name in names} | {"context": self.context_length}

    def kv_bytes(self, tokens: int) -> int:
        """Bytes of a float32 key and value cache for `tokens` positions."""
        return self.layers * 2 * self.kv_heads * self.head_dim * tokens * 4


def check(config: ModelConfig) -> ModelConfig:
    """The same config when its numbers fit together; EngineError with the first that does not."""
    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context_length"):
        if not 1 <= getattr(config, name) < MOST:
            raise EngineError(f"model config: {name} must be from 1 to {MOST - 1}, it is {getattr(config, name)}")
    if config.context_length > LONGEST_CONTEXT:
        raise EngineError(f"model config: a window above {LONGEST_CONTEXT} tokens is not supported")
    if config.heads % config.kv_heads:
        raise EngineError(f"model config: {config.heads} query heads do not divide by {config.kv_heads} key heads")
    if config.head_dim % 2:
        raise EngineError(f"model config: RoPE needs an even head dimension, it is {config.head_dim}")
    if config.rope_theta <= 0 or config.rms_eps < 0:
        raise EngineError("model config: RoPE's base and the norms' epsilon must be positive")
    if config.rope_factors is not None and not all(0 < factor < math.inf for factor in config.rope_factors):
        raise EngineError("model config: RoPE's factors must be positive numbers")
    return config


def from_hf(raw: Mapping[str, Any]) -> ModelConfig:
    """ModelConfig of a parsed config.json; EngineError when the model asks for something this engine lacks."""
    names = raw.get("architectures")
    name = shown(names[0]) if isinstance(names, list) and names else "(none)"
    architecture = ARCHITECTURES.get(name)
    if architecture is None:
        raise EngineError(f"config.json: architecture {name} is not supported, only {', '.join(ARCHITECTURES)}")
    _refuse_hf_extras(raw)

    def whole(key: str, default: int | None = None) -> int:
        return integer("config.json", key, default if raw.get(key) is None else raw[key])

    heads, hidden = whole("num_attention_heads"), whole("hidden_size")
    head_dim = whole("head_dim", hidden // max(heads, 1))
    rope = _hf_rope(raw)
    theta = number("config.json", "rope_theta", raw.get("rope_theta") or rope.get("rope_theta") or 10000.0)
    config = check(
        ModelConfig(
            architecture=architecture,
            layers=whole("num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=whole("num_key_value_heads", heads),
            head_dim=head_dim,
            ffn=whole("intermediate_size"),
            vocab=whole("vocab_size"),
            context_length=whole("max_position_embeddings", 2048),
            rope_theta=theta,
            rms_eps=number("config.json", "rms_norm_eps", raw.get("rms_norm_eps") or 1e-6),
            tied=raw.get("tie_word_embeddings") is True,
            qkv_bias=architecture == "qwen2",
            qk_norm=architecture == "qwen3",
        )
    )
    kind = rope.get("rope_type") or rope.get("type")
    return replace(config, rope_factors=llama3_factors(head_dim, theta, rope)) if kind == "llama3" else config


def _hf_rope(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The RoPE settings, under their older or newer name; EngineError for a kind that is not known here."""
    rope = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise EngineError("config.json: the RoPE settings must be an object")
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in ("default", "llama3"):
        raise EngineError(f"config.json: RoPE scaling {shown(kind)!r} is not supported, only llama3's")
    return rope


def _refuse_hf_extras(raw: Mapping[str, Any]) -> None:
    """Raise for settings that would change the logits silently if they were ignored."""
    if raw.get("hidden_act", "silu") != "silu":
        raise EngineError(f"config.json: hidden_act {shown(raw['hidden_act'])} is not supported, only silu")
    for key in ("attention_bias", "mlp_bias", "use_sliding_window", "quantization_config"):
        if raw.get(key):
            raise EngineError(f"config.json: {key} is not supported")


def from_gguf(
    metadata: Mapping[str, Any],
    *,
    vocab: int,
    tied: bool,
    qkv_bias: bool,
    qk_norm: bool = False,
    rope_factors: tuple[float, ...] | None = None,
) -> ModelConfig:
    """ModelConfig of GGUF metadata; vocabulary, tying, biases, norms and RoPE factors are what the tensors show."""
    architecture = shown(metadata.get("general.architecture"))
    if architecture not in ARCHITECTURES.values():
        known = ", ".join(ARCHITECTURES.values())
        raise EngineError(f"GGUF: architecture {architecture} is not supported, only {known}")
    scaling = metadata.get(f"{architecture}.rope.scaling.type", "none")
    if scaling != "none":
        raise EngineError(f"GGUF: RoPE scaling {shown(scaling)!r} is not supported, only plain RoPE")

    def value(key: str, default: Any = None) -> Any:
        found = metadata.get(f"{architecture}.{key}", default)
        if found is None:
            raise EngineError(f"GGUF: metadata {architecture}.{key} is missing")
        return found

    def whole(key: str, default: int | None = None) -> int:
        return integer("GGUF", f"{architecture}.{key}", value(key, default))

    heads, hidden = whole("attention.head_count"), whole("embedding_length")
    head_dim = whole("attention.key_length", hidden // max(heads, 1))
    for key in ("rope.dimension_count", "attention.value_length"):
        if whole(key, head_dim) != head_dim:
            raise EngineError(f"GGUF: {architecture}.{key} must equal the head dimension {head_dim}")
    if rope_factors is not None and len(rope_factors) != head_dim // 2:
        raise EngineError(f"GGUF: {len(rope_factors)} RoPE factors for a head of {head_dim} dimensions")
    return check(
        ModelConfig(
            architecture=architecture,
            layers=whole("block_count"),
            hidden=hidden,
            heads=heads,
            kv_heads=whole("attention.head_count_kv", heads),
            head_dim=head_dim,
            ffn=whole("feed_forward_length"),
            vocab=vocab,
            context_length=whole("context_length"),
            rope_theta=number("GGUF", f"{architecture}.rope.freq_base", value("rope.freq_base", 10000.0)),
            rms_eps=number("GGUF", "attention.layer_norm_rms_epsilon", value("attention.layer_norm_rms_epsilon")),
            tied=tied,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            rope_factors=rope_factors,
        )
    )
