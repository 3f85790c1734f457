"""A model card from a Hugging Face config.json: the fields each family uses, and what its code adds without saying so.

Families not listed are refused by name: a guess about biases, windows or experts would look like a fact.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loadkit.capacity.card import Dimensions, LinearAttention, Mla, ModelCard, Moe, Sliding
from loadkit.capacity.errors import CardError
from loadkit.capacity.params import check, parameters

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """What the modelling code of a `model_type` does beyond its config. None: the config's attention_bias says."""

    qkv_bias: bool | None = False
    out_bias: bool | None = False
    qk_norm: bool = False
    norms: int = 2
    slides_every: int = 0  # one layer in so many is full, the others slide; 1: all slide; 0: none unless asked
    gated_query: bool = False
    sinks: bool = False
    shared_gate: bool = False
    expert_bias: bool = False


FAMILIES = {
    "llama": Family(qkv_bias=None, out_bias=None),
    "mistral": Family(slides_every=1),
    "mixtral": Family(slides_every=1),
    "internlm2": Family(),
    "chatglm": Family(qkv_bias=True),
    "phi3": Family(slides_every=1),
    "qwen2": Family(qkv_bias=True),
    "qwen2_moe": Family(qkv_bias=True, shared_gate=True),
    "qwen3": Family(qkv_bias=None, out_bias=None, qk_norm=True),
    "qwen3_moe": Family(qkv_bias=None, out_bias=None, qk_norm=True),
    "qwen3_next": Family(qk_norm=True, gated_query=True, shared_gate=True),
    "gemma2": Family(norms=4, slides_every=2),
    "gemma3_text": Family(norms=4, slides_every=6, qk_norm=True),
    "gpt_oss": Family(qkv_bias=True, out_bias=True, slides_every=2, sinks=True, expert_bias=True),
    "glm4_moe": Family(qkv_bias=None),
    "deepseek_v2": Family(),
    "deepseek_v3": Family(),
}
SAME = {"gemma3": "gemma3_text", "kimi_k2": "deepseek_v3"}
# What a config may leave out because its class in transformers 5.24.0 has it as a default.
DEFAULTS: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 4096},
    "qwen3": {"head_dim": 128},
    "qwen3_next": {"head_dim": 256},
    "gpt_oss": {"head_dim": 64, "sliding_window": 128},
    "gemma3_text": {
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
    },
    "gemma2": {"head_dim": 256, "sliding_window": 4096, "tie_word_embeddings": True},
}
INDEX = "model.safetensors.index.json"
DTYPE_BITS = {"float32": 32.0, "bfloat16": 16.0, "float16": 16.0}
MXFP4_BITS = 4.25  # a byte of scale for 32 values; only experts are stored so, the rest at 16


def read(path: Path) -> ModelCard:
    """The card of a config.json, or of the one in a folder, with the sizes that an index of weights beside it states.

    CardError when it cannot be read or understood, or when the index counts other parameters than the config makes.
    """
    file = path / "config.json" if path.is_dir() else path
    card = from_config(_object(file), name=file.resolve().parent.name or file.name)
    index = file.parent / INDEX
    stated = _object(index).get("metadata") if index.is_file() else None
    if not isinstance(stated, dict):
        return card
    size, count = stated.get("total_size"), stated.get("total_parameters")
    return check(
        replace(
            card,
            weight_bytes=int(size) if isinstance(size, (int, float)) and size > 0 else None,
            params=count if isinstance(count, int) and count > 0 else None,
        )
    )


def _object(file: Path) -> dict[str, Any]:
    try:
        raw = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise CardError(f"{file}: {error.strerror or error}") from None
    except ValueError:
        raise CardError(f"{file}: not JSON") from None
    if not isinstance(raw, dict):
        raise CardError(f"{file}: not a JSON object")
    return raw


def from_config(raw: Raw, name: str | None = None) -> ModelCard:
    """The card of a parsed config.json; a nested text_config is the decoder of a model that sees or hears too."""
    nested = raw.get("text_config")
    text: Raw = {**raw, **nested} if isinstance(nested, dict) else raw
    kind = str(text.get("model_type"))
    kind = SAME.get(kind, kind)
    text = {**DEFAULTS.get(kind, {}), **text}
    if kind not in FAMILIES:
        raise CardError(f"config.json: model_type {kind[:40]!r} is not known, only {', '.join(FAMILIES)}")
    label = str(name or raw.get("_name_or_path") or kind)
    context = _optional(text, "max_position_embeddings", "seq_length")
    dims = _dimensions(text, kind, FAMILIES[kind], context)
    return ModelCard(
        name=label,
        source=f"config.json of {label}",
        dims=dims,
        bits=_bits(text, dims),
        context=context,
    )


def _dimensions(raw: Raw, kind: str, family: Family, context: int | None) -> Dimensions:
    layers = _number(raw, "num_hidden_layers", "num_layers")
    heads = _number(raw, "num_attention_heads")
    hidden = _number(raw, "hidden_size")
    mla = _mla(raw) if kind.startswith("deepseek") else None
    moe = _moe(raw, family)
    said = bool(raw.get("attention_bias"))
    kv_heads = _optional(raw, "num_key_value_heads", "multi_query_group_num")
    head_dim = _optional(raw, "head_dim", "kv_channels")
    linear, sliding = _layer_kinds(raw, kind, family, layers, context)
    return Dimensions(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads if kv_heads is None else kv_heads,
        head_dim=hidden // max(1, heads) if head_dim is None else head_dim,
        ffn=_number(raw, "intermediate_size", "ffn_hidden_size"),
        vocab=_number(raw, "vocab_size", "padded_vocab_size"),
        tied=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=said if family.qkv_bias is None else family.qkv_bias,
        out_bias=said if family.out_bias is None else family.out_bias,
        qk_norm=family.qk_norm or bool(raw.get("use_qk_norm")),
        norms=family.norms,
        gated_query=family.gated_query,
        sinks=family.sinks,
        context=context,
        mla=mla,
        moe=moe,
        sliding=sliding,
        linear=linear,
    )


def _mla(raw: Raw) -> Mla:
    return Mla(
        kv_lora_rank=_number(raw, "kv_lora_rank"),
        rope_dim=_number(raw, "qk_rope_head_dim"),
        nope_dim=_number(raw, "qk_nope_head_dim"),
        value_dim=_number(raw, "v_head_dim"),
        q_lora_rank=_optional(raw, "q_lora_rank") or 0,
    )


def _moe(raw: Raw, family: Family) -> Moe | None:
    """Routed experts; the three names of their number are those of the families above."""
    experts = _optional(raw, "num_local_experts", "num_experts", "n_routed_experts")
    if not experts:
        return None
    if raw.get("mlp_only_layers") or raw.get("decoder_sparse_step", 1) != 1 or raw.get("moe_layer_freq", 1) != 1:
        raise CardError("config.json: dense layers between routed ones are not supported, only before them")
    width = _optional(raw, "moe_intermediate_size") or _number(raw, "intermediate_size")
    shared = _optional(raw, "shared_expert_intermediate_size")
    if shared is None:
        shared = width * (_optional(raw, "n_shared_experts") or 0)
    return Moe(
        experts=experts,
        active=_number(raw, "num_experts_per_tok"),
        expert_ffn=width,
        shared_ffn=shared,
        shared_gate=family.shared_gate,
        dense_layers=_optional(raw, "first_k_dense_replace") or 0,
        bias=family.expert_bias,
    )


def _layer_kinds(
    raw: Raw, kind: str, family: Family, layers: int, context: int | None
) -> tuple[LinearAttention | None, Sliding | None]:
    """Linear and sliding layers: from layer_types where the config has them, else by the family's rule."""
    named = raw.get("layer_types")
    if isinstance(named, list) and named:
        known = {"full_attention", "sliding_attention", "linear_attention"}
        strange = [str(n) for n in named if n not in known]
        if strange or len(named) != layers:
            what = f"layer type {strange[0][:40]!r} is not known" if strange else f"{len(named)} layer_types"
            raise CardError(f"config.json: {what} in a model of {layers} layers")
        counts = named.count("linear_attention"), named.count("sliding_attention")
    elif kind == "qwen3_next":
        counts = layers - layers // (_optional(raw, "full_attention_interval") or 4), 0
    else:
        counts = 0, _sliding_layers(raw, family, layers)
    linear = _linear(raw, counts[0]) if counts[0] else None
    sliding = Sliding(counts[1], _number(raw, "sliding_window")) if counts[1] else None
    # A window as wide as the context never slides (Phi-3-mini-128k).
    return linear, None if sliding and context and sliding.window >= context else sliding


def _sliding_layers(raw: Raw, family: Family, layers: int) -> int:
    window = raw.get("sliding_window")
    if not isinstance(window, int) or window < 1:
        return 0
    if "use_sliding_window" in raw or family.slides_every == 0:
        # Qwen: switched on for the layers from max_window_layers on.
        first = _optional(raw, "max_window_layers")
        return max(0, layers - (first or 0)) if raw.get("use_sliding_window") else 0
    every = _optional(raw, "sliding_window_pattern") or family.slides_every
    return layers if every == 1 else layers - layers // every


def _linear(raw: Raw, layers: int) -> LinearAttention:
    return LinearAttention(
        layers=layers,
        key_heads=_number(raw, "linear_num_key_heads"),
        value_heads=_number(raw, "linear_num_value_heads"),
        key_dim=_number(raw, "linear_key_head_dim"),
        value_dim=_number(raw, "linear_value_head_dim"),
        conv=_optional(raw, "linear_conv_kernel_dim") or 4,
    )


def _bits(raw: Raw, dims: Dimensions) -> float | None:
    """Bits of a stored weight, on average, as the config tells them; None where it does not."""
    quant = raw.get("quantization_config")
    if not isinstance(quant, dict):
        return DTYPE_BITS.get(str(raw.get("dtype") or raw.get("torch_dtype")))
    method, bits = quant.get("quant_method"), quant.get("bits")
    if method == "fp8":
        return 8.0
    if method == "mxfp4":
        counted = parameters(dims)
        share = counted.experts * counted.expert / counted.total
        return MXFP4_BITS * share + 16 * (1 - share)
    return float(bits) if isinstance(bits, int) and bits > 0 else None


def _number(raw: Raw, *names: str) -> int:
    value = _optional(raw, *names)
    if value is None:
        raise CardError(f"config.json: {names[0]} is missing")
    return value


def _optional(raw: Raw, *names: str) -> int | None:
    """The first of the fields that is there and not null; CardError when it is no whole number."""
    for name in names:
        value = raw.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise CardError(f"config.json: {name} must be a whole number, it is {str(value)[:40]!r}")
        return value
    return None
