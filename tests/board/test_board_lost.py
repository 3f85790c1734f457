"""The cable is pulled: nobody closes anything, no packet comes any more, and the board restores by its own clock."""

import contextlib
import itertools
import os
import signal
import subprocess

import pytest

from loadkit.board.lock import Lock, Place

DDR = "sys/class/devfreq/dmc"
TTL_S = 2.5
numbers = itertools.count(os.getpid() % 200)


def system(*words):
    subprocess.run(words, check=True, capture_output=True, timeout=20)


class Cable:
    """A network namespace with a board's sshd in it, and a cable to this machine that can be pulled."""

    def __init__(self, number):
        self._space, self._net = f"lkboard{os.getpid()}", f"10.78.{number}"
        self.address, self.prefix = f"{self._net}.2", ("ip", "netns", "exec", self._space)
        self._link = f"lkb{os.getpid()}"

    def make(self):
        system("ip", "netns", "add", self._space)
        system("ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self._space)
        system("ip", "addr", "add", f"{self._net}.1/24", "dev", self._link)
        system("ip", "link", "set", self._link, "up")
        system("ip", "-n", self._space, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            system("ip", "-n", self._space, "link", "set", link, "up")

    def pull(self, held):
        system("ip", "-n", self._space, "link", "set", "eth0", "down")

    def remove(self):
        for words in (("ip", "netns", "del", self._space), ("ip", "link", "del", self._link)):
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                system(*words)


class Frozen:
    """Where namespaces may not be made: loopback, and an ssh that stands still says as little as a pulled cable."""

    address, prefix = "127.0.0.1", ()

    def pull(self, held):
        os.kill(held._talk._process.pid, signal.SIGSTOP)

    def remove(self):
        pass


@pytest.fixture
def cable():
    """A real cable where the rights are there."""
    made = Cable(next(numbers))
    try:
        made.make()
    except (OSError, subprocess.CalledProcessError):
        made.remove()
        yield Frozen()
        return
    yield made
    made.remove()


def test_a_pulled_cable_is_restored_after_the_heartbeat_limit(cable, rk3588, tmp_path, sshd_at):
    """The connection still looks open to the board; without a heartbeat for the limit it restores."""
    before = rk3588.clocks()
    server = sshd_at(cable.address, cable.prefix)
    place = Place(server.host, str(rk3588.root), server.config)
    asked = [{"name": "ddr", "kind": "devfreq", "path": DDR, "value": 2112000000}]
    held = Lock.take(place, asked, ttl_s=TTL_S)
    assert held.wait(1.2 * TTL_S) is None  # heartbeats do keep it
    assert rk3588.get(f"{DDR}/cur_freq") == "2112000000"
    cable.pull(held)
    assert rk3588.until(f"{DDR}/governor", "dmc_ondemand", 30) > TTL_S / 2
    assert rk3588.same(before)
    os.kill(held._talk._process.pid, signal.SIGKILL)  # it would wait for its own limit
    assert not held.release().restored
