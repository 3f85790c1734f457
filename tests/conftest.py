"""What every test shares: nothing hides under CI, and tests that need a quiet machine have it to themselves.

And a real browser: headless Chromium, spoken to over its DevTools pipe.
"""

import base64
import contextlib
import fcntl
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Turn a skip, or an expected failure, into a failure under CI."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was left out under CI: {report.longrepr}"
    return report


# What processes import that fork for those verbs; the libraries are what these would import later.
IMPORTED = {
    "run": ("locust.main", "loadkit.swarm.local", "loadkit.swarm.forked", "loadkit.cli.run", "loadkit.report.brief"),
    "": ("httpx", "numpy", "rich.table", "loadkit.cli.main", "loadkit.cli.report", "loadkit.cli.check"),
}
IMPORTED["run"] += ("loadkit.analysis.decide", "loadkit.report.finish", *IMPORTED[""])
# What takes longest comes first, so that no worker is left with it; the soak fits beside one crowd at a time.
FIRST = (
    "swarm/test_swarm_soak.py",
    "swarm/test_swarm_fleet_machines.py",
    "swarm/test_swarm_fleet.py",
    "swarm/test_swarm_fleet_faults.py",
    "k8s/test_k8s_containers.py",
    "live/test_live_dashboards_data.py",
    "swarm/test_swarm_rate.py",
    "swarm/test_swarm_llm.py",
    "swarm/test_swarm_hostile.py",
)
# What runs alone comes when nothing that takes long is under way: everybody would wait for that.
LAST = ("swarm/test_swarm_refine.py", "acceptance/test_acceptance_knee.py")


def pytest_configure(config):
    """A second kind of company, and files in the order of `pytest_collection_modifyitems` where tests run side by side:
    xdist would begin with those that have most tests, and end with a single test of two minutes."""
    config.addinivalue_line("markers", "crowd: starts many processes, so it runs beside at most one other test")
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items):
    """Put files where `FIRST` and `LAST` have them, and leave the others in between as they are."""
    folder = Path(__file__).parent
    places = {folder / name: place - len(FIRST) for place, name in enumerate(FIRST)}
    places |= {folder / name: place for place, name in enumerate(LAST, 1)}
    items.sort(key=lambda item: places.get(item.path, 0))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Where tests run side by side, one marked `quiet` runs alone: its clocks would measure the others."""
    run, workers = os.environ.get("PYTEST_XDIST_TESTRUNUID"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    places = workers if item.get_closest_marker("quiet") else workers - 1 if item.get_closest_marker("crowd") else 1
    with _places(run, max(1, places), workers) if run else contextlib.nullcontext():
        return (yield)


@contextlib.contextmanager
def _places(run, count, workers):
    """Hold so many of the machine's places for tests; who waits for several is next, and nobody slips in before."""
    with (Path(tempfile.gettempdir()) / f"loadkit-tests-{run}.lock").open("w") as file:
        door, free = workers, list(range(workers))  # bytes of the file
        fcntl.lockf(file, fcntl.LOCK_EX, 1, door)
        while count:
            for place in free:
                with contextlib.suppress(OSError):
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                    free.remove(place)
                    count -= 1
                    break
            else:
                time.sleep(0.02)
        fcntl.lockf(file, fcntl.LOCK_UN, 1, door)
        yield


class Warm:
    """A process that forks for each start of `loadkit`; see `warm.py`."""

    def __init__(self, modules):
        command = [sys.executable, "-P", Path(__file__).with_name("warm.py"), *modules]
        environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)
        self.lock, self.begun = threading.Lock(), queue.SimpleQueue()
        self.codes, self.changed = {}, threading.Condition()  # None while a process has not ended
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            if "code" in answer:
                with self.changed:
                    self.codes[answer["pid"]] = answer["code"]
                    self.changed.notify_all()
            else:
                self.codes[answer["pid"]] = None
                self.begun.put(answer["pid"])

    def start(self, words, *, cwd, env, out, err):
        """`loadkit WORDS` in a folder and an environment, with its standard streams in files."""
        order = {"words": [*map(str, words)], "cwd": str(cwd), "env": env, "out": str(out), "err": str(err)}
        with self.lock:
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()
            return Forked(self, self.begun.get(timeout=60))

    def close(self):
        for pid in [pid for pid, code in self.codes.items() if code is None]:
            process = Forked(self, pid)
            process.kill()
            process.wait(20)
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Forked:
    """What `subprocess.Popen` is for a process that somebody else started."""

    def __init__(self, parent, pid):
        self.parent, self.pid = parent, pid

    @property
    def returncode(self):
        return self.parent.codes[self.pid]

    def poll(self):
        return self.returncode

    def wait(self, timeout=None):
        with self.parent.changed:
            if not self.parent.changed.wait_for(lambda: self.returncode is not None, timeout):
                raise subprocess.TimeoutExpired(f"loadkit, process {self.pid}", timeout)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


@pytest.fixture(scope="session")
def warm():
    """warm("run") starts `loadkit run`, warm("") verbs that do not load a server, without importing everything anew."""
    made = {}

    def of(kind):
        if kind not in made:
            made[kind] = Warm(IMPORTED[kind])
        return made[kind].start

    yield of
    for process in made.values():
        process.close()


@pytest.fixture(scope="session")
def finished_warm(warm):
    """finished_warm(words, cwd, env, timeout): `loadkit WORDS`, or Python code behind -c, started so and waited for; as
    `subprocess.run` gives it."""

    def run(words, *, cwd, env, timeout):
        with tempfile.TemporaryDirectory() as folder:
            out, err = (Path(folder) / name for name in ("out", "err"))
            start = warm("run" if words[0] in ("run", "selftest", "-c") else "")
            process = start(words, cwd=cwd, env=env, out=out, err=err)
            try:
                code = process.wait(timeout)
            finally:
                process.kill()
            return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())

    return run


# Ends, by its own promise, when a condition on the attributes of the page's root holds.
HOLDS = """new Promise(done => {
  const root = document.documentElement;
  const look = () => (CONDITION) && done(true);
  new MutationObserver(look).observe(root, {attributes: true});
  look();
})"""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


class Browser:
    """One Chromium process. Its pipe is fd 3 and 4, which a shell makes of standard input and output."""

    def __init__(self, program, profile):
        script = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
        command = ["sh", "-c", script, "sh", program, *FLAGS, f"--user-data-dir={profile}"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.rest = b""
        self.number = 0
        self.events = []

    def send(self, method, session=None, **params):
        """One command and its result; what the browser reports meanwhile is kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        while (answer := self.read()).get("id") != self.number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer}"
        return answer["result"]

    def read(self):
        """The next message of the browser."""
        while b"\0" not in self.rest:
            piece = self.process.stdout.read1(1 << 20)
            assert piece, "the browser ended"
            self.rest += piece
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def until(self, method):
        """Wait for an event, unless it has been reported."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.read())

    def close(self):
        """End the browser and whatever it started."""
        with contextlib.suppress(AssertionError, OSError):
            self.send("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Page:
    """One page, opened; `events` are what the browser reported of it."""

    def __init__(self, browser, address, *, dark=False, width=1200, height=900):
        self.browser = browser
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.scheme(dark)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        browser.events.clear()
        self.send("Page.navigate", url=address)
        browser.until("Page.loadEventFired")

    def send(self, method, **params):
        """One command to this page."""
        return self.browser.send(method, self.session, **params)

    def scheme(self, dark):
        """What the reader's system prefers."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def when(self, condition):
        """Until a condition in JavaScript holds, which may name the page's `root`."""
        assert self.ask(HOLDS.replace("CONDITION", condition))

    def wait(self, scheme):
        """Until the charts are drawn for the scheme."""
        self.when(f"root.dataset.charts === {json.dumps(scheme)}")

    def ask(self, expression):
        """The value of a JavaScript expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def complaints(self):
        """Everything on the console, every exception and every log entry (what the policy blocks is one)."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event for event in self.browser.events if event.get("method") in kinds]

    def requests(self):
        """Every address that the page asked for."""
        sent = [event for event in self.browser.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def refusals(self):
        """Why what the page asked for was not loaded, one reason a request."""
        failed = [event for event in self.browser.events if event.get("method") == "Network.loadingFailed"]
        return [event["params"].get("blockedReason") for event in failed]

    def picture(self):
        """The whole page as PNG bytes."""
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def close(self):
        """Close the page."""
        self.browser.send("Target.closeTarget", targetId=self.target)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Chromium with an empty profile."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    found = Browser(program, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture
def pages(browser):
    """Opens addresses in Chromium: pages(address, dark=False, width=1200)."""
    found = []

    def make(address, **options):
        found.append(Page(browser, address, **options))
        return found[-1]

    yield make
    for page in found:
        page.close()
