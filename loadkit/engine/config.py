"""The dimensions of a model, read from a Hugging Face config.json or from GGUF metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadkit.engine.errors import EngineError

ARCHITECTURES = {"Qwen2ForCausalLM": "qwen2", "LlamaForCausalLM": "llama"}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One dense decoder: RMSNorm, RoPE, grouped-query attention, SwiGLU."""

    architecture: str  # "qwen2" or "llama": the same block, llama without biases
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
        bias = self.qkv_width if self.qkv_bias else 0
        layer = attention + bias + 3 * self.hidden * self.ffn + 2 * self.hidden
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
        if getattr(config, name) < 1:
            raise EngineError(f"model config: {name} must be at least 1, it is {getattr(config, name)}")
    if config.heads % config.kv_heads:
        raise EngineError(f"model config: {config.heads} query heads do not divide by {config.kv_heads} key heads")
    if config.head_dim % 2:
        raise EngineError(f"model config: RoPE needs an even head dimension, it is {config.head_dim}")
    return config


def from_hf(raw: Mapping[str, Any]) -> ModelConfig:
    """ModelConfig of a parsed config.json; EngineError when the model asks for something this engine lacks."""
    names = raw.get("architectures") or ["(none)"]
    architecture = ARCHITECTURES.get(names[0])
    if architecture is None:
        raise EngineError(f"config.json: architecture {names[0]} is not supported, only {', '.join(ARCHITECTURES)}")
    _refuse_hf_extras(raw)
    rope = raw.get("rope_parameters") or {}
    heads = _number(raw, "num_attention_heads")
    hidden = _number(raw, "hidden_size")
    return check(
        ModelConfig(
            architecture=architecture,
            layers=_number(raw, "num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or hidden // max(heads, 1)),
            ffn=_number(raw, "intermediate_size"),
            vocab=_number(raw, "vocab_size"),
            context_length=int(raw.get("max_position_embeddings") or 2048),
            rope_theta=float(raw.get("rope_theta") or rope.get("rope_theta") or 10000.0),
            rms_eps=float(raw.get("rms_norm_eps") or 1e-6),
            tied=bool(raw.get("tie_word_embeddings", False)),
            qkv_bias=architecture == "qwen2",
        )
    )


def _number(raw: Mapping[str, Any], key: str) -> int:
    value = raw.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise EngineError(f"config.json: {key} must be an integer, it is {value!r}")
    return value


def _refuse_hf_extras(raw: Mapping[str, Any]) -> None:
    """Raise for settings that would change the logits silently if they were ignored."""
    if raw.get("hidden_act", "silu") != "silu":
        raise EngineError(f"config.json: hidden_act {raw['hidden_act']} is not supported, only silu")
    for key in ("attention_bias", "mlp_bias", "use_sliding_window"):
        if raw.get(key):
            raise EngineError(f"config.json: {key} is not supported")
    rope = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind != "default":
        raise EngineError(f"config.json: RoPE scaling {kind!r} is not supported, only plain RoPE")


def from_gguf(metadata: Mapping[str, Any], *, vocab: int, tied: bool, qkv_bias: bool) -> ModelConfig:
    """ModelConfig of GGUF metadata; vocabulary, tying and biases are what the tensors show."""
    architecture = str(metadata.get("general.architecture"))
    if architecture not in ARCHITECTURES.values():
        known = ", ".join(ARCHITECTURES.values())
        raise EngineError(f"GGUF: architecture {architecture} is not supported, only {known}")
    scaling = metadata.get(f"{architecture}.rope.scaling.type", "none")
    if scaling != "none":
        raise EngineError(f"GGUF: RoPE scaling {scaling!r} is not supported, only plain RoPE")

    def number(key: str, default: Any = None) -> Any:
        value = metadata.get(f"{architecture}.{key}", default)
        if value is None:
            raise EngineError(f"GGUF: metadata {architecture}.{key} is missing")
        return value

    heads = int(number("attention.head_count"))
    hidden = int(number("embedding_length"))
    head_dim = int(number("attention.key_length", hidden // max(heads, 1)))
    for key in ("rope.dimension_count", "attention.value_length"):
        if int(number(key, head_dim)) != head_dim:
            raise EngineError(f"GGUF: {architecture}.{key} must equal the head dimension {head_dim}")
    return check(
        ModelConfig(
            architecture=architecture,
            layers=int(number("block_count")),
            hidden=hidden,
            heads=heads,
            kv_heads=int(number("attention.head_count_kv", heads)),
            head_dim=head_dim,
            ffn=int(number("feed_forward_length")),
            vocab=vocab,
            context_length=int(number("context_length")),
            rope_theta=float(number("rope.freq_base", 10000.0)),
            rms_eps=float(number("attention.layer_norm_rms_epsilon")),
            tied=tied,
            qkv_bias=qkv_bias,
        )
    )
