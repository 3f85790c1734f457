"""Cards from Hugging Face configs: each family's fields, what its code adds, and what is refused by name."""

import json
from dataclasses import replace

import pytest

from loadkit.capacity import kv
from loadkit.capacity.card import Mla, Moe, Sliding
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.config import from_config, read
from loadkit.capacity.errors import CardError
from loadkit.capacity.memory import weight_bytes
from loadkit.capacity.params import parameters


def config(kind, layers, hidden, heads, kv_heads, ffn, vocab, context, **more):
    """The fields that most families share."""
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "max_position_embeddings": context,
        **more,
    }


LLAMA = config("llama", 32, 4096, 32, 8, 14336, 128256, 131072, attention_bias=False, torch_dtype="bfloat16")
QWEN3_NEXT = config(
    "qwen3_next", 48, 2048, 16, 2, 5632, 151936, 262144,
    head_dim=256, num_experts=512, num_experts_per_tok=10, moe_intermediate_size=512,
    shared_expert_intermediate_size=512, full_attention_interval=4, linear_num_key_heads=16,
    linear_num_value_heads=32, linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4,
    decoder_sparse_step=1, mlp_only_layers=[],
)  # fmt: skip
SAME_AS_CATALOGUE = {
    "qwen2.5-0.5b": config(
        "qwen2", 24, 896, 14, 2, 4864, 151936, 32768,
        tie_word_embeddings=True, use_sliding_window=False, sliding_window=32768, max_window_layers=21,
    ),
    "llama-3-8b": LLAMA,
    "qwen3-0.6b": config("qwen3", 28, 1024, 16, 8, 3072, 151936, 40960, head_dim=128, tie_word_embeddings=True),
    "mistral-7b-v0.1": config("mistral", 32, 4096, 32, 8, 14336, 32000, 32768, sliding_window=4096),
    "mistral-7b-v0.3": config("mistral", 32, 4096, 32, 8, 14336, 32768, 32768, sliding_window=None),
    "phi-3-mini-128k": config("phi3", 32, 3072, 32, 32, 8192, 32064, 131072, sliding_window=262144),
    "mixtral-8x7b": config(
        "mixtral", 32, 4096, 32, 8, 14336, 32000, 32768,
        num_local_experts=8, num_experts_per_tok=2, sliding_window=None,
    ),
    "qwen3-30b-a3b": config(
        "qwen3_moe", 48, 2048, 32, 4, 6144, 151936, 40960,
        head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, use_sliding_window=False,
    ),
    "gpt-oss-20b": config(
        "gpt_oss", 24, 2880, 64, 8, 2880, 201088, 131072,
        head_dim=64, num_local_experts=32, num_experts_per_tok=4, sliding_window=128,
        layer_types=["sliding_attention", "full_attention"] * 12, quantization_config={"quant_method": "mxfp4"},
    ),
    "gpt-oss-120b": config(
        "gpt_oss", 36, 2880, 64, 8, 2880, 201088, 131072,
        head_dim=64, num_local_experts=128, num_experts_per_tok=4, sliding_window=128,
    ),
    "gemma-3-27b": {
        "model_type": "gemma3",
        "text_config": config(
            "gemma3_text", 62, 5376, 32, 16, 21504, 262208, 131072, head_dim=128, sliding_window=1024
        ),
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
    },
    "qwen3-next-80b-a3b": QWEN3_NEXT,
    "deepseek-v3": config(
        "deepseek_v3", 61, 7168, 128, 128, 18432, 129280, 163840,
        head_dim=128, kv_lora_rank=512, q_lora_rank=1536, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128,
        n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=2048,
        first_k_dense_replace=3, moe_layer_freq=1, quantization_config={"quant_method": "fp8"},
    ),
    "glm-4.5-air": config(
        "glm4_moe", 46, 4096, 96, 8, 10944, 151552, 131072,
        head_dim=128, attention_bias=True, use_qk_norm=False, n_routed_experts=128, n_shared_experts=1,
        num_experts_per_tok=8, moe_intermediate_size=1408, first_k_dense_replace=1,
    ),
    "chatglm3-6b": {
        "model_type": "chatglm", "num_layers": 28, "hidden_size": 4096, "num_attention_heads": 32,
        "multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 128, "ffn_hidden_size": 13696,
        "padded_vocab_size": 65024, "seq_length": 8192,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SAME_AS_CATALOGUE)
def test_a_config_gives_the_card_of_the_catalogue(name):
    """Dense, grouped, latent, routed, sliding, hybrid and nested configs all come to the checked dimensions."""
    found, row = from_config(SAME_AS_CATALOGUE[name], name).dims, lookup(name).dims
    assert found == replace(row, context=found.context)
    assert row.context in (None, found.context)


def test_what_a_config_says_of_its_weights():
    """Bits of a stored weight from dtype or quantisation; unknown stays unknown."""
    assert from_config(LLAMA).bits == 16
    assert from_config({**LLAMA, "torch_dtype": None, "dtype": "float32"}).bits == 32
    assert weight_bytes(from_config(SAME_AS_CATALOGUE["gpt-oss-20b"])) == pytest.approx(12.8 * 2**30, rel=0.005)
    assert from_config(SAME_AS_CATALOGUE["deepseek-v3"]).bits == 8
    assert from_config({**LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4}}).bits == 4
    assert from_config({**LLAMA, "quantization_config": {"quant_method": "new"}}).bits is None
    assert from_config({**LLAMA, "torch_dtype": "strange"}).bits is None


def test_one_key_head_for_all():
    """Multi-query attention: 32 heads share one, and the cache is a thirty-second of multi-head attention's."""
    shared = from_config({**LLAMA, "num_key_value_heads": 1})
    apart = from_config({key: value for key, value in LLAMA.items() if key != "num_key_value_heads"})
    assert apart.dims.kv_heads == 32
    assert kv.per_token(apart) == 32 * kv.per_token(shared)


def test_head_dim_is_read_before_it_is_computed():
    """Qwen3-0.6B has heads of 128, not 1024 / 16; without the field the quotient holds."""
    assert from_config(SAME_AS_CATALOGUE["qwen3-0.6b"]).dims.head_dim == 128
    assert from_config(LLAMA).dims.head_dim == 128
    assert from_config({**LLAMA, "head_dim": None}).dims.head_dim == 128


@pytest.mark.parametrize(
    ("change", "sliding"),
    [
        ({"use_sliding_window": False}, None),
        ({"use_sliding_window": True, "max_window_layers": 20}, Sliding(4, 1024)),
        ({"use_sliding_window": True, "max_window_layers": 0}, Sliding(24, 1024)),
        ({"use_sliding_window": True, "max_window_layers": 24}, None),
        ({"layer_types": ["full_attention"] * 23 + ["sliding_attention"]}, Sliding(1, 1024)),
    ],
)
def test_windows_of_qwen(change, sliding):
    """The window counts only where it is switched on, and from the layer that the config names."""
    raw = {**SAME_AS_CATALOGUE["qwen2.5-0.5b"], "sliding_window": 1024, **change}
    assert from_config(raw).dims.sliding == sliding


def test_a_pattern_in_the_config_goes_before_the_family():
    """Gemma 3 with one full layer in three."""
    raw = {**SAME_AS_CATALOGUE["gemma-3-27b"]["text_config"], "sliding_window_pattern": 3}
    assert from_config(raw).dims.sliding == Sliding(62 - 20, 1024)


def test_gemma_ties_by_default():
    """Its configs leave tie_word_embeddings out; Llama's mean an own head by that."""
    assert from_config(SAME_AS_CATALOGUE["gemma-3-27b"]).dims.tied
    assert not from_config(LLAMA).dims.tied


def test_deepseek_v2_lite():
    """No query compression (q_lora_rank null), two shared experts: 15.7B, 2.4B active in the report."""
    raw = config(
        "deepseek_v2", 27, 2048, 16, 16, 10944, 102400, 163840,
        kv_lora_rank=512, q_lora_rank=None, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128,
        n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408,
        first_k_dense_replace=1,
    )  # fmt: skip
    dims = from_config(raw).dims
    assert dims.mla == Mla(512, 64, 128, 128, 0)
    assert dims.moe == Moe(64, 6, 1408, shared_ffn=2816, dense_layers=1)
    assert parameters(dims).total == pytest.approx(15.7e9, rel=0.005)
    assert parameters(dims).active(False) == pytest.approx(2.4e9, rel=0.03)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not known, only llama"),
        ({"model_type": None}, "model_type 'None' is not known"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"intermediate_size": None}, "intermediate_size is missing"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers must be a whole number, it is '32'"),
        ({"vocab_size": -1}, "vocab_size must be a whole number, it is '-1'"),
        ({"num_key_value_heads": 0}, "kv_heads must be a whole number of at least 1, it is 0"),
        ({"num_key_value_heads": 5}, "32 query heads do not divide by 5"),
        ({"num_attention_heads": 0}, "heads must be a whole number of at least 1"),
        ({"layer_types": ["full_attention"]}, "1 layer_types in a model of 32 layers"),
        ({"layer_types": ["full_attention"] * 31 + ["mamba"]}, "layer type 'mamba' is not known"),
        ({"num_local_experts": 8, "num_experts_per_tok": 9}, "9 active experts of 8"),
        ({"num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 2}, "between routed ones"),
    ],
)
def test_configs_that_are_not_understood_are_refused(change, message):
    """An unknown family, layer type or number is named; nothing is guessed."""
    with pytest.raises(CardError, match=message):
        from_config({**LLAMA, **change})


def test_reading_a_folder_and_a_file(tmp_path):
    """A model folder is named after itself, and its config.json may be given too."""
    folder = tmp_path / "My-Llama-8B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    card = read(folder)
    assert (card.name, card.source, card.context) == ("My-Llama-8B", "config.json of My-Llama-8B", 131072)
    assert read(folder / "config.json") == card
    assert replace(card.dims, context=None) == lookup("llama-3-8b").dims


def test_what_a_config_leaves_out_is_the_default_of_its_class():
    """google/gemma-3-27b-it names neither vocabulary nor context; gpt-oss may leave out its window."""
    text = SAME_AS_CATALOGUE["gemma-3-27b"]["text_config"]
    short = {key: value for key, value in text.items() if key not in ("vocab_size", "max_position_embeddings")}
    assert from_config({"model_type": "gemma3", "text_config": short}).dims == lookup("gemma-3-27b").dims
    short = {k: v for k, v in SAME_AS_CATALOGUE["gpt-oss-120b"].items() if k not in ("head_dim", "sliding_window")}
    assert from_config(short).dims == lookup("gpt-oss-120b").dims


def test_the_index_of_the_weights_states_sizes(tmp_path):
    """Bytes and parameters of the index go into the card, and a count that is another model's is refused."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 16_060_522_496, "total_parameters": 8_030_261_248}}))
    card = read(tmp_path)
    assert (card.weight_bytes, card.params) == (16_060_522_496, 8_030_261_248)
    for metadata in (None, [], {}, {"total_size": "big", "total_parameters": -1}):
        index.write_text(json.dumps({"metadata": metadata}))
        assert (read(tmp_path).weight_bytes, read(tmp_path).params) == (None, None)
    index.write_text(json.dumps({"metadata": {"total_parameters": 70_553_706_496}}))
    with pytest.raises(CardError, match="70,553,706,496 parameters are stated but its dimensions make 8,030,261,248"):
        read(tmp_path)


@pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ("[]", "not a JSON object"), (None, "No such file")])
def test_a_file_that_is_no_config(tmp_path, text, message):
    """One line with the path and the reason."""
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(CardError, match=message):
        read(tmp_path)
