"""A lock holds what it says, lets go however its owner ends, and is never in anybody's way twice."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from loadkit.board import clocks
from loadkit.board.access import connect
from loadkit.board.description import load
from loadkit.board.errors import BoardError
from loadkit.board.lock import Lock, Place, unlock
from loadkit.plan.errors import ConfigError

DDR = "sys/class/devfreq/dmc"
NPU = "sys/class/devfreq/fdab0000.npu"
STATE = "run/loadkit-lock.json"
BOOT = "proc/sys/kernel/random/boot_id"
PATIENT = 600.0  # a heartbeat limit that no test waits for: what restores is something else


@pytest.fixture
def place(sshd, rk3588):
    """The fake board as seen over ssh."""
    return Place(sshd.host, str(rk3588.root), sshd.config)


@pytest.fixture
def here(rk3588):
    """The same without ssh, where the way to the board does not matter."""
    return Place("local", str(rk3588.root))


def settings(place, **chosen):
    """What a lock of the whole board holds."""
    with connect("local", place.root) as access:
        return list(clocks.plan(access, load("rk3588"), chosen).settings)


def guard_of(board):
    return json.loads(board.get(STATE))["pid"]


def command(place, *words):
    """`loadkit board lock` of a person, as a process of its own."""
    where = ("--sysfs-root", place.root, "--ssh-config", str(place.ssh_config))
    argv = [sys.executable, "-m", "loadkit.cli.main", "board", words[0], place.host, *where, *words[1:]]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.quiet  # the guard gives a clock only so long to follow, and this kernel is a thread
def test_a_lock_holds_every_clock_and_restores_it(place, rk3588):
    """DDR, NPU, GPU and cores at their highest steps, deep idle states off; afterwards every file as before."""
    before = rk3588.clocks()
    held = Lock.take(place, settings(place))
    assert rk3588.get(f"{DDR}/cur_freq") == "2112000000" == held.clocks[f"{DDR}/cur_freq"]
    assert rk3588.get(f"{NPU}/governor") == "userspace"
    assert rk3588.get(f"{NPU}/cur_freq") == "1000000000"
    speeds = [rk3588.get(f"sys/devices/system/cpu/cpufreq/policy{n}/scaling_cur_freq") for n in (0, 4, 6)]
    assert speeds == ["1800000", "2304000", "2352000"]
    assert rk3588.get("sys/devices/system/cpu/cpu7/cpuidle/state1/disable") == "1"
    assert (rk3588.root / STATE).stat().st_mode & 0o777 == 0o600
    assert held.ended is None
    ended = held.release()
    assert (ended.restored, ended.why) == (True, "bye")
    assert rk3588.same(before)
    assert not (rk3588.root / STATE).exists()


def test_the_articles_ddr_value_is_refused_with_the_one_that_was_meant(place, rk3588):
    """S2-10: 211200000 lacks a zero; written it could have been rounded up to 528 MHz, a quarter of the bandwidth."""
    before = rk3588.clocks()
    with pytest.raises(ConfigError, match=r"528000000 1068000000 1560000000 2112000000; likely meant: 2112000000"):
        settings(place, ddr=211200000)
    wrong = {"name": "ddr", "kind": "devfreq", "path": DDR, "value": 211200000}
    with pytest.raises(BoardError, match=r"not locked: ddr: 211200000 is not one of .* likely meant: 2112000000"):
        Lock.take(place, [wrong])  # the guard looks again: it believes no client
    assert rk3588.same(before)
    with pytest.raises(ConfigError, match="no clock 'dram' to lock; there are: ddr, npu, gpu, little, big0, big1"):
        settings(place, dram=1)


@pytest.mark.quiet
def test_a_client_killed_with_9_is_restored_within_a_second(place, rk3588):
    """Nothing of the client runs any more, so only the board can have done it."""
    before = rk3588.clocks()
    client = command(place, "lock", "--ttl", "600")
    rk3588.until("sys/devices/system/cpu/cpu7/cpuidle/state1/disable", 1, 30)
    rk3588.until(f"{DDR}/cur_freq", 2112000000)
    client.kill()
    client.communicate()
    began = time.monotonic()
    for path, value in before.items():
        rk3588.until(path, value)
    assert time.monotonic() - began < 1
    until = time.monotonic() + 10
    while (rk3588.root / STATE).exists():
        assert time.monotonic() < until
    assert rk3588.same(before)


def test_ctrl_c_restores_and_a_second_lock_is_refused_meanwhile(place, rk3588):
    """One holder at a time, named to the other; interrupting is the ordinary end of the verb, exit code 0."""
    before = rk3588.clocks()
    asked = settings(place)
    client = command(place, "lock", "--set", "npu=800000000")
    lines = iter(client.stdout.readline, "")
    assert "Locked. Ctrl-C restores.\n" in lines
    assert rk3588.get(f"{NPU}/cur_freq") == "800000000"
    with pytest.raises(BoardError, match=r"another lock is held on this board: end it first \(guard \d+ for .*process"):
        Lock.take(place, asked)
    with pytest.raises(BoardError, match="another lock is held"):
        unlock(place)
    assert rk3588.get(f"{NPU}/cur_freq") == "800000000"
    client.send_signal(signal.SIGINT)
    _, errors = client.communicate(timeout=30)
    assert (client.returncode, errors) == (0, "Restored (bye).\n")
    assert rk3588.same(before)


def test_a_killed_guard_leaves_what_unlock_restores(place, rk3588):
    """A guard that is killed cannot restore: the state file stays, a new lock points at `unlock`, which does it."""
    before = rk3588.clocks()
    asked = settings(place)
    held = Lock.take(place, asked, ttl_s=PATIENT)
    os.kill(guard_of(rk3588), signal.SIGKILL)
    ended = held.wait(30)
    assert not ended.restored
    assert "board unlock" in ended.why
    held.release()
    assert rk3588.get(f"{DDR}/cur_freq") == "2112000000"
    with pytest.raises(BoardError, match=r"a guard was killed and left this board locked .*board unlock` first"):
        Lock.take(place, asked)
    assert unlock(place).restored
    assert rk3588.same(before)
    assert unlock(place).why == "nothing was locked"


def test_a_state_of_an_earlier_boot_is_discarded(place, rk3588):
    """A reboot has undone the lock: writing its old values now would change what the new boot has set."""
    held = Lock.take(place, settings(place), ttl_s=PATIENT)
    os.kill(guard_of(rk3588), signal.SIGKILL)
    held.wait(30)
    held.release()
    rk3588.set(BOOT, "8f5b6d5e-1c1a-4d0e-9a57-000000000002")
    rk3588.set(f"{DDR}/governor", "powersave")
    rk3588.until(f"{DDR}/cur_freq", 528000000)
    now = rk3588.clocks()
    ended = unlock(place)
    assert (ended.restored, ended.why) == (True, "the board has booted since, which undid the lock")
    assert rk3588.clocks() == now
    assert not (rk3588.root / STATE).exists()


def test_a_stale_state_does_not_stop_the_next_lock(here, rk3588):
    """Discarded on the way, without a detour over `unlock`."""
    rk3588.set(STATE, json.dumps({"boot_id": "before", "pid": 1, "owner": "x", "since": "x", "saved": []}))
    (rk3588.root / STATE).chmod(0o600)
    held = Lock.take(here, settings(here)[:1])
    assert held.release().restored


def test_term_ends_the_lock_and_the_client_hears_of_it(place, rk3588):
    """systemd, an administrator, a shutdown: the guard restores first."""
    before = rk3588.clocks()
    held = Lock.take(place, settings(place), ttl_s=PATIENT)
    os.kill(guard_of(rk3588), signal.SIGTERM)
    ended = held.wait(30)
    assert (ended.restored, ended.why) == (True, "SIGTERM")
    assert held.release() == ended
    assert rk3588.same(before)


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("sys/class/thermal/thermal_zone1/temp", 91_000, "bigcore0-thermal is at 91 C, above 90 C"),
        ("sys/class/thermal/cooling_device0/cur_state", 7, "thermal-cpufreq-0 throttles as far as it can (7 of 7)"),
    ],
)
def test_heat_ends_the_lock(here, rk3588, path, value, why):
    """Any zone above the limit, or a throttle at its stop; a fan at full speed or a broken sensor is no heat."""
    before = rk3588.clocks()
    rk3588.set("sys/class/thermal/cooling_device2/cur_state", 4)
    rk3588.set("sys/class/thermal/thermal_zone2/temp", 2147483647)
    held = Lock.take(here, settings(here), ttl_s=PATIENT)
    rk3588.set(path, value)
    ended = held.wait(30)
    assert (ended.restored, ended.why) == (True, why)
    held.release()
    assert rk3588.same(before)
    with pytest.raises(BoardError, match="let it cool before it is locked"):
        Lock.take(here, settings(here))


def test_a_clock_that_does_not_follow_is_refused_and_all_is_restored(here, rk3588):
    """Somebody's limit keeps the NPU lower: reading back finds it, with both values, and no half lock is left."""
    rk3588.set(f"{NPU}/max_freq", 600000000)
    before = rk3588.clocks()
    with pytest.raises(BoardError, match=r"npu/cur_freq: 1000000000 was written, 600000000 is read"):
        Lock.take(here, settings(here))
    assert rk3588.same(before)
    assert not (rk3588.root / STATE).exists()


def test_without_a_userspace_governor_both_limits_are_pinned(here, rk3588):
    """The highest goes up before the lowest, the clock follows, and both limits come back."""
    rk3588.set(f"{DDR}/available_governors", "dmc_ondemand performance")
    rk3588.set(f"{DDR}/max_freq", 1068000000)
    rk3588.until(f"{DDR}/cur_freq", 528000000)
    before = rk3588.clocks()
    only = [setting for setting in settings(here, ddr=1560000000) if setting["name"] == "ddr"]
    held = Lock.take(here, only)
    assert [rk3588.get(f"{DDR}/{name}") for name in ("min_freq", "max_freq", "cur_freq")] == ["1560000000"] * 3
    assert held.release().restored
    assert rk3588.same(before)


def test_a_governor_that_was_userspace_comes_back_with_its_frequency(here, rk3588):
    """The frequency goes back before the governor, as it is gone with it otherwise."""
    rk3588.set(f"{DDR}/governor", "userspace")
    rk3588.until(f"{DDR}/userspace/set_freq", 528000000)
    rk3588.set(f"{DDR}/userspace/set_freq", 1068000000)
    rk3588.until(f"{DDR}/cur_freq", 1068000000)
    before = rk3588.clocks()
    assert Lock.take(here, settings(here)).release().restored
    assert rk3588.same(before)
    rk3588.until(f"{DDR}/cur_freq", 1068000000)


@pytest.mark.parametrize("what", ["path", "idle", "link", "state"])
def test_a_hostile_request_or_tree_is_refused_before_anything_changes(place, rk3588, tmp_path, what):
    """A path off the list, a planted link, another's state file: one line, and every file as before."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "set_freq").write_text("1\n")
    asked = settings(place)
    before = rk3588.clocks()
    if what == "path":
        asked[0] = {**asked[0], "path": "sys/power"}
        rk3588.set("sys/power/available_frequencies", 2112000000)
    if what == "idle":
        asked.append({"name": "x", "kind": "idle", "path": "sys/power/state", "value": 1})
    if what == "link":  # there before the governor makes its own
        (rk3588.root / DDR / "userspace").symlink_to(outside)
        (rk3588.root / DDR / "available_governors").write_text("userspace dmc_ondemand\n")
    if what == "state":
        (rk3588.root / STATE).symlink_to(outside / "set_freq")
    with pytest.raises(BoardError, match=r"not a file that a lock may write|symlink|symbolic"):
        Lock.take(place, asked)
    assert {path: rk3588.get(path) for path in before} == before
    assert (outside / "set_freq").read_text() == "1\n"


def test_a_dry_run_prints_the_plan_and_writes_nothing(place, rk3588):
    """Each file with what it reads now and what it would read, in the order of writing."""
    before = rk3588.clocks()
    client = command(place, "lock", "--dry-run")
    out, errors = client.communicate(timeout=60)
    assert (client.returncode, errors) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"{DDR}/governor: dmc_ondemand -> userspace"
    assert lines[1] == f"{DDR}/userspace/set_freq: (not there yet) -> 2112000000"
    assert "policy4/scaling_setspeed: <unsupported> -> 2304000" in out
    assert lines[-1].endswith("Nothing has been written.")
    assert rk3588.same(before)
    assert not (rk3588.root / STATE).exists()


def test_a_lock_on_this_machine_ends_with_its_process(rk3588):
    """Without ssh, too, it is a guard of its own that restores: the process that took the lock is killed."""
    before = rk3588.clocks()
    code = (
        "import os, signal, sys\n"
        "from loadkit.board.lock import Lock, Place\n"
        f"asked = [{{'name': 'ddr', 'kind': 'devfreq', 'path': '{DDR}', 'value': 1068000000}}]\n"
        "Lock.take(Place('local', sys.argv[1]), asked, ttl_s=600.0)\n"
        "print('held', flush=True); signal.pause()\n"
    )
    words = [sys.executable, "-c", code, str(rk3588.root)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        rk3588.until(f"{DDR}/cur_freq", 1068000000)
        process.kill()
    rk3588.until(f"{DDR}/governor", before[f"{DDR}/governor"])
