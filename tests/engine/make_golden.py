"""Make the golden files of the numerical tests: tiny random models and the logits `transformers` computes for them.

Needs torch and transformers (the `golden` extra); the tests themselves read only what this script wrote.

    python tests/engine/make_golden.py

Writes golden/<architecture>/ (config.json, model.safetensors) and golden/<architecture>.npz with `tokens` [T] and
`logits` [T, V] in float32.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

GOLDEN = Path(__file__).parent / "golden"
TOKENS = 200
DIMENSIONS = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "initializer_range": 0.1,
    "use_cache": False,
}
# Short waves, long ones and some in between, within the 200 tokens.
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
MODELS = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"tie_word_embeddings": True, "rope_theta": 1_000_000.0}),
    "llama": (LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": False, "rope_theta": 10_000.0}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 32, "tie_word_embeddings": True, "rope_theta": 1_000_000.0}),
    "llama3": (LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": True, "rope_parameters": LLAMA3_ROPE}),
}


def make(architecture: str, seed: int) -> None:
    config_class, model_class, extra = MODELS[architecture]
    torch.manual_seed(seed)
    model = model_class(config_class(**DIMENSIONS, **extra)).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Norm gains start at 1 and biases at 0: moved, so that a forgotten one shows.
            if "norm" in name or name.endswith("bias"):
                parameter.add_(0.2 * torch.randn_like(parameter))
        tokens = torch.randint(0, DIMENSIONS["vocab_size"], (TOKENS,))
        logits = model(tokens[None]).logits[0]
        # Logits of unit scale make the tolerance of the test mean something: the last gain sets it.
        scale = 1.0 / logits.std()
        model.model.norm.weight.mul_(scale)
        logits = model(tokens[None]).logits[0]
    model.save_pretrained(GOLDEN / architecture)
    (GOLDEN / architecture / "generation_config.json").unlink(missing_ok=True)
    np.savez_compressed(GOLDEN / f"{architecture}.npz", tokens=tokens.numpy(), logits=logits.numpy())
    print(architecture, "logits: std", float(logits.std()), "largest", float(logits.abs().max()))


if __name__ == "__main__":
    for number, name in enumerate(MODELS):
        make(name, seed=number)
