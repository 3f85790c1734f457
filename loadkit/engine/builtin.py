"""The built-in model: random weights from a seed and one token per byte, so that prompt lengths are exact.

Time does not depend on the values of weights, so it loads a server and a load generator as a trained model of its
size would. Its text is noise; only printable ASCII is ever chosen, so that every token is one visible character.
"""

from __future__ import annotations

import numpy as np

from loadkit.engine.config import ModelConfig
from loadkit.engine.tokenizer import ByteTokenizer
from loadkit.engine.weights import Array, Layer, Weights, split

NAME = "loadkit-builtin"
CONFIG = ModelConfig(
    architecture="llama",
    layers=6,
    hidden=384,
    heads=6,
    kv_heads=2,
    head_dim=64,
    ffn=1024,
    vocab=ByteTokenizer.VOCAB,
    context_length=32768,
    rope_theta=100000.0,
    rms_eps=1e-5,
    tied=False,
    qkv_bias=False,
)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def suppressed(config: ModelConfig) -> tuple[int, ...]:
    """Tokens never generated: everything but printable ASCII."""
    return tuple(token for token in range(config.vocab) if not 32 <= token < 127)


def random_weights(config: ModelConfig, seed: int, threads: int = 1) -> Weights:
    """Random weights with activations of about unit scale; the same seed gives the same values for any `threads`."""
    rng = np.random.default_rng(seed)

    def matrix(outputs: int, inputs: int) -> Array:
        values = rng.random((outputs, inputs), np.float32)  # uniform: twice as fast to draw as normal
        values -= np.float32(0.5)
        values *= np.float32((12 / inputs) ** 0.5)
        return values

    D, K, G, h = config.hidden, config.kv_heads, config.group, config.head_dim
    # Folded weights carry 1/sqrt(h) in the queries or in the gain of their norm, see weights.py.
    scale = np.float32(h**-0.5)
    qk_gain = np.ones((K, G + 1, h), np.float32)
    qk_gain[:, :G] *= scale
    layers = []
    for _ in range(config.layers):
        qkv = matrix(config.qkv_width, D)
        if not config.qk_norm:
            qkv.reshape(K, G + 2, h, D)[:, :G] *= scale
        whole = Layer(
            qkv=qkv,
            qkv_bias=np.zeros(config.qkv_width, np.float32) if config.qkv_bias else None,
            out=matrix(D, config.heads * h),
            gate_up=matrix(2 * config.ffn, D),
            down=matrix(D, config.ffn),
            qk_gain=qk_gain if config.qk_norm else None,
        )
        layers.append(split(config, whole, threads))
    embedding = matrix(config.vocab, D)
    head = embedding if config.tied else matrix(config.vocab, D)
    return Weights(embedding, tuple(layers), np.ones(D, np.float32), head)
