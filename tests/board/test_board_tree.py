"""The files of a board: sysfs's own symlinks are followed, planted ones never, and a closed list is written."""

import ctypes
import os
import select
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.board.onboard.tree import Refused, Tree, writable

DDR = "sys/class/devfreq/dmc"
IN_OPEN_OR_WRITE = 0x20 | 0x2
WRITTEN_BY_NOBODY = [
    "sys/power/state",
    "sys/class/thermal/thermal_zone0/temp",
    "sys/class/devfreq/dmc/trans_stat",
    "sys/class/devfreq/dmc/device/power/control",
    "sys/class/devfreq/dmc/../dmc/governor",
    "sys/class/devfreq/dmc/governor\n",
    "/sys/class/devfreq/dmc/governor",
    "sys/devices/system/cpu/cpu0/online",
    "sys/devices/system/cpu/cpufreq/policy0/../policy0/scaling_governor",
    "sys/kernel/debug/rknpu/freq",
    "proc/sys/kernel/perf_event_paranoid",
    "run/loadkit-lock.json",
    "etc/shadow",
    "",
]


class Opens:
    """Hears by inotify whether anybody opens a file."""

    def __init__(self, *paths):
        self._libc = ctypes.CDLL(None)
        self._inotify = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        for path in paths:
            assert self._libc.inotify_add_watch(self._inotify, os.fsencode(path), IN_OPEN_OR_WRITE) >= 0

    def any(self):
        return bool(select.select([self._inotify], [], [], 0)[0])


@pytest.mark.parametrize("path", WRITTEN_BY_NOBODY)
def test_a_path_off_the_list_is_never_opened(tmp_path, path):
    """The refusal comes before the file: nobody hears it opened, even where it exists and could be written."""
    place = tmp_path / path.strip("/\n").replace("..", "up")
    real = tmp_path / Path(os.path.normpath(tmp_path / path.strip("\n").lstrip("/"))).relative_to(tmp_path)
    for file in {place, real} if path else set():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    opens = Opens(*({place, real} if path else ()))
    with pytest.raises(Refused):
        Tree(str(tmp_path)).write(path, "1")
    assert not opens.any()
    if path:
        real.read_text()
        assert opens.any()  # they would have been heard


@given(st.text("abcdefgsyproc/.*-_0129\n", max_size=60) | st.sampled_from(WRITTEN_BY_NOBODY))
def test_only_three_kinds_of_file_are_writable(path):
    """Whatever the path: writable means devfreq, cpufreq or cpuidle, one of ten names, and no way upward."""
    if writable(path):
        assert path.startswith(("sys/class/devfreq/", "sys/devices/system/cpu/cpu"))
        assert ".." not in path
        assert path.rpartition("/")[2].removeprefix("scaling_") in (
            "governor", "min_freq", "max_freq", "set_freq", "setspeed", "disable",
        )  # fmt: skip


@pytest.mark.parametrize("value", ["1\n2", "userspace; reboot", "", "../x", "a" * 40, "1 2"])
def test_only_a_governor_s_name_or_a_number_is_written(rk3588, value):
    """Nothing else reaches a file of the kernel's."""
    opens = Opens(rk3588.root / DDR / "governor")
    with pytest.raises(Refused, match="neither a governor's name nor a number"):
        Tree(str(rk3588.root)).write(f"{DDR}/governor", value)
    assert not opens.any()


def test_the_links_of_sysfs_are_followed(rk3588):
    """sys/class/devfreq/dmc is a link into sys/devices, as on every real board: reading and writing work through it."""
    tree = Tree(str(rk3588.root))
    assert (rk3588.root / DDR).is_symlink()
    assert tree.read(f"{DDR}/governor") == "dmc_ondemand"
    tree.write(f"{DDR}/governor", "performance")
    rk3588.until(f"{DDR}/cur_freq", 2112000000)
    assert f"{DDR}/governor" in tree.paths("sys/class/devfreq/*/governor")


@pytest.mark.parametrize("where", ["governor", "device", "class", "absolute", "sideways", "folder"])
def test_a_planted_link_is_not_followed(rk3588, tmp_path, where):
    """Whatever of the path is a link that sysfs would not have made: nothing behind it is read, listed or written."""
    outside = tmp_path / "outside"
    (outside / "dmc").mkdir(parents=True)
    for file in (outside / "governor", outside / "dmc" / "governor"):
        file.write_text("secret\n")
    device, link = rk3588.root / "sys/devices/platform/dmc/devfreq/dmc", rk3588.root / DDR
    replaced, target = {
        "governor": (device / "governor", outside / "governor"),  # the file itself
        "device": (device, outside),  # the folder that the class link leads to
        "class": (link, Path("../../../../outside/dmc")),  # upward out of the tree
        "absolute": (link, outside / "dmc"),
        "sideways": (link, Path("../../kernel/debug/dmc")),  # inside, but no device
        "folder": (rk3588.root / "sys/class/devfreq", outside),
    }[where]
    inside = rk3588.root / "sys/kernel/debug/dmc/governor"
    inside.parent.mkdir()
    inside.write_text("secret\n")
    replaced.rename(tmp_path / "was")
    replaced.symlink_to(target)
    assert (rk3588.root / DDR / "governor").read_text() == "secret\n", "the attack would work"
    files = (outside / "governor", outside / "dmc" / "governor", inside)
    opens, tree = Opens(*files), Tree(str(rk3588.root))
    assert tree.read(f"{DDR}/governor") is None
    assert tree.paths(f"{DDR}/gov*") == ([] if where != "governor" else [f"{DDR}/governor"])
    with pytest.raises((Refused, OSError)):
        tree.write(f"{DDR}/governor", "userspace")
    assert not opens.any()
    assert {file.read_text() for file in files} == {"secret\n"}


def test_a_pipe_in_place_of_a_file_neither_blocks_nor_takes_a_value(tmp_path):
    """A tree may hold anything: what is no plain file is as good as missing."""
    governor = tmp_path / DDR / "governor"
    governor.parent.mkdir(parents=True)
    os.mkfifo(governor)
    tree = Tree(str(tmp_path))
    reader = os.open(governor, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert tree.read(f"{DDR}/governor") is None
        with pytest.raises(Refused, match="is not a plain file"):
            tree.write(f"{DDR}/governor", "userspace")
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)


def test_a_huge_or_strange_file_is_clipped(rk3588):
    """64 KiB at most, and bytes that are no text do not raise."""
    place = rk3588.root / "sys/kernel/debug/rknpu/load"
    place.write_bytes(b"\xff" * 200_000)
    assert len(Tree(str(rk3588.root)).read("sys/kernel/debug/rknpu/load")) == 65536
