"""A master and two workers in network namespaces of their own, and a link between them that can be cut."""

import os
import subprocess
import time

import pytest

LADDER = """
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, install
install(finish)
"""
PLAN = ("--tiers", "32", "--concurrency", "4", "--rounds", "12", "--max-tokens", "4", "--no-check")
NAMES = ("m", "a", "b")


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=10)


class Network:
    """A bridge with three namespaces on it; the server is outside, at `host`."""

    def __init__(self, number):
        self.bridge, self.net = f"lkb{number}", f"10.{77 + number // 200}.{number % 200}"
        self.host = f"{self.net}.1"
        self.spaces = {name: f"lk{number}{name}" for name in NAMES}
        self.master = f"{self.net}.2"

    def make(self):
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.host}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for last, space in enumerate(self.spaces.values(), start=2):
            ip("netns", "add", space)
            ip("link", "add", space, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", space, "master", self.bridge, "up")
            ip("-n", space, "addr", "add", f"{self.net}.{last}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                ip("-n", space, "link", "set", link, "up")

    def remove(self):
        for words in (*(("netns", "del", space) for space in self.spaces.values()), ("link", "del", self.bridge)):
            subprocess.run(["ip", *words], check=False, capture_output=True, timeout=10)

    def prefix(self, name):
        return ("ip", "netns", "exec", self.spaces[name])

    def cut(self, name):
        """Nothing goes from this namespace to the master any more."""
        ip("-n", self.spaces[name], "route", "add", "blackhole", self.master)

    def mend(self, name):
        ip("-n", self.spaces[name], "route", "del", "blackhole", self.master)


@pytest.fixture(scope="module")
def network():
    """The namespaces; only a user who may make them can run these tests."""
    made = Network(os.getpid() % 20_000)
    try:
        made.make()
    except (OSError, subprocess.CalledProcessError):
        made.remove()
        pytest.xfail("network namespaces take rights that this user does not have")
    yield made
    made.remove()


@pytest.fixture
def fleet(network, make_sim, make_fleet, locustfile):
    """A run under way on that network."""
    server = make_sim("--host", network.host, "--ttft-ms", "200", "--itl-ms", "10")
    prefixes = [network.prefix("a"), network.prefix("b")]
    made = make_fleet(server, network.prefix("m"), prefixes, network.master)
    return made.hosted(*PLAN, file=locustfile(LADDER))


@pytest.mark.parametrize("seconds", [2, 5])
def test_a_link_that_is_cut_for_a_while_loses_nothing(network, fleet, seconds):
    """Shorter than four seconds nobody is lost; longer, the cell is invalid and repeated when the link is mended. Every
    request is a record all the same."""
    fleet.server.reached(in_flight=4, received=8)
    network.cut("a")
    time.sleep(seconds)
    network.mend("a")
    fleet.check(0)
    lost = "said nothing" in fleet.run.err
    assert lost == (seconds > 4)
    reasons = [visit["validity"]["reasons"][0] for visit in fleet.repeated.values()]
    assert any("a worker was lost" in reason for reason in reasons) == lost
