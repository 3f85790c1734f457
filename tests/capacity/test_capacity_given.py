"""A card from whatever a person gives, and its four accounts."""

import json
from pathlib import Path

import pytest

from loadkit.capacity.accounts import Accounts, accounts
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.errors import CardError
from loadkit.capacity.given import card_given

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 100,
}


def test_a_folder_a_config_and_a_name(tmp_path: Path):
    """Paths are seen from the given folder and go before names."""
    folder = tmp_path / "qwen3-8b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    assert card_given("qwen3-8b", tmp_path).dims.layers == 2
    assert card_given(str(folder / "config.json"), tmp_path).name == "qwen3-8b"
    assert card_given("Qwen/Qwen3-8B-FP8", tmp_path) is lookup("qwen3-8b")


def test_a_gguf_file(gguf_file):
    """A file that ends in .gguf is read as one."""
    path = gguf_file({"general.architecture": "mamba"}, {})
    with pytest.raises(CardError, match="architecture 'mamba' is not known"):
        card_given(path.name, path.parent)


def test_no_card_names_near_ones(tmp_path):
    """The message offers what is spelt alike, and what to give instead."""
    with pytest.raises(CardError, match=r"no model card for 'qwen3-9b'; near it: .*qwen3-8b.*; give a config\.json"):
        card_given("qwen3-9b", tmp_path)
    with pytest.raises(CardError, match="no model card for '%%%'; give"):
        card_given("%%%", tmp_path)


@pytest.mark.parametrize(
    ("name", "bits", "expected"),
    [
        ("deepseek-v4.1-flash", 4, Accounts(276e9, 8_000_000_000, 16_000_000_000, 890)),
        ("deepseek-v4-flash", 4, Accounts(142e9, 13_000_000_000, 13_000_000_000, 3471)),
        ("llama-3-8b", None, Accounts(16_060_522_496, 6_979_321_856, 7_504_924_672, 131_072)),
        ("qwen2.5-0.5b", 8, Accounts(494_032_768, 357_826_560, 494_032_768, 12_288)),
    ],
)
def test_four_accounts(name, bits, expected):
    """Weights, prefill, decode and cache of a card differ, and none stands for another."""
    assert accounts(lookup(name), bits) == expected
