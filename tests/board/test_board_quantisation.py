"""The quantisation of a board run: complete, and one that the board computes with."""

import pytest

from loadkit.board import quantisation
from loadkit.board.description import load
from loadkit.plan.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "weight_bits", "stored", "act", "group", "per_channel", "method"),
    [
        ("w8a8", 8, 8, 8, None, True, "rkllm"),
        ("W4A16_G128", 4.125, 4, 16, 128, False, "rkllm"),
        ("w4a16,method=gptq", 4, 4, 16, None, True, "gptq"),
        ("q4_0", 4.5, 4, None, 32, False, "gguf"),
        ("Q4_K_M", 4.88, None, None, None, False, "gguf"),
        ("fp16", 16, 16, None, None, False, "none"),
    ],
)
def test_a_name_is_spelt_out(text, weight_bits, stored, act, group, per_channel, method):
    """Scales are in the bits of a weight: a group of 128 shares 16 of them."""
    made = quantisation.parse(text)
    assert (made.weight_bits, made.stored_bits, made.act_bits) == (weight_bits, stored, act)
    assert (made.group_size, made.per_channel, made.method) == (group, per_channel, method)
    assert quantisation.Quantisation.from_json(made.to_json()) == made


@pytest.mark.parametrize("text", ["int4", "INT8", "4bit", "w4", "4", "4.5"])
def test_bits_alone_are_refused(text):
    """INT4 says nothing of activations and groups, which decide the speed as much."""
    with pytest.raises(ConfigError, match="says too little: write weight and activation bits and the group size"):
        quantisation.parse(text)


def test_four_bits_do_not_run_on_the_rk3588s_npu():
    """W4A16 is for the RK3576; the RK3588 is told what it has, and that its cores take four bits."""
    with pytest.raises(ConfigError, match=r"RK3588.* runs w8a8, w8a8_g128, .*q4_0 with llama\.cpp"):
        quantisation.check(quantisation.parse("w4a16_g128"), load("rk3588"))
    assert quantisation.check(quantisation.parse("w4a16_g128"), load("rk3576")) == "npu"
    assert quantisation.check(quantisation.parse("w8a8_g512"), load("rk3588")) == "npu"
    assert quantisation.check(quantisation.parse("q4_0"), load("rk3588")) == "cpu"
    assert quantisation.check(quantisation.parse("w4a16"), load("jetson-orin")) == "gpu"


@pytest.mark.parametrize("text", ["zzz", "w8a8,colour=red", "w8a8,method", "w8a8,method=a b", "w8a8_g0"])
def test_what_is_not_known_is_a_line(text):
    """A misspelt name or field is an error of one line, not a guess."""
    with pytest.raises(ConfigError) as caught:
        quantisation.parse(text)
    assert caught.value.message.isprintable()
