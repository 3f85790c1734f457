"""What every test shares: nothing hides under CI, and tests that need a quiet machine have it to themselves.

And a real browser: headless Chromium, spoken to over its DevTools pipe.
"""

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
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


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Where tests run side by side, one marked `quiet` runs alone: its clocks would measure the others."""
    with _machine(alone=item.get_closest_marker("quiet") is not None):
        return (yield)


@contextlib.contextmanager
def _machine(alone):
    """Hold the machine, for oneself or together with others that do not mind."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        yield
        return
    with (Path(tempfile.gettempdir()) / f"loadkit-tests-{run}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


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
