"""A real Prometheus and real runs for the tests of the live metrics."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from loadkit.live.registry import About, Registry
from loadkit.record.record import Record

HANG_S = 90
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR")


def until(found, what, seconds=HANG_S):
    """Ask `found` until it gives something true, and return that."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.05)
    return value


def free_port():
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def get(url, accept="text/plain"):
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=HANG_S) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


class Prometheus:
    """The real one, on a free port, with the targets it is given or a folder of blocks."""

    def __init__(self, folder, targets=(), data=None, interval="1s"):
        self.port = free_port()
        config = {
            "global": {"scrape_interval": interval, "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": "loadkit", "static_configs": [{"targets": list(targets)}]}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config if targets else {}))
        command = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={data or folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--enable-feature=exemplar-storage",
            "--storage.tsdb.retention.time=20y",
        ]
        self._log = (folder / "prometheus.log").open("wb")
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log, cwd=folder)
        until(self._ready, "Prometheus is ready")

    def _ready(self):
        assert self.process.poll() is None, "Prometheus ended"
        with contextlib.suppress(OSError):
            return get(f"http://127.0.0.1:{self.port}/-/ready")
        return None

    def api(self, path, **query):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        return json.loads(get(url)[1])["data"]

    def ask(self, expr, at=None):
        """Labels (without name and job) -> value of an instant query."""
        found = self.api("query", query=expr, **({} if at is None else {"time": at}))["result"]
        hidden = ("__name__", "job", "instance")
        return {
            tuple(sorted((k, v) for k, v in row["metric"].items() if k not in hidden)): float(row["value"][1])
            for row in found
        }

    def one(self, expr, at=None):
        """The only value of an instant query, None without one."""
        found = self.ask(expr, at)
        assert len(found) <= 1, found
        return next(iter(found.values()), None)

    def close(self):
        self.process.kill()
        self.process.wait()
        self._log.close()


class Run:
    """A `loadkit` command under way or ended, in a folder of its own."""

    def __init__(self, folder, words):
        self.cwd = folder
        environ = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "loadkit.cli.main", *map(str, words)],
                cwd=folder,
                env={**environ, "HOME": str(folder), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    @property
    def err(self):
        return (self.cwd / "stderr").read_text()

    def said(self, text):
        def found():
            assert self.process.poll() is None or text in self.err, self.err
            return text in self.err

        until(found, text)

    def end(self):
        return self.process.wait(HANG_S)

    @property
    def folder(self):
        return (self.cwd / "runs" / "latest").resolve()

    def rows(self, name="records.jsonl", kind="request"):
        found = map(json.loads, (self.folder / name).read_text().splitlines())
        return [row for row in found if row["kind"] == kind]

    @property
    def manifest(self):
        return json.loads((self.folder / "manifest.json").read_text())

    @property
    def summary(self):
        return json.loads((self.folder / "summary.json").read_text())

    @property
    def label(self):
        return self.manifest["run_id"].lower()


@pytest.fixture(scope="session")
def make_prometheus(tmp_path_factory):
    """make_prometheus(targets, data, interval): a Prometheus that ends with the tests, if not before."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("prometheus and promtool are not installed; on Debian: apt-get install prometheus")
    started = []

    def make(targets=(), data=None, interval="1s"):
        started.append(Prometheus(tmp_path_factory.mktemp("prometheus"), targets, data, interval))
        return started[-1]

    yield make
    for one in started:
        one.close()


@pytest.fixture(scope="session")
def promtool():
    """promtool(*words, text=…): run it; returns its exit code and what it said."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed; on Debian: apt-get install prometheus")

    def run(*words, text=None, cwd=None):
        done = subprocess.run(
            ["promtool", *map(str, words)],
            input=text,
            capture_output=True,
            text=True,
            cwd=cwd,
            timeout=HANG_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture(scope="session")
def loadkit(tmp_path_factory):
    """loadkit(*words): the command, started; none outlives the tests."""
    runs = []

    def begin(*words, cwd=None):
        runs.append(Run(cwd or tmp_path_factory.mktemp("run"), words))
        return runs[-1]

    yield begin
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()


@pytest.fixture(scope="session")
def make_sim():
    """make_sim(*args): base URL of a simulator in its own process."""
    sims = []

    def start(*args):
        command = [sys.executable, "-m", "loadkit.sim", "serve", *args, "--stdin-guard"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        sims.append(process)
        return json.loads(process.stdout.readline())["url"]

    yield start
    for process in sims:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture(scope="session")
def root():
    """The root of the project."""
    return Path(__file__).parents[2]


@pytest.fixture
def registry():
    """registry(cells=…, now=…, …): a registry of a run on endpoint e."""

    def make(cells=((4096, 1), (4096, 2)), now=lambda: 1000.0, **about):
        return Registry(About("r1-20260101T000000", "e", tuple(cells), **{"process": "p", **about}), now=now)

    return make


@pytest.fixture(scope="session")
def answer():
    """answer(**changes): a record of a measured, successful request of cell 4096x1."""
    plain = Record(
        run_id="r1",
        request_id="r1-1",
        endpoint="e",
        tier_tokens=4096,
        concurrency=1,
        phase="measure",
        outcome="ok",
        http_status=200,
        prompt_tokens=4096,
        output_tokens=3,
        cached_tokens=0,
        ttft_ms=400.0,
        e2e_ms=440.0,
        itl_ms=[20.0, 20.0],
        tpot_ms=20.0,
        unit_price_ms=0.1,
        done_ms=441.0,
        timestamp="2026-01-01T00:00:00.000+00:00",
        attempts=[{"outcome": "ok", "http_status": 200, "start_ms": 0.0, "end_ms": 441.0, "wait_ms": None}],
    ).to_json()

    def make(**changes):
        assert changes.keys() <= plain.keys()
        return {**plain, **changes}

    return make


@pytest.fixture(scope="session")
def fetch():
    """fetch(url, accept): content type and text of a page."""
    return get


@pytest.fixture(scope="session", name="until")
def until_fixture():
    """until(found, what): ask until it gives something true, and return that."""
    return until


@pytest.fixture(scope="session", name="free_port")
def free_port_fixture():
    """free_port(): a port that nobody listens on now."""
    return free_port
