"""Runs as a user starts them, each in its own process and folder, against simulators that know what reached them."""

import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HANG_S = 100  # longer than any run here may take: a hang fails, it does not stay
ROOT = Path(__file__).parents[2]
MARK = "LOADKIT_TEST_MARK"
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR")


def until(found, what):
    """Ask `found` until it gives something true, and return that."""
    deadline = time.monotonic() + HANG_S
    while not (value := found()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)
    return value


class Sim:
    """A simulator in its own process and the truth it keeps."""

    def __init__(self, args, prefix=()):
        command = [*prefix, sys.executable, "-m", "loadkit.sim", "serve", *args, "--stdin-guard"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    @functools.cached_property
    def url(self):
        """Its base URL, as soon as it listens: several that are made first and asked later start together."""
        return json.loads(self.process.stdout.readline())["url"]

    def get(self, path):
        with urllib.request.urlopen(self.url.removesuffix("/v1") + path, timeout=HANG_S) as answer:
            return json.load(answer)

    def stats(self):
        return self.get("/sim/stats")

    def reached(self, **least):
        """Wait until each counter is at least so high; returns them all."""

        def found():
            stats = self.stats()
            return stats if all(stats[name] >= value for name, value in least.items()) else None

        return until(found, f"{least} at the server")

    def requests(self, run_id):
        """Every request of a run, once all have ended."""
        until(lambda: self.stats()["in_flight"] == 0, "an idle server")
        return [row for row in self.get("/sim/truth")["requests"] if (row["request_id"] or "").startswith(run_id)]

    def received(self, run_id):
        """Request id -> how often it was received, of a run."""
        return Counter(row["request_id"] for row in self.requests(run_id))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


class Run:
    """A run under way or ended. Standard output and error are files, so that nobody has to read them."""

    def __init__(self, folder, command, env=None, prefix=(), warm=None, **options):
        """`warm` starts a process of its own kind for the words of a command, instead of Python."""
        self.cwd = folder
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        environ = {**kept, "HOME": str(folder), "PYTHONUNBUFFERED": "1", **(env or {})}
        if warm is not None:
            streams = {"out": folder / "stdout", "err": folder / "stderr"}
            for path in streams.values():
                path.touch()  # it may be read before the process has come so far
            self.process = warm(command, cwd=folder, env=environ, **streams)
            return
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, **options}
            words = [*prefix, sys.executable, *command]
            self.process = subprocess.Popen(words, cwd=folder, env=environ, **streams)

    @property
    def out(self):
        return (self.cwd / "stdout").read_text()

    @property
    def err(self):
        return (self.cwd / "stderr").read_text()

    @property
    def lines(self):
        """Standard error, without the log lines that begin with a time and Locust's own tables."""
        found = self.err.splitlines()
        tables = next((i for i, line in enumerate(found) if line.startswith("Type ")), len(found))
        return [line for line in found[:tables] if line and not line.startswith("[20")]

    def said(self, text):
        """Wait until it has said this on standard error."""
        return until(lambda: text in self.err, text)

    def end(self):
        """Wait for its end; returns the exit code."""
        return self.process.wait(HANG_S)

    def signal(self, number):
        self.process.send_signal(number)

    @property
    def folder(self):
        return (self.cwd / "runs" / "latest").resolve()

    def rows(self, name="records.jsonl", kind="request"):
        """What can be read of a file; a line that was cut is none."""
        found = []
        for line in (self.folder / name).read_text().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return [row for row in found if row["kind"] == kind]

    @property
    def records(self):
        return self.rows()

    @property
    def sent(self):
        """Request id -> how often it was sent, by the records; one that was never sent has no time."""
        return Counter({row["request_id"]: len(row["attempts"]) for row in self.records if row["timestamp"]})

    @property
    def telemetry(self):
        return self.rows("telemetry.jsonl", "telemetry")

    @property
    def manifest(self):
        return json.loads((self.folder / "manifest.json").read_text())

    @property
    def summary(self):
        return json.loads((self.folder / "summary.json").read_text())

    @property
    def saturated(self):
        """Whether this busy machine, and not the run, made a cell invalid: exit code 6 then comes before 3, 4 and 0."""
        verdicts = [cell["validity"] for cell in self.summary["cells"]]
        reasons = [reason for verdict in verdicts if verdict["status"] == "invalid" for reason in verdict["reasons"]]
        return any("event loop lag" in reason or "CPU" in reason for reason in reasons)


class Fleet:
    """One run on workers, with all its processes, which are known by a variable of their environment.

    Every process is started behind a `prefix`, such as a command that enters a network namespace; the workers of
    `hosted` behind one each of `workers_prefixes`, looking for their master at `master_host`.
    """

    def __init__(self, start, server, prefix=(), workers_prefixes=None, master_host="127.0.0.1"):
        self.server, self._start, self._prefix = server, start, prefix
        self.mark = uuid.uuid4().hex
        self._workers_prefixes = workers_prefixes or [prefix, prefix]
        self._master_host = master_host
        self.workers = []

    def _python(self, *words, env=None, prefix=None):
        prefix = self._prefix if prefix is None else prefix
        return self._start(*words, env={MARK: self.mark, **(env or {})}, prefix=prefix)

    def forked(self, *options, workers=2):
        """`loadkit run --workers 2`."""
        self.run = self._python("-m", "loadkit.cli.main", "run", self.server.url, "--workers", workers, *options)
        return self

    def processes(self, *options, file):
        """`locust --processes 2`."""
        port = free_port()
        mode = ("--headless", "--processes", "2", "--master-bind-port", port, "--master-port", port)
        self.run = self._python("-m", "locust", "-f", file, *mode, "--url", self.server.url, *options)
        return self

    def hosted(self, *options, file, port=None, env=None):
        """`locust --master`, in the environment `env`, and two `locust --worker`."""
        self.port = port or free_port()
        mode = ("--headless", "--master", "--master-bind-port", self.port, "--expect-workers", "2")
        self.run = self._python("-m", "locust", "-f", file, *mode, "--url", self.server.url, *options, env=env)
        self._file = file
        for number in range(len(self._workers_prefixes)):
            self.join(number)
        return self

    def join(self, number):
        """One more worker of `hosted`, where the one of this number is or was."""
        where = ("--worker", "--master-host", self._master_host, "--master-port", self.port)
        prefix = self._workers_prefixes[number]
        self.workers.append(self._python("-m", "locust", "-f", self._file, *where, prefix=prefix))

    def alive(self, *words):
        """Process ids of the run whose command line has all these words."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    ours = f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes()
                    command = (folder / "cmdline").read_bytes().decode().split("\0")
                except OSError:
                    continue
                if ours and all(word in command for word in words):
                    found.append(int(folder.name))
        return sorted(found)

    def streams(self, received=6):
        """Wait until four requests are in flight, and so many have come."""

        def found():
            assert self.run.process.poll() is None, self.run.err
            stats = self.server.stats()
            return stats["in_flight"] == 4 and stats["received"] >= received

        until(found, "four streams")

    def worker(self):
        """Process id of a worker of `forked`, when both stream."""
        self.streams()
        return self.alive("loadkit.swarm")[0]

    def end(self):
        """Wait for the end of the run; what it said so far tells why there is none."""
        try:
            return self.run.end()
        except subprocess.TimeoutExpired:
            pytest.fail(f"no end: {self.run.err}")

    def check(self, *codes):
        """Every request that reached the server is a record, once, and nobody is left; the exit code is one of `codes`,
        or says that this busy machine was too slow."""
        code = self.end()
        assert code == self.run.summary["exit_code"], self.run.err
        assert code in codes or (code in (3, 6) and self.run.saturated), self.run.err
        assert self.run.sent == self.server.received(self.run.manifest["run_id"])
        self.check_tidy()

    def check_killed(self, streams=2):
        """Every request that reached the server is a record, once, although a worker was killed. What it had in flight,
        one request a stream at most, is aborted: cut off, or answered and not read to the end, or about to be sent."""
        run_id = self.run.manifest["run_id"]
        received = self.server.received(run_id)
        gone = {row["request_id"] for row in self.server.requests(run_id) if row["end"] == "client_gone"}
        aborted = {row["request_id"] for row in self.run.records if row["outcome"] == "aborted"}
        assert received - self.run.sent == Counter()
        assert set(self.run.sent - received) | gone <= aborted
        assert len(aborted) <= streams
        assert {row["error_message"] for row in self.run.records if row["outcome"] == "aborted"} <= {
            "its worker was killed"
        }

    def check_tidy(self, but=()):
        """No process, no spool, no prompts left, and no traceback."""
        assert self.alive() == []
        names = {path.name for path in self.run.folder.iterdir()}
        assert not names & {"spools", ".prompts", ".reserve"} - set(but)
        assert "Traceback" not in self.run.err

    @property
    def repeated(self):
        """The visits that may not stand, by their place in the manifest."""
        return {visit["visit"]: visit for visit in self.run.manifest["visits"] if "repeated_as" in visit}


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


@pytest.fixture(scope="session")
def make_sim():
    """make_sim(*args, prefix=()): a simulator that ends with the tests, if not before."""
    sims = []

    def start(*args, prefix=()):
        sim = Sim(args, prefix)
        sims.append(sim)
        return sim

    yield start
    for sim in sims:
        sim.close()


@pytest.fixture(scope="session")
def sim(make_sim):
    """A quick server for whoever needs no other: TTFT 20 ms, ITL 4 ms."""
    return make_sim("--ttft-ms", "20", "--itl-ms", "4")


@pytest.fixture(scope="session")
def start(tmp_path_factory):
    """start(*command, env=…): a Python command in a folder of its own; none outlives the tests."""
    runs = []

    def begin(*command, env=None, **options):
        run = Run(tmp_path_factory.mktemp("run"), [str(word) for word in command], env, **options)
        runs.append(run)
        return run

    yield begin
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()


@pytest.fixture(scope="session")
def make_fleet(start):
    """make_fleet(server, prefix=()): a run on workers, to be started by one of its methods."""
    return functools.partial(Fleet, start)


@pytest.fixture(scope="module")
def side_by_side(tmp_path_factory):
    """side_by_side({name: scenario}): all are started, two at a time, since they mostly wait, and so may those of other
    files; returns a function that gives what the scenario of a name has come to, and raises what it raised."""
    tmp_path_factory.getbasetemp()  # two threads would both make it, each anew
    with ThreadPoolExecutor(2) as pool:

        def begin(scenarios):
            under_way = {name: pool.submit(scenario) for name, scenario in scenarios.items()}
            return lambda name: under_way[name].result()

        yield begin
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="session")
def loadkit(start, warm):
    """loadkit(url, *options): `loadkit run`, started; with its imports already done, where nothing else is asked of its
    process. Many runs begin at once, and all that they would do for a while is import."""

    def begin(url, *options, env=None, **more):
        words = ("run", *([url] if url else []), *options)
        if more:
            return start("-m", "loadkit.cli.main", *words, env=env, **more)
        return start(*words, env=env, warm=warm("run"))

    return begin


@pytest.fixture(scope="session")
def locust(start, warm):
    """locust(file, url, *options): `locust --headless`, started as `loadkit` is."""

    def begin(file, url, *options, headless=True, env=None, **more):
        mode = ["--headless"] if headless else []
        words = ("-m", "locust", "-f", file, *mode, *(["--url", url] if url else []), *options)
        return start(*words, env=env, **(more or {"warm": warm("run")}))

    return begin


@pytest.fixture(scope="session")
def locustfiles():
    """The folder of locustfiles that are shipped."""
    return ROOT / "locustfiles"


@pytest.fixture(scope="session")
def locustfile(tmp_path_factory):
    """locustfile(text): a user's own locustfile."""

    def write(text):
        path = tmp_path_factory.mktemp("locustfile") / "own.py"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def snippet(tmp_path, finished_warm):
    """snippet(code, *words): run code in a process that has imported Locust; its standard output, from JSON."""

    def run(code, *words):
        done = finished_warm(("-c", code, *words), cwd=tmp_path, env=dict(os.environ), timeout=HANG_S)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def fresh_snippet(tmp_path):
    """As `snippet`, in a process that has imported nothing."""

    def run(code, *words):
        command = [sys.executable, "-c", code, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session", name="until")
def until_fixture():
    """until(found, what): ask until it gives something true, and return that."""
    return until
