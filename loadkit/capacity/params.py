"""Parameters of a decoder from its dimensions: how many there are, and how many one token meets.

Per layer, with hidden D, H query heads, K key heads, head dimension h, width F: attention D (H + 2K) h + H h D, a gated
MLP 3 D F, norms D each. Mixture of experts: E experts of 3 D F_e, k of them per token, a router D E. Latent attention
as in the DeepSeek-V2 paper. Qwen3-Next's linear layers as in its published modelling code.
"""

from dataclasses import dataclass

from loadkit.capacity.card import Dimensions, LinearAttention, Mla, ModelCard
from loadkit.capacity.errors import CardError

TOLERANCE = 0.02  # a card that differs more from its own stated count is wrong somewhere


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parts of the count. `expert` is one routed expert summed over all layers, its biases included."""

    embedding: int
    head: int  # 0 when tied
    attention: int  # matrices
    ffn: int  # matrices of dense layers, shared experts and routers
    expert: int
    experts: int
    active_experts: int
    vectors: int  # norms, biases, convolutions

    @property
    def total(self) -> int:
        """Every stored parameter; a tied head is stored once."""
        return self.embedding + self.head + self.attention + self.ffn + self.experts * self.expert + self.vectors

    @property
    def linear(self) -> int:
        """Weights of matrix products a prompt token meets: no embedding, and no head, which only the last token meets.

        This is the P of prefill FLOPs = 2 P n + attention.
        """
        return self.attention + self.ffn + self.active_experts * self.expert

    def active(self, embedding: bool = True) -> int:
        """Parameters one token meets, the input embedding counted whole or not at all (a tied one is the head)."""
        without = self.linear + self.vectors + (self.head or self.embedding)
        return without + (self.embedding if embedding and self.head else 0)

    def read_per_step(self, experts_touched: float | None = None) -> float:
        """Parameters read from memory for one decode step: all but the input embedding, of which a step reads rows.

        `experts_touched` per layer by the whole batch; None means those of one token.
        """
        experts = self.active_experts if experts_touched is None else experts_touched
        return self.attention + self.ffn + experts * self.expert + self.vectors + (self.head or self.embedding)


def parameters(dims: Dimensions) -> Parameters:
    """The count of `dims`, part by part."""
    moe = dims.moe
    routed = dims.layers - dims.dense_layers
    softmax_layers = dims.layers - dims.linear_layers
    ffn = dims.dense_layers * 3 * dims.hidden * dims.ffn
    expert = 0
    vectors = dims.hidden + dims.layers * dims.norms * dims.hidden + softmax_layers * _vectors(dims)
    if moe:
        shared = 3 * dims.hidden * moe.shared_ffn + (dims.hidden if moe.shared_gate else 0)
        ffn += routed * (shared + dims.hidden * moe.experts)
        expert = routed * (3 * dims.hidden * moe.expert_ffn + (2 * moe.expert_ffn + dims.hidden if moe.bias else 0))
        vectors += routed * moe.experts if moe.bias else 0
    attention = softmax_layers * _attention(dims)
    if dims.linear:
        attention += dims.linear.layers * _linear_attention(dims.hidden, dims.linear)
        vectors += dims.linear.layers * _linear_vectors(dims.linear)
    embedding = dims.vocab * dims.hidden
    return Parameters(
        embedding=embedding,
        head=0 if dims.tied else embedding,
        attention=attention,
        ffn=ffn,
        expert=expert,
        experts=moe.experts if moe else 0,
        active_experts=moe.active if moe else 0,
        vectors=vectors,
    )


def check(card: ModelCard) -> ModelCard:
    """The same card when its stated counts are those of its dimensions within 2 %; CardError names the two counts."""
    if card.dims is None:
        return card
    counted = parameters(card.dims)
    pairs = (("parameters", card.params, counted.total), ("active", card.active, counted.active(card.active_embedding)))
    for what, stated, computed in pairs:
        if stated is not None and abs(computed - stated) > TOLERANCE * stated:
            raise CardError(
                f"{card.name}: {stated:,} {what} are stated but its dimensions make {computed:,} "
                f"({computed / stated - 1:+.1%})"
            )
    return card


def total(card: ModelCard) -> int:
    """Stored parameters: computed, or stated where there are no dimensions."""
    if card.dims is not None:
        return parameters(card.dims).total
    assert card.params is not None
    return card.params


def _attention(dims: Dimensions) -> int:
    """Matrices of one softmax attention layer."""
    if dims.mla:
        return _latent(dims.hidden, dims.heads, dims.mla)
    queries = dims.heads * dims.head_dim * (2 if dims.gated_query else 1)
    return dims.hidden * (queries + 2 * dims.kv_heads * dims.head_dim) + dims.heads * dims.head_dim * dims.hidden


def _latent(hidden: int, heads: int, mla: Mla) -> int:
    width = heads * (mla.nope_dim + mla.rope_dim)
    queries = hidden * mla.q_lora_rank + mla.q_lora_rank * width if mla.q_lora_rank else hidden * width
    down = hidden * (mla.kv_lora_rank + mla.rope_dim)
    up = mla.kv_lora_rank * heads * (mla.nope_dim + mla.value_dim)
    return queries + down + up + heads * mla.value_dim * hidden


def _vectors(dims: Dimensions) -> int:
    """Biases and norms inside one softmax attention layer."""
    if dims.mla:
        return dims.mla.kv_lora_rank + dims.mla.q_lora_rank
    bias = (dims.heads + 2 * dims.kv_heads) * dims.head_dim if dims.qkv_bias else 0
    bias += dims.hidden if dims.out_bias else 0
    return bias + (2 * dims.head_dim if dims.qk_norm else 0) + (dims.heads if dims.sinks else 0)


def _linear_attention(hidden: int, linear: LinearAttention) -> int:
    """Queries, keys, values, output gate, two gates per value head, and the way out."""
    keys, values = linear.key_heads * linear.key_dim, linear.value_heads * linear.value_dim
    return hidden * (2 * keys + 2 * values + 2 * linear.value_heads) + values * hidden


def _linear_vectors(linear: LinearAttention) -> int:
    keys, values = linear.key_heads * linear.key_dim, linear.value_heads * linear.value_dim
    return (2 * keys + values) * linear.conv + 2 * linear.value_heads + linear.value_dim
