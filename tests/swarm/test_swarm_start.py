"""Before the first request: what importing does, what is refused, and that a dry run sends nothing."""

import pytest

PLAN = ("--tiers", "32", "--concurrency", "1", "--rounds", "1", "--max-tokens", "2")

# The libraries come first: what they do at their import is theirs (rich draws random numbers for its styles).
IMPORT = """
import locust
import gc, importlib.util, json, os, random, signal, sys, threading
import gevent, numpy, rich.table

def links():
    for number in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{number}"
        if os.path.lexists(path):
            yield os.readlink(path)

def state():
    return {
        "files": sorted(links()),
        "threads": threading.active_count(),
        "greenlets": sum(isinstance(o, gevent.Greenlet) for o in gc.get_objects()),
        "random": hash(random.getstate()),
        "numpy": hash(numpy.random.get_state()[1].tobytes()),
        "signals": [str(signal.getsignal(n)) for n in (signal.SIGTERM, signal.SIGINT)],
        "collector": gc.isenabled(),
        "folder": sorted(os.listdir()),
    }

before = state()
import loadkit.swarm
for number, path in enumerate(sys.argv[1:]):
    spec = importlib.util.spec_from_file_location(f"file{number}", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
import loadkit.swarm.local, loadkit.swarm.selftest
after = state()
print(json.dumps({name: [before[name], after[name]] for name in before if before[name] != after[name]}))
"""


def test_importing_opens_and_starts_nothing(fresh_snippet, locustfiles):
    """No socket, file, thread, greenlet, random state, signal handler: what there is before a fork would be shared."""
    files = sorted(str(path) for path in locustfiles.glob("*.py"))
    assert len(files) >= 2
    assert fresh_snippet(IMPORT, *files) == {}


REFUSED = {
    "--json": ("--json",),
    "--json-file": ("--json-file", "result"),
    "unknown tier": ("--tiers", "lots"),
    "--rate": ("--rate", "5"),
}


@pytest.fixture(scope="module")
def untouched(make_sim):
    """A server that nobody should reach."""
    return make_sim()


@pytest.fixture(scope="module")
def runs(untouched, loadkit, locust, locustfiles):
    """Every run of this module, under way at once."""
    file, url = locustfiles / "ladder.py", untouched.url
    return {
        **{says: locust(file, url, *PLAN, "--no-check", *options) for says, options in REFUSED.items()},
        "loadkit": loadkit(url, *PLAN, "--dry-run"),
        "locust": locust(file, url, *PLAN, "--dry-run"),
        "dead": locust(file, "http://127.0.0.1:9", *PLAN),
    }


@pytest.mark.parametrize("host", ["loadkit", "locust"])
def test_a_dry_run_sends_nothing(runs, untouched, host):
    """The plan is printed, exit code 0; nobody was asked anything and no folder was made."""
    run = runs[host]
    assert run.end() == 0, run.err
    assert "1 measured, 1 warm-up" in run.out
    assert untouched.stats()["received"] == 0
    assert not (run.cwd / "runs").exists()


@pytest.mark.parametrize("says", REFUSED)
def test_what_would_spoil_a_run_is_refused(runs, untouched, says):
    """Options of Locust's that reset or overwrite numbers, ours that cannot be kept: exit code 2, one clear line."""
    run = runs[says]
    assert run.end() == 2, run.err
    lines = {line for line in run.lines if line.startswith("loadkit:")}
    assert len(lines) == 1
    assert says in lines.pop()
    assert "Traceback" not in run.err
    assert untouched.stats()["received"] == 0
    assert not (run.cwd / "runs").exists()


def test_a_dead_url_is_exit_code_5_for_locust_too(runs):
    """The line that `loadkit run` would print, and no traceback."""
    run = runs["dead"]
    assert run.end() == 5
    (line,) = [line for line in run.lines if line.startswith("loadkit:")]
    assert "127.0.0.1:9" in line
    assert "Traceback" not in run.err
