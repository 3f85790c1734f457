"""What is known of a model before it is measured: its dimensions, its stated figures, and where they come from.

Parameters, active parameters and KV are separate accounts: 8B active parameters do not make 8B of memory. A card
whose dimensions are not published has only stated figures, and what needs dimensions refuses it.
"""

from dataclasses import dataclass, fields

from loadkit.capacity.errors import CardError


@dataclass(frozen=True, slots=True)
class Mla:
    """Multi-head latent attention (DeepSeek-V2, section 2.1): one latent and one RoPE key per token and layer."""

    kv_lora_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    q_lora_rank: int = 0  # 0: queries are projected in one step


@dataclass(frozen=True, slots=True)
class Moe:
    """Routed experts of the layers after the first `dense_layers`; the shared ones run for every token."""

    experts: int
    active: int  # experts per token
    expert_ffn: int
    shared_ffn: int = 0  # width of all shared experts together
    shared_gate: bool = False
    dense_layers: int = 0
    bias: bool = False  # in experts and router


@dataclass(frozen=True, slots=True)
class Sliding:
    """Layers that see only the last `window` tokens."""

    layers: int
    window: int


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated DeltaNet layers: a state of fixed size per sequence instead of keys and values."""

    layers: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int = 4  # positions of the short convolution


@dataclass(frozen=True, slots=True)
class Dimensions:
    """A decoder. Layers that neither slide nor are linear attend to everything. Raises CardError when contradictory."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int  # not always hidden / heads: Qwen3-0.6B has 128, gpt-oss 64
    ffn: int  # of dense layers; 0 when every layer is routed
    vocab: int
    tied: bool  # the output head is the embedding
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    norms: int = 2  # RMSNorms per layer
    gated_query: bool = False  # the query projection also makes an output gate of its size
    sinks: bool = False  # one learned logit per head
    context: int | None = None  # positions the model was made for
    mla: Mla | None = None
    moe: Moe | None = None
    sliding: Sliding | None = None
    linear: LinearAttention | None = None

    def __post_init__(self) -> None:
        for part in (self, self.mla, self.moe, self.sliding, self.linear):
            _check_numbers(part)
        if self.heads % self.kv_heads:
            raise CardError(f"{self.heads} query heads do not divide by {self.kv_heads} key heads")
        if self.full_layers < 0:
            raise CardError(
                f"{self.layers} layers cannot hold {self.layers - self.full_layers} sliding and linear ones"
            )
        _check_experts(self.moe, self.layers)
        if self.ffn == 0 and self.dense_layers:
            raise CardError(f"ffn must be at least 1 for {self.dense_layers} dense layers")

    @property
    def sliding_layers(self) -> int:
        """Layers with a window."""
        return self.sliding.layers if self.sliding else 0

    @property
    def linear_layers(self) -> int:
        """Layers with a state instead of a cache."""
        return self.linear.layers if self.linear else 0

    @property
    def full_layers(self) -> int:
        """Layers that attend to every earlier token."""
        return self.layers - self.sliding_layers - self.linear_layers

    @property
    def dense_layers(self) -> int:
        """Layers without routed experts."""
        return min(self.moe.dense_layers, self.layers) if self.moe else self.layers


MAY_BE_ZERO = ("ffn", "norms", "q_lora_rank", "shared_ffn", "dense_layers", "rope_dim", "nope_dim")


def _check_numbers(part: object | None) -> None:
    """CardError with the first count that is not a number of at least 1, or 0 where that means "none"."""
    if part is None:
        return
    for field in fields(part):  # type: ignore[arg-type]
        value = getattr(part, field.name)
        if field.type is bool:
            if not isinstance(value, bool):
                raise CardError(f"{field.name} must be true or false, it is {value!r}")
            continue
        if field.type is not int and (value is None or field.name != "context"):
            continue
        low = 0 if field.name in MAY_BE_ZERO else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise CardError(f"{field.name} must be a whole number of at least {low}, it is {value!r}")


def _check_experts(moe: Moe | None, layers: int) -> None:
    if moe is None:
        return
    if moe.active > moe.experts:
        raise CardError(f"{moe.active} active experts of {moe.experts}")
    if moe.dense_layers > layers:
        raise CardError(f"{moe.dense_layers} dense layers of {layers}")


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A model by name. Counts in parameters, sizes in bytes; None where nobody says.

    `active` is the stated count per token; `active_embedding` tells whether it includes the input embedding (Qwen and
    Mistral count it, OpenAI does not). `active_prefill` and `active_decode` differ only where a model runs different
    parts in the two phases. `kv_bytes_per_token` overrides the arithmetic where a maker states the growth. `bits` are
    those of a stored weight, scales included; `weight_bytes` is an exact size, where the file is known.
    """

    name: str
    source: str
    dims: Dimensions | None = None
    params: int | None = None
    active: int | None = None
    active_embedding: bool = True
    active_prefill: int | None = None
    active_decode: int | None = None
    kv_bytes_per_token: float | None = None
    bits: float | None = None
    weight_bytes: int | None = None
    context: int | None = None

    def __post_init__(self) -> None:
        if not self.name or not self.source:
            raise CardError("a model card needs a name and a source")
        for name in ("params", "active", "active_prefill", "active_decode", "kv_bytes_per_token", "bits"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise CardError(f"{self.name}: {name} must be above 0, it is {value!r}")
        if self.dims is None and self.params is None:
            raise CardError(f"{self.name}: a card without dimensions must state its parameters")

    def need(self) -> Dimensions:
        """The dimensions, CardError when they are not published."""
        if self.dims is None:
            raise CardError(
                f"{self.name}: its dimensions are not published ({self.source}), so this cannot be computed"
            )
        return self.dims
