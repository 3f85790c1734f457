"""Boards without boards: trees of files that follow a kernel's rules, and a real sshd that leads to them."""

import contextlib
import ctypes
import fcntl
import getpass
import os
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

SSHD = "/usr/sbin/sshd"
CLOSE_WRITE = 0x8
DDR = "sys/class/devfreq/dmc"
NPU = "sys/class/devfreq/fdab0000.npu"
GPU = "sys/class/devfreq/fb000000.gpu"
CPUFREQ = "sys/devices/system/cpu/cpufreq"
GOVERNORS = "rknpu_ondemand dmc_ondemand userspace powersave performance simple_ondemand"
CPU_GOVERNORS = "conservative ondemand userspace powersave performance schedutil"


class Kernel:
    """Does to a tree what sysfs does at once: governors, steps, limits. It hears of writes by inotify."""

    def __init__(self, root):
        self.root = root
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = self._libc.inotify_init1(os.O_CLOEXEC)
        self._folders = {}
        self._before = {}
        self._wake, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def watch(self, folder, rule, becomes=None):
        """From now on `rule(folder, name)` follows each write of a file in the folder, which may move to `becomes`."""
        number = self._libc.inotify_add_watch(self._inotify, os.fsencode(folder), CLOSE_WRITE)
        assert number >= 0, os.strerror(ctypes.get_errno())
        self._folders[number] = (becomes or folder, rule)

    def start(self):
        self._thread.start()

    def stop(self):
        os.write(self._stop, b"x")
        self._thread.join(5)
        for opened in (self._inotify, self._wake, self._stop):
            os.close(opened)

    def _serve(self):
        while True:
            ready, _, _ = select.select([self._inotify, self._wake], [], [])
            if self._wake in ready:
                return
            data = os.read(self._inotify, 1 << 16)
            while data:
                number, _, _, length = struct.unpack("iIII", data[:16])
                name = data[16 : 16 + length].rstrip(b"\0").decode()
                data = data[16 + length :]
                with contextlib.suppress(OSError, ValueError):
                    folder, rule = self._folders[number]
                    rule(folder, name)

    def devfreq(self, folder, name):
        """A devfreq folder: set_freq lives as long as the governor is userspace; a step is rounded up, then clamped."""
        if folder.name == "userspace":
            folder = folder.parent
        elif name not in ("governor", "min_freq", "max_freq"):
            return
        governor = self._valid(folder / "governor", (folder / "available_governors").read_text().split())
        own = folder / "userspace"
        if governor == "userspace":
            if not own.is_dir():
                made = folder / "made"  # moved when it is whole and watched: the next write may follow at once
                made.mkdir()
                (made / "set_freq").write_text((folder / "cur_freq").read_text())
                self.watch(made, self.devfreq, own)
                made.rename(own)
        elif own.is_dir():
            shutil.rmtree(own)
        steps = sorted(map(int, (folder / "available_frequencies").read_text().split()))
        low, high = (int((folder / end).read_text()) for end in ("min_freq", "max_freq"))
        wish = {"performance": high, "powersave": low}.get(governor, steps[0])
        if governor == "userspace":
            wish = int((own / "set_freq").read_text())
        rounded = next((step for step in steps if step >= wish), steps[-1])
        put(folder / "cur_freq", min(max(rounded, low), high))

    def cpufreq(self, folder, name):
        """A policy folder: kilohertz, and setspeed answers `<unsupported>` under every governor but userspace."""
        if name not in ("scaling_governor", "scaling_min_freq", "scaling_max_freq", "scaling_setspeed"):
            return
        governor = self._valid(folder / "scaling_governor", CPU_GOVERNORS.split())
        speed = folder / "scaling_setspeed"
        current = folder / "scaling_cur_freq"
        if governor != "userspace":
            put(speed, "<unsupported>")
        elif speed.read_text().startswith("<"):
            put(speed, current.read_text().strip())
        low, high = (int((folder / f"scaling_{end}_freq").read_text()) for end in ("min", "max"))
        wish = {"performance": high, "powersave": low, "userspace": speed.read_text().strip()}.get(governor, low)
        put(current, min(max(int(wish), low), high))

    def _valid(self, path, allowed):
        """The governor there; one that there is not is as if it had never been written."""
        value = path.read_text().strip()
        if value in allowed:
            self._before[path] = value
        elif value:
            value = self._before[path]
            put(path, value)
        else:  # opened for writing, not written yet
            value = self._before[path]
        return value


def put(path, value):
    """Write only what changes (a write of ours is heard, too), and at once: others see all of it or nothing.

    What somebody has written since this kernel last looked comes after it, as it would from a kernel that is no thread.
    """
    text = f"{value}\n"
    with path.open() as old:
        before = old.read()
        if before == text:
            return
        made = path.with_name("made")
        made.write_text(text)
        made.replace(path)
        while not alone(old):  # it has no name any more: who has it open had opened it before
            time.sleep(0.001)
        old.seek(0)
        late = old.read()
    if late != before:
        path.write_text(late)


def alone(opened):
    """Whether nobody else has the file open: only then is a lease to be had."""
    try:
        fcntl.fcntl(opened, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return False
    return True


class FakeBoard:
    """A tree at `root` and its kernel. Paths are relative to the root, as everywhere in loadkit.board."""

    def __init__(self, root):
        self.root = root
        self.kernel = Kernel(root)

    def set(self, path, value):
        """Write a file, with the folders it needs; an open tree may be changed like this at any time."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{value}\n")

    def get(self, path):
        """A file's text without white space at its ends; None where it is not there."""
        try:
            return (self.root / path).read_text().strip()
        except OSError:
            return None

    def until(self, path, value, seconds=10.0):
        """Wait until a file has this value; the seconds that took."""
        began = time.monotonic()
        while self.get(path) != str(value):
            assert time.monotonic() - began < seconds, f"{path} is {self.get(path)!r}, not {value!r}"
            time.sleep(0.005)
        return time.monotonic() - began

    def clocks(self):
        """Every file that a lock may write, with its value: what a restored board has to have again."""
        patterns = [f"{CPUFREQ}/policy*/scaling_{name}" for name in ("governor", "min_freq", "max_freq", "setspeed")]
        patterns += [
            f"sys/class/devfreq/*/{name}" for name in ("governor", "min_freq", "max_freq", "userspace/set_freq")
        ]
        patterns += ["sys/devices/system/cpu/cpu*/cpuidle/state*/disable"]
        found = [path for pattern in patterns for path in self.root.glob(pattern)]
        values = {path: self.get(path) for path in (str(path.relative_to(self.root)) for path in found)}
        return {path: value for path, value in values.items() if value is not None}  # else gone meanwhile

    def same(self, clocks, seconds=10.0):
        """Whether every clock file reads so, once this kernel, which is a thread, has done what it was told."""
        began = time.monotonic()
        while self.clocks() != clocks and time.monotonic() - began < seconds:
            time.sleep(0.005)
        return self.clocks() == clocks

    def program(self, name, script):
        """A program of the board, as a shell script."""
        place = self.root / "usr/bin" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"#!/bin/sh\n{script}\n")
        place.chmod(0o755)

    def device(self, subsystem, name, below, files, bus=False):
        """A folder of sys/devices and the symlink that sys/class (or sys/bus) has for it."""
        real = Path("sys/devices") / below / name
        for file, value in files.items():
            self.set(real / file, value)
        link = self.root / (f"sys/bus/{subsystem}/devices/{name}" if bus else f"sys/class/{subsystem}/{name}")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(self.root / real, link.parent))
        return self.root / real

    def devfreq(self, name, below, governor, steps, load=None):
        """A device with clock steps, in Hz."""
        files = {
            "governor": governor,
            "available_governors": GOVERNORS,
            "available_frequencies": " ".join(map(str, steps)),
            "cur_freq": steps[0],
            "min_freq": steps[0],
            "max_freq": steps[-1],
        }
        folder = self.device("devfreq", name, f"{below}/devfreq", files | ({"load": load} if load else {}))
        self.kernel.watch(folder, self.kernel.devfreq)
        self.kernel.devfreq(folder, "governor")

    def policy(self, number, governor, steps):
        """Cores that share a clock, with steps in kHz."""
        folder = f"{CPUFREQ}/policy{number}"
        files = {
            "scaling_governor": governor,
            "scaling_available_governors": CPU_GOVERNORS,
            "scaling_available_frequencies": " ".join(map(str, steps)),
            "scaling_cur_freq": steps[0],
            "scaling_min_freq": steps[0],
            "scaling_max_freq": steps[-1],
            "scaling_setspeed": "<unsupported>",
            "cpuinfo_max_freq": steps[-1],
        }
        for name, value in files.items():
            self.set(f"{folder}/{name}", value)
        self.kernel.watch(self.root / folder, self.kernel.cpufreq)
        self.kernel.cpufreq(self.root / folder, "scaling_governor")

    def zone(self, number, kind, celsius):
        files = {"type": kind, "temp": round(celsius * 1000), "trip_point_0_temp": 85000, "mode": "enabled"}
        self.device("thermal", f"thermal_zone{number}", "virtual/thermal", files)

    def cooling(self, number, kind, state, most):
        files = {"type": kind, "cur_state": state, "max_state": most}
        self.device("thermal", f"cooling_device{number}", "virtual/thermal", files)

    def pmu(self, name, cpus, events):
        files = {f"events/{event}": code for event, code in events.items()} | {"type": 8}
        self.device("event_source", name, "", files | ({"cpus": cpus} if cpus else {}), bus=True)

    def tree(self, model, *compatible):
        base = self.root / "sys/firmware/devicetree/base"
        base.mkdir(parents=True)
        (base / "model").write_text(f"{model}\0")
        (base / "compatible").write_text("".join(f"{name}\0" for name in compatible))

    def linux(self, version, mem_kb):
        """What every kernel has in /proc, and an empty /run."""
        (self.root / "run").mkdir()
        self.set("proc/version", f"Linux version {version} (build@host) #1 SMP")
        self.set("proc/sys/kernel/osrelease", version)
        self.set("proc/sys/kernel/random/boot_id", "8f5b6d5e-1c1a-4d0e-9a57-000000000001")
        self.set("proc/sys/kernel/perf_event_paranoid", 1)
        self.set("proc/loadavg", "0.05 0.04 0.01 1/210 4242")
        self.set("proc/swaps", "Filename\tType\tSize\tUsed\tPriority")
        self.set("proc/vmstat", "pswpin 0\npswpout 0\npgmajfault 1200")
        self.set("proc/stat", "cpu  1000 0 500 90000 20 0 5 0 0 0\nprocs_running 1")
        lines = {
            "MemTotal": mem_kb,
            "MemFree": mem_kb // 2,
            "MemAvailable": mem_kb * 3 // 4,
            "SwapTotal": 0,
            "SwapFree": 0,
        }
        self.set("proc/meminfo", "\n".join(f"{name}: {value:>14} kB" for name, value in lines.items()))


A_EVENTS = {
    "bus_access": "event=0x0019",
    "l1d_cache_refill": "event=0x0003",
    "l2d_cache_refill": "event=0x0017",
    "cpu_cycles": "event=0x0011",
    "mem_access": "event=0x0013",
}


def rock5b(root):
    """A Rock 5B under the vendor's kernel: RK3588, 16 GB, everything at its defaults."""
    board = FakeBoard(root)
    board.linux("6.1.75-vendor-rk35xx", 16_222_112)
    board.tree("Radxa ROCK 5B", "radxa,rock-5b", "rockchip,rk3588")
    board.devfreq(
        "dmc", "platform/dmc", "dmc_ondemand", (528000000, 1068000000, 1560000000, 2112000000), "37@528000000Hz"
    )
    npu = (300000000, 400000000, 500000000, 600000000, 700000000, 800000000, 900000000, 1000000000)
    board.devfreq("fdab0000.npu", "platform/fdab0000.npu", "rknpu_ondemand", npu)
    board.devfreq("fb000000.gpu", "platform/fb000000.gpu", "simple_ondemand", (300000000, 600000000, 1000000000))
    board.policy(0, "schedutil", (408000, 816000, 1416000, 1800000))
    board.policy(4, "schedutil", (408000, 1200000, 1800000, 2256000, 2304000))
    board.policy(6, "schedutil", (408000, 1200000, 1800000, 2256000, 2352000))
    for cpu in range(8):
        board.set(f"sys/devices/system/cpu/cpu{cpu}/cpuidle/state0/disable", 0)
        board.set(f"sys/devices/system/cpu/cpu{cpu}/cpuidle/state1/disable", 0)
    zones = ("soc", "bigcore0", "bigcore1", "littlecore", "center", "gpu", "npu")
    for number, kind in enumerate(zones):
        board.zone(number, f"{kind}-thermal", 45 + number / 2)
    for number, (kind, most) in enumerate((("thermal-cpufreq-0", 7), ("thermal-devfreq-0", 4), ("pwm-fan", 4))):
        board.cooling(number, kind, 0, most)
    board.set("sys/kernel/debug/rknpu/load", "NPU load:  Core0:  0%, Core1:  0%, Core2:  0%,")
    board.set("sys/kernel/debug/rknpu/version", "RKNPU driver: v0.9.8")
    board.pmu("armv8_cortex_a55", "0-3", A_EVENTS)
    board.pmu("armv8_cortex_a76", "4-7", A_EVENTS)
    board.pmu("rockchip_ddr", None, {"cycles": "event=0x00", "read-bytes": "event=0x01", "write-bytes": "event=0x02"})
    return board


def pi5(root):
    """A Raspberry Pi 5 with 8 GB: one cluster, no devfreq, and vcgencmd."""
    board = FakeBoard(root)
    board.linux("6.12.25+rpt-rpi-2712", 8_254_000)
    board.tree("Raspberry Pi 5 Model B Rev 1.0", "raspberrypi,5-model-b", "brcm,bcm2712")
    board.policy(
        0, "ondemand", (1500000, 1600000, 1700000, 1800000, 1900000, 2000000, 2100000, 2200000, 2300000, 2400000)
    )
    board.zone(0, "cpu-thermal", 48.3)
    board.cooling(0, "pwm-fan", 1, 4)
    board.pmu("armv8_cortex_a76", "0-3", A_EVENTS)
    answers = "get_throttled) echo throttled=0x0;; "
    answers += "measure_temp) echo \"temp=48.3'C\";; measure_clock) echo 'frequency(0)=2400033792';;"
    board.program("vcgencmd", f'case "$1" in {answers} esac')
    return board


@pytest.fixture
def rk3588(tmp_path):
    """A fake Rock 5B, alive."""
    yield from _alive(rock5b, tmp_path)


@pytest.fixture
def raspberry(tmp_path):
    """A fake Raspberry Pi 5, alive."""
    yield from _alive(pi5, tmp_path)


def _alive(make, folder):
    root = folder / "board"
    root.mkdir()
    board = make(root)
    board.kernel.start()
    yield board
    board.kernel.stop()


class Sshd:
    """A running sshd: `host` is what ssh takes, `config` a file for its -F."""

    def __init__(self, folder, address="127.0.0.1", prefix=()):
        self.folder, self.address = folder, address
        for name in ("host_key", "user_key"):
            words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
            subprocess.run(words, check=True, capture_output=True)
        shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where sshd as root keeps unprivileged children
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        lines = (
            f"Port {self.port}",
            f"ListenAddress {address}",
            f"HostKey {folder}/host_key",
            f"AuthorizedKeysFile {folder}/authorized_keys",
            "PidFile none",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
        )
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")
        words = [*prefix, SSHD, "-D", "-e", "-f", str(folder / "sshd_config")]
        self._log = (folder / "log").open("w")
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        self.config = folder / "ssh_config"
        known = " ".join((folder / "host_key.pub").read_text().split()[:2])
        (folder / "known_hosts").write_text(f"[{address}]:{self.port} {known}\n")
        lines = (f"IdentityFile {folder}/user_key", "IdentitiesOnly yes", f"UserKnownHostsFile {folder}/known_hosts")
        self.config.write_text("\n".join(lines) + "\n")
        self.host = f"ssh://{getpass.getuser()}@{address}:{self.port}"

    def ready(self):
        """Wait until it listens."""
        until = time.monotonic() + 10
        while "Server listening" not in (self.folder / "log").read_text():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < until, "sshd does not listen"
            time.sleep(0.01)
        return self

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        self._log.close()


@pytest.fixture(scope="session")
def sshd(tmp_path_factory):
    """Debian's sshd on loopback with keys of its own; the board behind it is this machine, its tree a --sysfs-root."""
    server = Sshd(tmp_path_factory.mktemp("sshd")).ready()
    yield server
    server.close()


@pytest.fixture
def sshd_at(tmp_path):
    """Starts an sshd at another address, `prefix` before its command: sshd_at(address, prefix)."""
    started = []

    def start(address, prefix):
        folder = tmp_path / "other-sshd"
        folder.mkdir()
        started.append(Sshd(folder, address, prefix))
        return started[-1].ready()

    yield start
    for server in started:
        server.close()
