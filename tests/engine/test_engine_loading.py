"""Configs and weight files: what is read, and the one clear line for what cannot be."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from loadkit.engine import config, gguf_file, hf_folder
from loadkit.engine.errors import EngineError
from loadkit.engine.hf_folder import SafetensorsFile
from loadkit.engine.load import load

QWEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}


def test_config_of_qwen2_half_b():
    """Qwen2.5-0.5B's config.json gives its published number of weights and a cache of 24 KiB per token."""
    read = config.from_hf(QWEN)
    assert read.parameters == 494_032_768
    assert read.head_dim == 64
    assert read.group == 7
    assert read.kv_bytes(1) == 24 * 1024
    assert (read.rope_theta, read.tied, read.qkv_bias) == (1e6, True, True)


def test_rope_theta_of_new_and_old_configs():
    """RoPE's base stands at the top level in older configs and in rope_parameters in newer ones."""
    new = {key: value for key, value in QWEN.items() if key != "rope_theta"}
    new["rope_parameters"] = {"rope_theta": 5e5, "rope_type": "default"}
    assert config.from_hf(new).rope_theta == 5e5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM is not supported"),
        ({"architectures": None}, r"\(none\) is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act gelu"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "'yarn' is not supported"),
        ({"use_sliding_window": True}, "use_sliding_window is not supported"),
        ({"attention_bias": True}, "attention_bias is not supported"),
        ({"vocab_size": None}, "vocab_size must be an integer"),
        ({"num_hidden_layers": 0}, "layers must be from 1"),
        ({"num_key_value_heads": 3}, "do not divide"),
        ({"head_dim": 63}, "even head dimension"),
    ],
)
def test_unsupported_configs_are_one_clear_line(change, message):
    """What would change the logits if ignored is refused by name."""
    with pytest.raises(EngineError, match=message) as caught:
        config.from_hf(QWEN | change)
    assert "\n" not in str(caught.value)


def header(entries: dict[str, object], data: bytes = b"") -> bytes:
    raw = json.dumps(entries).encode()
    return len(raw).to_bytes(8, "little") + raw + data


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read"),
        (b"\x01", "damaged"),
        ((2**62).to_bytes(8, "little") + b"{}", "a header of"),
        (b"\x05" + bytes(7) + b"{nope", "not JSON"),
        (b"\x02" + bytes(7) + b"[]", "not a JSON object"),
        (header({"a": 1}), "no proper dtype"),
        (header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, bytes(4)), "its shape asks"),
        (header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(4)), "end at byte"),
        (header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, bytes(4)), "no proper dtype"),
        (header({"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}, bytes(4)), "shape asks"),
        (
            header(
                {
                    "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                    "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                },
                bytes(4),
            ),
            "overlaps",
        ),
    ],
)
def test_damaged_safetensors(tmp_path, content, message):
    """A header that lies about sizes, offsets or shapes is refused before any tensor is read."""
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(EngineError, match=message):
        SafetensorsFile(path)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_damaged_header_never_reaches_a_tensor(tmp_path_factory, data):
    """Any overwritten byte in a header gives a clear error or a file whose tensors still lie inside it."""
    path = tmp_path_factory.mktemp("fuzz") / "m.safetensors"
    save_file({"a": np.ones((2, 3), np.float32), "b": np.ones(4, np.float16)}, path)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(raw))
    size, error = read_all(path)
    assert size <= 2 * len(raw)
    assert "\n" not in error


def read_all(path: Path) -> tuple[int, str]:
    """Bytes of all tensors as float32, or what was refused."""
    try:
        file = SafetensorsFile(path)
        return sum(file.read(name).nbytes for name in file.entries), ""
    except EngineError as error:
        return 0, str(error)


def test_a_missing_and_a_misshapen_tensor_are_named(golden, golden_tensors, tmp_path):
    """The error names the tensor and both shapes."""
    (tmp_path / "config.json").write_text((golden.folder / "config.json").read_text())
    tensors = golden_tensors(golden)
    missing = tensors.pop("model.layers.1.mlp.up_proj.weight")
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(EngineError, match=r"no tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        hf_folder.load(tmp_path)
    save_file(tensors | {"model.layers.1.mlp.up_proj.weight": missing[:5]}, tmp_path / "model.safetensors")
    with pytest.raises(EngineError, match=r"has shape \[5, 64\], the config asks for \[96, 64\]"):
        hf_folder.load(tmp_path)


def test_an_integer_tensor_is_refused(tmp_path):
    """A type that is not one of F32, F16 and BF16 is named."""
    save_file({"a": np.ones(3, np.int8)}, tmp_path / "i.safetensors")
    with pytest.raises(EngineError, match="a is I8, only F32, F16, BF16"):
        SafetensorsFile(tmp_path / "i.safetensors").read("a")


def test_an_index_cannot_lead_out_of_its_folder(golden, tmp_path):
    """A shard's name in an index is taken as a file name in the folder, never as a path."""
    (tmp_path / "config.json").write_text((golden.folder / "config.json").read_text())
    index = {"weight_map": {"a": "../../etc/passwd"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(EngineError, match=r"^passwd: cannot be read"):
        hf_folder.load(tmp_path)


@pytest.mark.parametrize("keep", [0, 3, 30, 500, 5000])
def test_a_truncated_gguf_is_one_clear_line(golden, write_gguf, keep):
    """A GGUF file cut anywhere in its head gives an error that names the file."""
    path = write_gguf(golden)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(EngineError, match=r"tiny.gguf: not a readable GGUF file") as caught:
        gguf_file.GgufFile(path)
    assert "\n" not in str(caught.value)


def test_a_foreign_gguf_is_refused(golden, write_gguf):
    """An architecture this engine lacks is named."""
    path = write_gguf(golden)
    raw = path.read_bytes()
    old = golden.architecture.encode()
    path.write_bytes(raw.replace(struct.pack("<Q", len(old)) + old, struct.pack("<Q", len(old)) + b"mamba"))
    with pytest.raises(EngineError, match="architecture mamba is not supported"):
        gguf_file.load(gguf_file.GgufFile(path))


def test_nothing_at_the_path():
    """A path that leads nowhere says what may stand there."""
    with pytest.raises(EngineError, match="no such file or folder; give a GGUF file"):
        load("nowhere/model.gguf")


def test_builtin_is_complete():
    """The built-in model has a template, end tokens and exact byte lengths."""
    loaded = load("builtin", seed=3)
    empty = loaded.tokenizer.encode(loaded.template.render([{"role": "user", "content": ""}]))
    longer = loaded.tokenizer.encode(loaded.template.render([{"role": "user", "content": "x" * 100}]))
    assert len(longer) == len(empty) + 100
    assert loaded.stops == {256, 258}
    assert loaded.config.parameters == sum(
        array.size
        for parts in loaded.weights.layers
        for part in parts
        for array in part.matrices
    ) + loaded.weights.embedding.size + loaded.weights.head.size + loaded.config.hidden * (
        2 * loaded.config.layers + 1
    )  # fmt: skip


def test_a_gguf_is_complete(golden, write_gguf):
    """A GGUF file brings its tokenizer, template, end tokens and name with it."""
    loaded = load(str(write_gguf(golden, name="my-model.gguf")))
    assert loaded.name == "my-model"
    assert loaded.stops == {253, 255}
    text = loaded.template.render([{"role": "user", "content": "hey"}])
    assert loaded.tokenizer.encode(text)[:3] == [254, ord("u"), ord("s")]
    assert loaded.tokenizer.encode("hey") == [252, ord("y")]
