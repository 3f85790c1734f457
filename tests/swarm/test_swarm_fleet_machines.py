"""A master and two workers on machines of their own, and a server on a fourth one that counts what reaches it.

Where the rights are there, a machine is a network namespace, and workers do not see the master's disk. Elsewhere all of
them are this machine.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import time
from functools import partial

import pytest

# Many processes at once: beside several other tests a worker would come to its turn too late.
pytestmark = pytest.mark.crowd

LADDER = """
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, install
install(finish)
"""
# A wait that is long for people is short for tests.
IMPATIENT = "from loadkit.swarm import worker\nworker.MASTER_LOST_S = 2\n" + LADDER
ROUNDS = 8
PLAN = ("--tiers", "32", "--concurrency", "4", "--rounds", str(ROUNDS), "--max-tokens", "4", "--no-check")
LONG = ("--tiers", "32", "--concurrency", "4", "--rounds", "500", "--max-tokens", "4", "--no-check")
LAW = ("--ttft-ms", "250", "--itl-ms", "10")
NAMES = ("master", "a", "b", "server")
HIDE = 'mount -t tmpfs none "$0" && exec "$@"'
NARROW = ("sh", "-c", 'ulimit -f 80; exec "$@"', "sh")
numbers = itertools.count(os.getpid() * 10)


def system(*words):
    subprocess.run(words, check=True, capture_output=True, timeout=20)


class Network:
    """A bridge with four namespaces on it, and a folder for the master's runs that only the master sees."""

    real = True

    def __init__(self, number, disk):
        self.disk = disk
        self._bridge, self._net = f"lkb{number}", f"10.{77 + number // 200}.{number % 200}"
        self._spaces = {name: f"lk{number}{name[0]}" for name in NAMES}
        self._mounted = False

    def make(self):
        system("ip", "link", "add", self._bridge, "type", "bridge")
        system("ip", "addr", "add", f"{self._net}.1/24", "dev", self._bridge)
        system("ip", "link", "set", self._bridge, "up")
        for name, space in self._spaces.items():
            system("ip", "netns", "add", space)
            system("ip", "link", "add", space, "type", "veth", "peer", "name", "eth0", "netns", space)
            system("ip", "link", "set", space, "master", self._bridge, "up")
            system("ip", "-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                system("ip", "-n", space, "link", "set", link, "up")

    def remove(self):
        undo = [("ip", "netns", "del", space) for space in self._spaces.values()]
        undo += [("ip", "link", "del", self._bridge), *([("umount", "-l", self.disk)] if self._mounted else [])]
        for words in undo:
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                system(*words)

    def address(self, name):
        return f"{self._net}.{NAMES.index(name) + 2}"

    def prefix(self, name):
        enter = ("ip", "netns", "exec", self._spaces[name])
        return (*enter, "sh", "-c", HIDE, str(self.disk)) if name in ("a", "b") else enter

    def small_disk(self):
        """The master's disk is small from now on; returns what is to be put before its command."""
        system("mount", "-t", "tmpfs", "-o", "size=1m", "none", self.disk)
        self._mounted = True
        return ()

    def fill(self, process):
        """Take every byte of the disk that comes free, until the process has ended."""
        with (self.disk / "others").open("wb", buffering=0) as others:
            while process.poll() is None:
                try:
                    others.write(bytes(4096))
                except OSError:
                    time.sleep(0.01)

    def larger_disk(self):
        """There is room again."""
        system("mount", "-o", "remount,size=64m", self.disk)

    def cut(self, name):
        """Nothing goes from this machine to the master any more."""
        system("ip", "-n", self._spaces[name], "route", "add", "blackhole", self.address("master"))

    def mend(self, name):
        system("ip", "-n", self._spaces[name], "route", "del", "blackhole", self.address("master"))


class Loopback:
    """This machine in place of four; a disk is full when its files may not grow."""

    real = False

    def __init__(self, disk):
        self.disk = disk

    def address(self, _):
        return "127.0.0.1"

    def prefix(self, _):
        return ()

    def small_disk(self):
        return NARROW

    def fill(self, process):
        """It fills by itself."""

    def larger_disk(self):
        """The limit was the process's own."""

    def remove(self):
        """Nothing was made."""


@pytest.fixture(scope="module")
def make_site(tmp_path_factory):
    """make_site(): four machines, which are gone after the tests of this module."""
    made = []

    def make():
        site = Network(next(numbers) % 20_000, tmp_path_factory.mktemp("disk"))
        try:
            site.make()
        except (OSError, subprocess.CalledProcessError):
            site.remove()
            site = Loopback(site.disk)
        made.append(site)
        return site

    yield make
    for site in made:
        site.remove()


@pytest.fixture(scope="module")
def ended(side_by_side, make_site, make_sim, make_fleet, locustfile, start):
    """ended(name): the fleet of a scenario, with all its processes at their end, and with `code`, `merge`."""

    def begin(site, *options, text=LADDER, narrow=()):
        server = make_sim("--host", site.address("server"), *LAW, prefix=site.prefix("server"))
        workers = [site.prefix("a"), site.prefix("b")]
        fleet = make_fleet(server, (*site.prefix("master"), *narrow), workers, site.address("master"))
        fleet.hosted(*options, "--out", site.disk, file=locustfile(text))
        (fleet.run.cwd / "runs").symlink_to(site.disk)
        fleet.site = site
        return fleet

    def under_way(*options, site=None, **more):
        fleet = begin(site or make_site(), *options, **more)
        fleet.streams(8)
        return fleet

    def over(fleet, merged=False):
        fleet.code = fleet.end()
        fleet.codes = [worker.end() for worker in fleet.workers]
        if merged:
            fleet.before = fleet.run.sent
            fleet.merge = start("-m", "loadkit.cli.main", "merge", fleet.run.folder, *spools(fleet))
            fleet.merge.end()
        return fleet

    def end():
        return over(begin(make_site(), *PLAN))

    def term():
        fleet = under_way(*LONG)
        fleet.run.signal(signal.SIGTERM)
        return over(fleet)

    def kill():
        fleet = under_way(*PLAN)
        fleet.workers[0].signal(signal.SIGKILL)
        fleet.join(0)
        return over(fleet, merged=True)

    def stop():
        fleet = under_way(*PLAN)
        fleet.workers[0].signal(signal.SIGSTOP)
        time.sleep(8)
        fleet.workers[0].signal(signal.SIGCONT)
        return over(fleet)

    def cut(seconds):
        site = make_site()
        if not site.real:
            pytest.xfail("network namespaces take rights that this user does not have")
        fleet = under_way(*PLAN, site=site)
        site.cut("a")
        time.sleep(seconds)
        site.mend("a")
        return over(fleet)

    def master():
        fleet = under_way(*LONG, text=IMPATIENT)
        fleet.run.signal(signal.SIGKILL)
        return over(fleet, merged=True)

    def full():
        site = make_site()
        fleet = begin(site, *LONG, narrow=site.small_disk())
        fleet.streams(8)
        site.fill(fleet.run.process)
        fleet.code = fleet.end()
        site.larger_disk()
        return over(fleet, merged=True)

    scenarios = {"end": end, "stop": stop, "cut": partial(cut, 5), "blink": partial(cut, 2)}
    return side_by_side({**scenarios, "term": term, "kill": kill, "master": master, "full": full})


def spools(fleet):
    """What workers have kept, on their machines or beside the master's files."""
    places = (fleet.run.folder, *(worker.cwd for worker in fleet.workers))
    return [path for place in places for path in sorted((place / "spools").glob("*"))]


def received(fleet):
    return fleet.server.received(fleet.run.manifest["run_id"])


def check_repeated(fleet, why="a worker was lost"):
    """One visit was lost with its worker, for a reason that is told, and was repeated once when both were there; the
    run is complete."""
    first, second = fleet.run.manifest["visits"][:2]
    assert (first["state"], first["repeated_as"], second["repeats"]) == ("stopped", 1, 0)
    assert why in first["validity"]["reasons"][0]
    assert fleet.run.summary["cells"][0]["n"] == 4 * ROUNDS


def test_a_run_on_several_machines_ends_with_every_request(ended):
    """Trap 1 of Locust's: what is in flight at the end is lost from the master. Here it is waited for: the records, the
    server and Locust's own table agree, and no spool is left."""
    fleet = ended("end")
    fleet.check(0)
    assert fleet.codes == [0, 0]
    assert spools(fleet) == []
    assert {row["outcome"] for row in fleet.run.records} == {"ok"}
    assert len({row["worker"] for row in fleet.run.records}) == 2
    (line,) = [line for line in fleet.run.err.splitlines() if line.split()[:2] == ["LLM", "32x4"] and "(" in line]
    assert int(line.split()[2]) == len(fleet.run.records)


def test_a_stalled_worker_makes_the_cell_invalid_once(ended):
    """A worker that stands still for 8 s is lost, comes back with all its records, and the visit is repeated."""
    fleet = ended("stop")
    fleet.check(0)
    assert fleet.codes == [0, 0]
    check_repeated(fleet, "said nothing")
    assert "is back" in fleet.run.err
    assert len({row["worker"] for row in fleet.run.records}) == 2


def test_a_link_that_is_cut_makes_the_cell_invalid_once(ended):
    """Five seconds are longer than the four after which a worker is lost; every request is a record all the same."""
    fleet = ended("cut")
    fleet.check(0)
    assert fleet.codes == [0, 0]
    check_repeated(fleet, "said nothing")


def test_a_link_that_is_cut_for_two_seconds_loses_nobody(ended):
    """What was not delivered is sent again when the link is mended."""
    fleet = ended("blink")
    fleet.check(0)
    assert fleet.codes == [0, 0]
    assert "said nothing" not in fleet.run.err


def test_a_signal_to_the_master_drains_the_workers(ended):
    """SIGTERM in mid-cell: what is in flight on every worker ends and is kept; exit code 7."""
    fleet = ended("term")
    fleet.check(7)
    assert fleet.codes == [0, 0]
    assert spools(fleet) == []
    assert {row["outcome"] for row in fleet.run.records} == {"ok"}
    assert [visit["state"] for visit in fleet.run.manifest["visits"]] == ["stopped"]
    assert fleet.run.manifest["stopped_by"] == "SIGTERM"


def test_a_killed_worker_makes_the_cell_invalid_once(ended):
    """Trap 6 of Locust's: a worker that dies halves the concurrency in silence. Here the visit is stopped, named, and
    repeated when another worker is there; what the dead one had in flight comes with its spool."""
    fleet = ended("kill")
    check_repeated(fleet)
    assert fleet.code == 0 or (fleet.code in (3, 6) and fleet.run.saturated), fleet.run.err
    assert fleet.codes == [-signal.SIGKILL, 0, 0]
    assert fleet.merge.end() == fleet.run.summary["exit_code"] == fleet.code
    fleet.check_killed()
    fleet.check_tidy()


def test_workers_whose_master_is_killed_leave_by_themselves(ended):
    """What is in flight ends and is in the spools, exit code 3; a merge has it all, and a second one adds nothing."""
    fleet = ended("master")
    assert fleet.codes == [3, 3]
    assert all("the master said nothing" in worker.err for worker in fleet.workers)
    assert sum((received(fleet) - fleet.before).values()) >= 4  # what was in flight
    assert fleet.merge.end() == fleet.run.summary["exit_code"] == 3, fleet.merge.err
    assert "merged 2 spools" in fleet.merge.err
    assert fleet.run.sent == received(fleet)
    assert {row["outcome"] for row in fleet.run.records} == {"ok"}
    fleet.check_tidy(but={"spools", ".prompts", ".reserve"})


def test_a_full_disk_of_the_master_leaves_the_rest_in_spools(ended):
    """The run ends and says so, exit code 3; spools that hold what the master could not write stay, and when there is
    room again a merge has it all."""
    fleet = ended("full")
    assert fleet.code in (3, 6), fleet.run.err
    assert ("No space left" if fleet.site.real else "File too large") in fleet.run.err
    assert fleet.codes == [0, 0]
    assert received(fleet) - fleet.before
    assert fleet.merge.end() in (3, 6), fleet.merge.err
    assert fleet.run.sent == received(fleet)
    assert fleet.alive() == []
