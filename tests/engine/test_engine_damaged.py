"""Weight files and configs from people who mean no good: one clear line, exit code 2, memory bounded by the file."""

from __future__ import annotations

import json
import struct
import tracemalloc

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models

from loadkit.engine import __main__ as program
from loadkit.engine import gguf_file, hf_folder
from loadkit.engine.config import from_gguf, from_hf
from loadkit.engine.errors import EngineError
from loadkit.engine.gguf_file import GgufFile
from loadkit.engine.gguf_header import Damaged, read_header
from loadkit.engine.load import load

HUGE = 2**63


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(fields: list[bytes], tensors: list[bytes], data: bytes = b"", **counts: int) -> bytes:
    """A GGUF file, aligned to 32; `tensors_` and `fields_` lie about how many there are."""
    announced = (counts.get("tensors_", len(tensors)), counts.get("fields_", len(fields)))
    head = b"GGUF" + struct.pack("<IQQ", counts.get("version", 3), *announced) + b"".join(fields) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


def tensor(name: str, shape: tuple[int, ...], *, kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


ONE = tensor("a", (4,))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GGML" + bytes(60), "does not begin with GGUF"),
        (gguf([], [], version=9), "version is 9"),
        (gguf([], [], fields_=HUGE), "announces"),
        (gguf([], [], tensors_=HUGE), "announces"),
        (gguf([], [], tensors_=2), "cut short"),
        (gguf([struct.pack("<Q", HUGE)], []), "a text of"),
        (gguf([text("k") + struct.pack("<IQ", 8, HUGE)], []), "a text of"),
        (gguf([text("k") + struct.pack("<I", 77)], []), "unknown type 77"),
        (gguf([text("k") + struct.pack("<IIQ", 9, 8, HUGE)], []), "an array of"),
        (gguf([text("k") + struct.pack("<IIQ", 9, 0, HUGE)], []), "cut short"),
        (gguf([text("k") + struct.pack("<IIQ", 9, 9, 1)], []), "array of the type 9"),
        (gguf([text("k") + struct.pack("<II", 4, 1)] * 2, []), "is there twice"),
        (gguf([text("general.alignment") + struct.pack("<II", 4, 0)], []), "no power of two"),
        (gguf([text("general.alignment") + struct.pack("<I", 8) + text("x")], []), "no power of two"),
        (gguf([], [ONE, ONE], bytes(16)), "is there twice"),
        (gguf([], [ONE], bytes(15)), "ends at byte"),
        (gguf([], [ONE, tensor("b", (4,))], bytes(32)), "overlap"),
        (gguf([], [tensor("a", (4,), offset=4)], bytes(64)), "multiple of 32"),
        (gguf([], [tensor("a", (4,), offset=HUGE)], bytes(64)), "ends at byte"),
        (gguf([], [tensor("a", (2**39, 2**39))], bytes(64)), "ends at byte"),
        (gguf([], [tensor("a", (HUGE,))], bytes(64)), "a side of"),
        (gguf([], [tensor("a", (0, 4))], bytes(64)), "a side of"),
        (gguf([], [tensor("a", (1,) * 5)], bytes(64)), "5 axes"),
        (gguf([], [tensor("a", (4,), kind=9999)], bytes(64)), "unknown type 9999"),
        (gguf([], [tensor("a", (4,), kind=2)], bytes(64)), "no whole blocks of 32"),
        (gguf([], [tensor("a\n\x1b[31m" + "b" * 200, (4,))], b""), r"a\?\?\[31mb+ ends"),
    ],
)
def test_a_gguf_header_that_lies(tmp_path, content, message):
    """Counts, lengths, types, sides and offsets are checked against the file before memory is taken for them."""
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(EngineError, match=message) as caught:
        GgufFile(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(caught.value).startswith("bad.gguf: not a readable GGUF file: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert peak < 2**20


QUANTS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "BF16"]


@pytest.mark.parametrize("kind", QUANTS)
def test_every_quantisation_the_package_knows_is_read(tmp_path, monkeypatch, kind):
    """A tensor read a few rows at a time has the values the `gguf` package gives all of it at once."""
    monkeypatch.setattr(gguf_file, "PART", 1500)
    known = GGMLQuantizationType[kind]
    block, size = GGML_QUANT_SIZES[known]
    rng = np.random.default_rng(1)
    # Bytes below 60 make no NaN in any scale.
    raw = rng.integers(0, 60, (7, 512 // block * size), np.uint8)
    path = tmp_path / "q.gguf"
    path.write_bytes(gguf([], [tensor("a", (512, 7), kind=known)], raw.tobytes()))
    values = GgufFile(path).read("a")
    assert values.shape == (7, 512)
    np.testing.assert_array_equal(values, dequantize(raw, known))
    assert np.isfinite(values).all()


@pytest.mark.parametrize("kind", ["I32", "Q8_K"])
def test_a_type_that_holds_no_weights_is_named(tmp_path, kind):
    """What the package cannot turn into numbers is refused by its name."""
    path = tmp_path / "q.gguf"
    path.write_bytes(gguf([], [tensor("a", (256,), kind=GGMLQuantizationType[kind])], bytes(2048)))
    with pytest.raises(EngineError, match=f"q.gguf: a is {kind}, which cannot be dequantised here"):
        GgufFile(path).read("a")


@pytest.fixture(scope="module")
def small_gguf() -> bytes:
    fields = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("llama.block_count") + struct.pack("<II", 4, 2),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3) + text("a") + text("b") + text("c"),
        text("tokenizer.ggml.scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
    ]
    tensors = [tensor("a", (4, 2)), tensor("b", (32, 1), kind=8, offset=32)]
    return gguf(fields, tensors, bytes(32 + 34))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_to_a_gguf_header_is_found_or_harmless(small_gguf, data):
    """Any overwritten or missing bytes give one clear line, or tensors that still lie inside the file."""
    raw = bytearray(small_gguf)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 8))
        raw[at : at + 8] = data.draw(st.one_of(st.binary(min_size=1, max_size=8), st.just(b"\xff" * 8)))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))]) if data.draw(st.booleans()) else bytes(raw)
    said, tensors = "damage", []
    try:
        tensors = list(read_header(cut)[1].values())
    except Damaged as error:
        said = str(error)
    assert 0 < len(said) < 250
    assert said.isprintable()
    assert all(0 <= one.begin <= one.end <= len(cut) for one in tensors)


NUMBERS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just([1]), st.just({})
)
PLAIN = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "head_dim": 16, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 128},
}  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(sorted(PLAIN)), NUMBERS),
    st.dictionaries(st.sampled_from(sorted(PLAIN["rope_scaling"])), NUMBERS),
)
def test_any_config_is_read_or_refused_in_a_line(change, rope):
    """A config.json with anything in place of its values, RoPE's own included, is understood or refused in a line."""
    raw = PLAIN | {"rope_scaling": PLAIN["rope_scaling"] | rope} | change
    said = refused(lambda: from_hf(raw))
    assert said == "" or (said.isprintable() and len(said) < 300)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["attention.head_count", "embedding_length", "attention.key_length", "block_count",
                         "context_length", "rope.freq_base", "attention.layer_norm_rms_epsilon", "rope.scaling.type"]),
        NUMBERS,
    )
)  # fmt: skip
def test_any_gguf_metadata_is_read_or_refused_in_a_line(change):
    """The same for GGUF metadata."""
    plain = {
        "attention.head_count": 4, "embedding_length": 64, "block_count": 2, "context_length": 512,
        "feed_forward_length": 96, "attention.layer_norm_rms_epsilon": 1e-6,
    }  # fmt: skip
    metadata = {"general.architecture": "llama"} | {f"llama.{key}": value for key, value in (plain | change).items()}
    said = refused(lambda: from_gguf(metadata, vocab=256, tied=True, qkv_bias=False))
    assert said == "" or (said.isprintable() and len(said) < 300)


def refused(read) -> str:
    """What an EngineError says, empty when there is none."""
    try:
        read()
    except EngineError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_position_embeddings": 10**12}, "context_length must be from 1"),
        ({"max_position_embeddings": 10**8}, "a window above 2097152 tokens is not supported"),
        ({"num_attention_heads": 2**40, "num_key_value_heads": 1}, "heads must be from 1"),
        ({"hidden_size": 10**30}, "hidden_size must be an integer"),
        ({"rope_theta": -1.0}, "must be positive"),
        ({"rope_theta": float("inf")}, "rope_theta must be a number"),
        ({"rope_scaling": [1]}, "RoPE settings must be an object"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling.low_freq_factor must be a number"),
        ({"rope_scaling": PLAIN["rope_scaling"] | {"high_freq_factor": 0.5}}, "out of order"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is not supported"),
    ],
)
def test_numbers_that_would_exhaust_memory_or_mislead(change, message):
    """Sizes far beyond any model and settings that change the logits are refused by name."""
    with pytest.raises(EngineError, match=message):
        from_hf(PLAIN | change)


def test_heads_that_the_weights_do_not_have(golden, tmp_path):
    """A config that asks for larger matrices than the file has is refused before memory is taken for them."""
    raw = json.loads((golden.folder / "config.json").read_text())
    heads = {"num_attention_heads": 2**20, "num_key_value_heads": 2**20, "head_dim": 2**10}
    (tmp_path / "config.json").write_text(json.dumps(raw | heads))
    (tmp_path / "model.safetensors").symlink_to(golden.folder / "model.safetensors")
    with pytest.raises(EngineError, match=r"q_proj\.weight has shape"):
        hf_folder.load(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite(golden, golden_tensors, tmp_path, value):
    """One NaN or infinity in a tensor is found when it is loaded, not in the text."""
    tensors = {name: values.copy() for name, values in golden_tensors(golden).items()}
    tensors["model.layers.1.mlp.up_proj.weight"][5, 7] = value
    (tmp_path / "config.json").write_text((golden.folder / "config.json").read_text())
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(EngineError, match=r"layers\.1\.mlp\.up_proj\.weight has values that are not finite"):
        hf_folder.load(tmp_path)


def test_a_header_with_huge_length_and_a_tall_shape(tmp_path):
    """A safetensors header may have 16 MiB; a shape may have eight sides; names come out printable and short."""
    path = tmp_path / "bad.safetensors"
    path.write_bytes((17 * 2**20).to_bytes(8, "little") + b" " * (17 * 2**20))
    assert "a header of 17825792 bytes" in refused(lambda: hf_folder.SafetensorsFile(path))
    entry = {"x\n" * 100: {"dtype": "F32", "shape": [1] * 9, "data_offsets": [0, 4]}}
    raw = json.dumps(entry).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(4))
    said = refused(lambda: hf_folder.SafetensorsFile(path))
    assert said.isprintable()
    assert "x?x?" in said
    assert len(said) < 250


@pytest.mark.parametrize("keep", [1.0, 0.999, 0.5, 0.01])
@pytest.mark.parametrize("form", ["gguf", "folder"])
def test_a_truncated_file_ends_the_program_with_two(golden, write_gguf, tmp_path, capsys, form, keep):
    """A whole file is loaded; cut anywhere it ends `serve` with exit code 2 and one line on stderr."""
    if form == "gguf":
        model = path = write_gguf(golden, "F16")
    else:
        model, path = tmp_path, tmp_path / "model.safetensors"
        for name in ("config.json", "model.safetensors"):
            (tmp_path / name).write_bytes((golden.folder / name).read_bytes())
        (tmp_path / "tokenizer.json").write_text(tokenizer_json())
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    if keep == 1.0:
        assert load(str(model)).config.layers == 2
        return
    assert program.main(["serve", "--model", str(model)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("loadkit engine: ")
    assert path.name in line


def tokenizer_json() -> str:
    """A byte-level tokenizer of 256 letters."""
    inner = Tokenizer(models.BPE(vocab={chr(0x100 + index): index for index in range(256)}, merges=[]))
    inner.decoder = decoders.ByteLevel()
    return inner.to_str()


def test_a_tokenizer_with_more_tokens_than_the_embedding(golden, tmp_path):
    """Ids that the embedding has no row for are found at once, not at the first prompt that has one."""
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(golden.folder / name)
    (tmp_path / "tokenizer.json").write_text(tokenizer_json().replace('":255', '":256'))
    with pytest.raises(EngineError, match="the tokenizer has ids up to 256, the embedding only 256 rows"):
        load(str(tmp_path))


def test_an_end_token_that_is_none(golden, tmp_path):
    """An eos_token_id outside the vocabulary is refused."""
    (tmp_path / "model.safetensors").symlink_to(golden.folder / "model.safetensors")
    (tmp_path / "tokenizer.json").write_text(tokenizer_json())
    raw = json.loads((golden.folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw | {"eos_token_id": [0, 9999]}))
    with pytest.raises(EngineError, match=r"eos_token_id \[0, 9999\] is no token"):
        load(str(tmp_path))
