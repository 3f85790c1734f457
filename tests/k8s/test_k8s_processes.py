"""The pod templates as processes: a master and two workers, started as the overlay `ci` says, with addresses and
folders of this machine in place of the cluster's."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from threading import Event, Thread

import pytest

HANG_S = 90
KEY = "a-key-that-the-server-wants"
COUNT = re.compile(r"^loadkit_requests_total\{[^}]*\} ([0-9.]+)$", re.MULTILINE)
BIN = Path(sys.executable).parent


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


class Server:
    """A simulator that wants the key and remembers every request."""

    def __init__(self):
        law = ("--ttft-ms", "20", "--itl-ms", "2", "--key-env", "SIM_KEY", "--stdin-guard")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "loadkit.sim", "serve", *law],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "SIM_KEY": KEY},
        )
        self.url = json.loads(self.process.stdout.readline())["url"]

    def received(self, run_id):
        """Request id -> how often it came, of a run."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/sim/truth", timeout=HANG_S) as answer:
            rows = json.load(answer)["requests"]
        return Counter(row["request_id"] for row in rows if (row["request_id"] or "").startswith(run_id))

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Pod:
    """One container of a pod template as a process: its command, arguments, variables and working folder, with every
    mount path replaced by a folder, and every text of `instead` by another."""

    def __init__(self, built, component, folder, shared, instead):
        self._container, self._instead = built.container(component), dict(instead)
        self._folder = folder
        for mount in self._container["volumeMounts"]:
            place = shared if mount["name"] == "results" else folder / mount["name"]
            place.mkdir(parents=True, exist_ok=True)
            self._instead[mount["mountPath"]] = str(place)
        for volume in built.pod(component)["spec"]["volumes"]:
            self._fill(built, volume)
        self.process = None

    def _fill(self, built, volume):
        """Put into a folder what the cluster would."""
        place = self._folder / volume["name"]
        maps = {item["metadata"]["name"]: item["data"] for item in built.all("ConfigMap")}
        for source in volume.get("projected", {}).get("sources", []):
            for name, text in maps[source["configMap"]["name"]].items():
                (place / name).write_text(self.here(text))
        if "secret" in volume:
            (place / "key").write_text(KEY + "\n")
            (place / "key").chmod(0o600)  # a file of one's own; that root's may have a group is tested elsewhere

    def here(self, text):
        """A text of the manifests as it is on this machine."""
        longest = sorted(self._instead, key=len, reverse=True)
        anywhere = rf"(?:{'|'.join(map(re.escape, longest))})(?![\w-])"
        return re.sub(anywhere, lambda found: self._instead[found[0]], text)

    def start(self, **ports):
        words = [*self._container["command"], *self._container["args"]]
        variables = {item["name"]: self.here(item["value"]) for item in self._container.get("env", [])}
        environ = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": self.here("/tmp"), "PYTHONUNBUFFERED": "1"}
        with (self._folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                [self.here(word) for word in words],
                cwd=self.here(self._container["workingDir"]),
                env={**environ, **variables, **ports},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def output(self):
        return (self._folder / "output").read_text()


class Scrapes:
    """Reads the metrics of a master as often as a Prometheus would like to, until it does not answer any more."""

    def __init__(self, url):
        self.last, self._url, self._over = "", url, Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._over.wait(0.25):
            try:
                with urllib.request.urlopen(self._url, timeout=5) as answer:
                    self.last = answer.read().decode()
            except OSError:
                continue

    def close(self):
        self._over.set()
        self._thread.join()


@pytest.fixture(scope="module")
def ended(ci, root, tmp_path_factory):
    """The run of the overlay, at its end: pods, the results volume, the server and the last scrape."""
    folder, results = tmp_path_factory.mktemp("pods"), tmp_path_factory.mktemp("results")
    server, (rpc, metrics) = Server(), (free_port(), free_port())
    instead = {
        "/opt/loadkit/locustfiles": str(root / "locustfiles"),
        "http://server.default.svc:8000": server.url,
        ci.one("Service")["metadata"]["name"]: "127.0.0.1",
        "0.0.0.0:9646": f"127.0.0.1:{metrics}",
    }
    count = ci.one("Job", "worker")["spec"]["parallelism"]
    pods = [Pod(ci, "master", folder / "master", results, instead)]
    pods += [Pod(ci, "worker", folder / f"worker-{number}", results, instead) for number in range(count)]
    scrapes = None
    try:
        pods[0].start(LOCUST_MASTER_BIND_PORT=rpc)
        scrapes = Scrapes(f"http://127.0.0.1:{metrics}/metrics")
        for pod in pods[1:]:
            pod.start(LOCUST_MASTER_NODE_PORT=rpc)
        deadline = time.monotonic() + HANG_S
        codes = [pod.process.wait(max(1, deadline - time.monotonic())) for pod in pods]
        scrapes.close()
        run = (results / "latest").resolve()
        manifest = json.loads((run / "manifest.json").read_text())
        yield {
            "codes": codes,
            "pods": pods,
            "run": run,
            "manifest": manifest,
            "received": server.received(manifest["run_id"]),
            "scrape": scrapes.last,
        }
    finally:
        for pod in pods:
            if pod.process is not None and pod.process.poll() is None:
                pod.process.kill()
                pod.process.wait()
        if scrapes is not None:
            scrapes.close()
        server.close()


def records(ended):
    rows = [json.loads(line) for line in (ended["run"] / "records.jsonl").read_text().splitlines()]
    return [row for row in rows if row["kind"] == "request"]


def test_the_records_are_what_the_server_received(ended):
    """Each request once, both workers took part, and the server, which wants the key of the file, answered them."""
    rows = records(ended)
    assert Counter({row["request_id"]: len(row["attempts"]) for row in rows}) == ended["received"]
    assert {row["outcome"] for row in rows} == {"ok"}
    assert len({row["worker"] for row in rows}) == 2


def test_the_exit_code_of_the_master_is_the_runs(ended):
    """0, or 6 where this busy machine was the slow part; the workers leave with 0."""
    summary = json.loads((ended["run"] / "summary.json").read_text())
    verdicts = [cell["validity"] for cell in summary["cells"] if cell["validity"]["status"] == "invalid"]
    blamed = any("event loop lag" in reason or "CPU" in reason for each in verdicts for reason in each["reasons"])
    assert ended["codes"][0] == summary["exit_code"], ended["pods"][0].output
    assert ended["codes"][0] == 0 or (ended["codes"][0] in (3, 6) and blamed), ended["pods"][0].output
    assert ended["codes"][1:] == [0, 0], [pod.output for pod in ended["pods"]]


def test_the_volume_holds_the_run_and_no_key(ended):
    """Manifest, records, summary and reports of the plan in the ConfigMap; the key is in no file and in no output."""
    names = {path.name for path in ended["run"].iterdir()}
    assert {"manifest.json", "records.jsonl", "telemetry.jsonl", "summary.json", "report.md", "report.html"} <= names
    assert not names & {"spools", ".prompts"}
    cells = {visit["cell"] for visit in ended["manifest"]["visits"]}
    assert cells == {"1024x1", "1024x4", "4096x1", "4096x4"}
    assert not any(KEY.encode() in path.read_bytes() for path in ended["run"].iterdir())
    assert not any(KEY in pod.output for pod in ended["pods"])


def test_the_metrics_port_answered_to_the_end(ended):
    """The last scrape, while the master lingered, counts every request of the records."""
    assert sum(float(value) for value in COUNT.findall(ended["scrape"])) == len(records(ended))
