"""Descriptions are data: the shipped ones hold true figures, a hostile one is refused and can widen nothing."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import loadkit.board.onboard
from loadkit.board import description
from loadkit.board.onboard.tree import writable
from loadkit.capacity.roofline import dram_bandwidth
from loadkit.plan.errors import ConfigError
from loadkit.protocol.protocols import PROTOCOLS

MINIMAL = 'name = "x"\ntitle = "x"\n'
ONBOARD = sorted(Path(loadkit.board.onboard.__file__).parent.glob("*.py"))


def test_the_issue_s_five_boards_are_shipped():
    """RK3588, RK3576, Raspberry Pi 5, Jetson Orin and any other Linux."""
    assert description.shipped() == ["generic-linux", "jetson-orin", "raspberry-pi-5", "rk3576", "rk3588"]


@pytest.mark.parametrize(
    ("name", "model", "gigabytes"),
    [
        ("rk3588", "Radxa ROCK 5B", 33.792),  # not 17: that is half the bus, or the 2 of double data rate forgotten
        ("rk3576", None, 16.896),
        ("raspberry-pi-5", None, 17.0667),
        ("jetson-orin", "NVIDIA Jetson AGX Orin Developer Kit", 204.8),
        ("jetson-orin", "NVIDIA Jetson Orin Nano Developer Kit", 102.4),
    ],
)
def test_theoretical_bandwidth_is_the_published_one(name, model, gigabytes):
    """Clock x 2 x bits / 8 of each description is the maker's figure."""
    memory = description.load(name).memory_of(model)
    assert dram_bandwidth(memory.clock_hz, memory.bus_bits) / 1e9 == pytest.approx(gigabytes, rel=1e-4)


def test_the_npu_of_the_rk3588_has_no_four_bit_weights_and_that_of_the_rk3576_does():
    """S2-14: W4A16 is for the RK3576; on the RK3588 a quantisation says the platform is wrong."""
    quant = {name: description.load(name).engines[0].quant for name in ("rk3588", "rk3576")}
    assert not [name for name in quant["rk3588"] if name.startswith("w4")]
    assert "w8a8" in quant["rk3588"]
    assert "w4a16_g128" in quant["rk3576"]


@pytest.mark.parametrize("name", description.shipped())
def test_everything_a_shipped_description_would_lock_may_be_written(name):
    """Device folders and policies are of the kinds that a guard accepts, and engines speak protocols that exist."""
    board = description.load(name)
    for device in board.devices:
        assert all(writable(f"{path}/governor") for path in device.paths)
    for cluster in board.clusters:
        assert writable(f"{cluster.policy.replace('*', '0')}/scaling_setspeed")
    assert not board.idle or writable(board.idle.replace("*", "0"))
    assert {engine.protocol for engine in board.engines} <= set(PROTOCOLS)
    assert description.recognise(["maker,board", *board.compatible]).name == name


@pytest.mark.parametrize(
    "path",
    ["/sys/class/devfreq/dmc", "sys/../etc", "etc/shadow", "sys/class/a\nb", "sys/.hidden", "sys//class", "sys", ""],
)
def test_a_hostile_path_is_refused(path):
    """Absolute, upward, hidden, empty and broken paths are one clear error, whatever key they stand under."""
    for key in ("power = [{}]", "idle = {}", "[facts]\nnpu_load = {}", '[[devices]]\nname = "ddr"\npaths = [{}]'):
        with pytest.raises(ConfigError, match=r"must be a path such as|Illegal|Unescaped"):
            description.parse(MINIMAL + key.format(f'"""{path}"""'.replace("\n", "\\n")), "x.toml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (MINIMAL + "write = 1", "'write' is not known"),
        ('name = "a b"\ntitle = "x"', "name = 'a b': must be a plain name"),
        ('name = "x"', "missing .*title"),
        (MINIMAL + "limit_c = 500", "limit_c = 500: must be a number from 40 to 120"),
        (MINIMAL + 'tools = ["../sh"]', r"tools\[0\] = '../sh': must be a plain name"),
        (MINIMAL + "devices = 1", "devices must be a list"),
        (MINIMAL + '[[memory]]\ntypes = ["X"]\nsource = "x"\nbus_bits = true', "memory.*bus_bits = True"),
        ("name =", "x.toml: "),
    ],
)
def test_what_is_out_of_form_is_named(text, says):
    """Unknown keys, wrong kinds and limits out of range are refused with where and why."""
    with pytest.raises(ConfigError, match=says):
        description.parse(text, "x.toml")


@given(st.text(max_size=60))
def test_no_text_ends_in_anything_but_a_board_or_one_line(text):
    """Whatever a TOML file holds, there is a description or a ConfigError of one line."""
    message = ""
    try:
        assert description.parse(MINIMAL + text, "x.toml").name == "x"
    except ConfigError as error:
        message = str(error)
    assert "\n" not in message


def test_a_board_that_nobody_knows_is_a_plain_linux():
    """Nothing is guessed about it."""
    assert description.recognise(["acme,anvil"]).name == "generic-linux"
    with pytest.raises(ConfigError, match="no board 'acme'; there are: generic-linux, "):
        description.load("acme")


@pytest.mark.parametrize("path", ONBOARD, ids=lambda path: path.name)
def test_what_runs_on_boards_is_old_python_and_the_standard_library(path):
    """Boards have Python 3.7 and nothing of ours: the grammar is that old, and only its own modules are imported."""
    tree = ast.parse(path.read_text(), feature_version=(3, 7))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = [name for name in names if name.startswith("loadkit")]
    assert all(name.startswith("loadkit.board.onboard") for name in ours)
