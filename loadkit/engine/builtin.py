"""The built-in model: random weights from a seed and one token per byte, so that prompt lengths are exact.

Time does not depend on the values of weights, so it loads a server and a load generator as a trained model of its
size would. Its text is noise; only printable ASCII is ever chosen, so that every token is one visible character.
"""

from __future__ import annotations

import numpy as np

from loadkit.engine.config import ModelConfig
from loadkit.engine.tokenizer import ByteTokenizer
from loadkit.engine.weights import Array, Layer, Weights

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
# Never generated: everything but printable ASCII.
SUPPRESSED = tuple(token for token in range(CONFIG.vocab) if not 32 <= token < 127)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def random_weights(config: ModelConfig, seed: int) -> Weights:
    """Normal random weights with activations of about unit scale; the same seed gives the same values."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, inputs: int) -> Array:
        values = rng.standard_normal((rows, columns), np.float32)
        values *= np.float32(inputs**-0.5)
        return values

    width = config.heads * config.head_dim
    layers = []
    for _ in range(config.layers):
        qkv = matrix(config.hidden, config.qkv_width, config.hidden)
        # Folded weights carry 1/sqrt(h) in the queries, see weights.py.
        qkv[:, :width] *= np.float32(config.head_dim**-0.5)
        layers.append(
            Layer(
                qkv=qkv,
                qkv_bias=np.zeros(config.qkv_width, np.float32) if config.qkv_bias else None,
                out=matrix(config.hidden, width, width),
                gate_up=matrix(config.hidden, 2 * config.ffn, config.hidden),
                down=matrix(config.hidden, config.ffn, config.ffn),
            )
        )
    head = matrix(config.hidden, config.vocab, config.hidden)
    embedding = head.T if config.tied else rng.standard_normal((config.vocab, config.hidden), np.float32)
    return Weights(embedding, tuple(layers), np.ones(config.hidden, np.float32), head)
