"""The shipped rows, and which names find them: a wrong size is worse than none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.capacity.catalogue import cards, dimensions, lookup, normal
from loadkit.capacity.errors import CardError

FOUND = {
    "Qwen/Qwen2.5-0.5B-Instruct": "Qwen2.5-0.5B",
    "qwen2.5:7b-instruct-q4_K_M": "Qwen2.5-7B",
    "/models/qwen2.5-0.5b-instruct-q4_k_m.gguf": "Qwen2.5-0.5B",
    "C:\\models\\Qwen2.5-14B-Instruct.Q5_K_S.gguf": "Qwen2.5-14B",
    "Qwen2.5-72B-Instruct-Q4_K_M-00001-of-00012.gguf": "Qwen2.5-72B",
    "Qwen/Qwen2.5-Coder-32B-Instruct-AWQ": "Qwen2.5-32B",
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4": "Qwen2.5-7B",
    "meta-llama/Meta-Llama-3.1-8B-Instruct-Turbo": "Llama-3-8B",
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8": "Llama-3-8B",
    "llama3:8b": "Llama-3-8B",
    "llama3.1:70b-instruct-fp16": "Llama-3-70B",
    "meta-llama/llama-3.3-70b-instruct:free": "Llama-3-70B",
    "meta-llama/Llama-3.2-3B-Instruct": "Llama-3.2-3B",
    "unsloth/Llama-3.2-1B-bnb-4bit": "Llama-3.2-1B",
    "TheBloke/Llama-2-13B-chat-GPTQ": "Llama-2-13B",
    "Qwen/Qwen3-8B-FP8": "Qwen3-8B",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "Qwen3-30B-A3B",
    "Qwen/Qwen3-4B-Thinking-2507": "Qwen3-4B",
    "mlx-community/Qwen3-14B-4bit": "Qwen3-14B",
    "qwen3:0.6b": "Qwen3-0.6B",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "gpt-oss:20b": "gpt-oss-20b",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "Mixtral-8x7B",
    "mistralai/Mistral-7B-Instruct-v0.3": "Mistral-7B-v0.3",
    "deepseek-ai/DeepSeek-V3-0324": "DeepSeek-V3",
    "deepseek-ai/DeepSeek-R1": "DeepSeek-V3",
    "deepseek-r1:1.5b": "DeepSeek-R1-Distill-Qwen-1.5B",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-70B": "Llama-3-70B",
    "deepseek-ai/DeepSeek-V4.1-Flash": "DeepSeek-V4.1-Flash",
    "microsoft/Phi-3-mini-128k-instruct": "Phi-3-mini",
    "google/gemma-3-27b-it": "Gemma-3-27B",
    "gemma3:27b-it-q8_0": "Gemma-3-27B",
    "SmolLM2-135M-Instruct.Q4_1": "SmolLM2-135M",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": "TinyLlama-1.1B",
    "internlm/internlm2-chat-1_8b": "InternLM2-1.8B",
}
NOT_FOUND = (
    "",
    "sim",
    "loadkit-builtin",
    "gpt-4o",
    "qwen2.5",
    "llama3",
    "llama3:latest",
    "Qwen/Qwen2.5-5B",
    "Qwen/Qwen2.5-70B",
    "Qwen/Qwen2.5-0.5",
    "Qwen/Qwen2.5-10.5B",
    "Qwen/Qwen2.5-7B-Instruct-1M",
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "Qwen/Qwen2.5-7B-VL",
    "Qwen/Qwen2-VL-7B",
    "Qwen/Qwen3-8B-A3B",
    "Qwen/Qwen3-80B",
    "Qwen/Qwen3-Embedding-8B",
    "Qwen/Qwen3-VL-8B",
    "Qwen/Qwen3-30B",
    "Qwen/Qwen3-30B-A30B",
    "meta-llama/Llama-3-80B",
    "meta-llama/Llama-3-8B-70B",
    "meta-llama/Llama-3.2-8B",
    "meta-llama/Llama-3.2-11B-Vision-Instruct",
    "meta-llama/Llama-3.1-8",
    "nvidia/Llama-3.1-Minitron-4B",
    "nvidia/Llama-3.1-8B-Minitron-4B",
    "meta-llama/Llama-3.1-8B-Instruct-pruned",
    "meta-llama/Llama-3.1-8B-draft",
    "meta-llama/Llama-3.1-8B.5",
    "meta-llama/Llama-Guard-3-8B",
    "not-llama-3-8b",
    "mistralai/Mixtral-8x22B-Instruct-v0.1",
    "mistralai/Mixtral-8x7B-8x22B",
    "mistralai/Mistral-7B-Instruct-v0.2",
    "mistralai/Mistral-7B",
    "deepseek-ai/DeepSeek-V3.2",
    "deepseek-ai/DeepSeek-V2",
    "deepseek-r1:8b",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-3B",
    "microsoft/Phi-3-mini-4k-instruct",
    "microsoft/Phi-3.5-MoE-instruct",
    "google/gemma-3-2-27b",
    "google/gemma-2-27b-it",
    "openai/gpt-oss-20b-120b",
    "zai-org/GLM-4.5",
    "SmolLM2-1.35M",
    "SmolLM2-1135M",
)


@pytest.mark.parametrize(("name", "card"), FOUND.items())
def test_names_that_servers_report(name, card):
    """Organisation, folder, case, quantisation, date, shard and tag do not hide a model."""
    assert lookup(name).name == card


@pytest.mark.parametrize("name", NOT_FOUND)
def test_near_misses_find_nothing(name):
    """Another size, shape or version, or a family without a size, is never answered with a card."""
    assert lookup(name) is None


@pytest.mark.parametrize("alias", sorted(cards()))
def test_every_row_is_sourced_and_agrees_with_itself(alias):
    """A row says where it is from, is found by its aliases as they are, and states a count or computes one."""
    card = cards()[alias]
    assert normal(alias) == alias
    assert lookup(alias) is card
    assert len(card.source) > 20
    assert card.params
    assert card.dims is None or card.context == card.dims.context


@given(st.text(max_size=40))
def test_any_text_is_a_name(text):
    """A server may report anything: the answer is a card whose alias the name contains, or None."""
    card = lookup(text)
    assert card is None or any(alias in normal(text) for alias, found in cards().items() if found is card)


@pytest.mark.parametrize("alias", sorted(cards()))
@pytest.mark.parametrize("digit", ["1", "7"])
def test_a_digit_more_is_another_size(alias, digit):
    """A digit before the letter of a size makes another model, never the same one."""
    for at in (at for at, letter in enumerate(alias) if letter in "bm" and alias[at - 1].isdigit()):
        changed = alias[:at] + digit + alias[at:]
        assert lookup(changed) is None or lookup(changed) is not cards()[alias]


def test_a_row_that_contradicts_itself_would_not_load(monkeypatch):
    """Loading computes every stated count again."""
    text = """
[[model]]
name = "M"
aliases = ["m"]
source = "a test"
params = 1000
dims = { layers = 1, hidden = 8, heads = 1, kv_heads = 1, head_dim = 8, ffn = 8, vocab = 8, tied = true }
"""
    monkeypatch.setattr("loadkit.capacity.catalogue._text", lambda: text)
    with pytest.raises(CardError, match="M: 1,000 parameters are stated but its dimensions make 536"):
        cards.__wrapped__()
    twice = text.replace("1000", "536")
    monkeypatch.setattr("loadkit.capacity.catalogue._text", lambda: twice * 2)
    with pytest.raises(CardError, match="m names both M and M"):
        cards.__wrapped__()


def test_dimensions_from_plain_tables():
    """Nested tables become the parts of the dimensions; unknown fields are refused."""
    raw = {"layers": 2, "hidden": 8, "heads": 2, "kv_heads": 1, "head_dim": 4, "ffn": 8, "vocab": 9, "tied": True}
    assert dimensions({**raw, "sliding": {"layers": 1, "window": 4}}).full_layers == 1
    with pytest.raises(TypeError, match="flavour"):
        dimensions({**raw, "flavour": 1})
