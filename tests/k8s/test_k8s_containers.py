"""The image, built and started: a master and two workers as the pod templates of the overlay `ci` say, in containers.

No registry is asked. The base of the image is made here, of this machine's own Python, and handed to the Containerfile
as its build argument BASE; its packages are wheels of the versions in constraints.txt. Every field of a pod template is
either given to podman or stands in CLUSTER; one that is in neither fails.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pip
import pytest
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.timeout(300)  # the image is built in the setup of the first test

HANG_S = 200
PROGRAMS = ("podman", "runc", "netavark")
HELPERS = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/lib/podman:/usr/libexec/podman"
PORT = 8000  # of the server, as endpoints.toml of the overlay has it
KEY = "a-key-that-the-server-wants"
COUNT = re.compile(r"^loadkit_requests_total\{[^}]*\} ([0-9.]+)$", re.MULTILINE)
NOT_NEEDED = {"__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo"}
# What wheels for Linux may expect of the system.
SYSTEM = ("dl", "expat", "gcc_s", "m", "pthread", "resolv", "rt", "stdc++", "util", "z")
# Limits that a container may not raise where its maker may not, and a runtime that takes every kind of cgroups.
CONF = """
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
"""
# What only a cluster can act on.
CLUSTER = {
    "automountServiceAccountToken",
    "enableServiceLinks",
    "fsGroupChangePolicy",
    "imagePullPolicy",
    "name",
    "ports",
    "requests",
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "topologySpreadConstraints",
}
LOOK = """
import json, os
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
def writable(folder):
    try:
        open(f"{folder}/probe", "w").close()
    except OSError:
        return False
    os.remove(f"{folder}/probe")
    return True
key = "/run/secrets/loadkit/key"
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(), "capabilities": int(status["CapEff"], 16),
    "no_new_privileges": status["NoNewPrivs"], "seccomp": status["Seccomp"],
    "writable": [folder for folder in ("/opt/loadkit", "/run/secrets/loadkit", "/spool", "/tmp") if writable(folder)],
    "key": [os.stat(key).st_uid, oct(os.stat(key).st_mode & 0o777), open(key).read().strip()],
}))
"""
# What 275 MB become when pins move on. A compiler (gcc: 150 MB) or the wheels left behind (70 MB) are more than that.
MOST_ADDED_MB = 310
# Whatever could differ in a second build of the same sources, by what the files of the image say.
SAME = """
import hashlib, importlib.metadata, json, pathlib
def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()
here = pathlib.Path("/opt/loadkit")
files = [path for path in here.rglob("*") if path.is_file() and not path.is_symlink()]
package = pathlib.Path(importlib.metadata.distribution("loadkit").locate_file("loadkit"))
links = [json.loads(path.read_text())["url"] for path in here.rglob("direct_url.json")]
print(json.dumps({
    "byte code": sorted({path.read_bytes()[4:8].hex() for path in files if path.suffix == ".pyc"}),
    "times": sorted({path.stat().st_mtime for path in files}),
    "links": links,
    "versions": {one.name: one.version for one in importlib.metadata.distributions(path=[str(package.parent)])},
    "sources": {str(path.relative_to(package)): digest(path) for path in files
                if package in path.parents and path.suffix != ".pyc"},
}))
"""


@pytest.fixture(scope="module")
def podman(tmp_path_factory):
    """podman(*words): its output; a failure unless `code` is what it ends with."""
    missing = [name for name in PROGRAMS if not shutil.which(name, path=HELPERS)]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"containers need root and {', '.join(missing or PROGRAMS)}")
    conf = tmp_path_factory.mktemp("podman") / "containers.conf"
    conf.write_text(CONF)
    environ = {**os.environ, "CONTAINERS_CONF": str(conf)}

    def run(*words, code=0):
        done = subprocess.run(
            ["podman", *map(str, words)], capture_output=True, text=True, timeout=HANG_S, check=False, env=environ
        )
        assert done.returncode == code, f"podman {words}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
        return (done.stdout + (done.stderr if words[0] == "logs" else "")).strip()

    return run


def libraries(files):
    """The shared libraries that programs and modules load."""
    found = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, timeout=60, check=False).stdout
    found = set(map(Path, re.findall(r"(/\S+\.so\S*) \(0x", found)))
    (libc,) = [path for path in found if path.name == "libc.so.6"]
    return sorted(found.union(*(libc.parent.glob(f"lib{name}.so.[0-9]") for name in SYSTEM)))


def base_of(path):
    """A root file system with this machine's Python, pip and a shell, as a tar file."""
    stdlib, shell = Path(os.__file__).parent, Path("/bin/sh")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = Path(sys.base_prefix).resolve() / "bin" / version
    with tarfile.open(path, "w") as tar:

        def folder(place, mode=0o755):
            for parent in [*reversed(place.parents), place]:
                info = tarfile.TarInfo(str(parent)[1:])
                info.type, info.mode = tarfile.DIRTYPE, mode if parent == place else 0o755
                if info.name and info.name not in seen:
                    seen.add(info.name)
                    tar.addfile(info)

        def wanted(info):
            info.uid = info.gid = 0
            seen.add(info.name)
            return None if NOT_NEEDED & set(Path(info.name).parts[-1:]) or info.name.endswith(".a") else info

        def take(source, place):
            folder(place.parent)
            tar.add(source.resolve(), str(place)[1:], filter=wanted)

        seen = set()
        take(stdlib, stdlib)
        take(Path(pip.__file__).parent, stdlib / "pip")
        for file in (program, shell, *libraries([program, shell, *(stdlib / "lib-dynload").glob("*.so")])):
            take(file, file)
        for name in ("python", "python3"):
            link = tarfile.TarInfo(f"usr/local/bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, str(program)
            folder(Path("/usr/local/bin"))
            tar.addfile(link)
        folder(Path("/tmp"), 0o1777)
        folder(Path("/etc"))


@pytest.fixture(scope="module")
def wheels(root):
    """A folder of wheels: what the project and its build need, in the versions of constraints.txt; fetched once."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    pins = (root / "constraints.txt").read_text()
    name = hashlib.sha256(json.dumps([needed, pins, sys.version]).encode()).hexdigest()[:16]
    folder = Path(sys.prefix) / "share" / f"wheels-{name}"
    if not folder.exists():
        fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
        options = ("--quiet", "--only-binary", ":all:", "-c", str(root / "constraints.txt"), "-d", str(fresh))
        subprocess.run([sys.executable, "-m", "pip", "download", *options, *needed], timeout=HANG_S, check=True)
        fresh.rename(folder)
    return folder


@pytest.fixture(scope="module")
def base(podman, tmp_path_factory):
    """The name of an image with this machine's own Python."""
    name, path = f"localhost/loadkit-base:{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("base") / "base.tar"
    base_of(path)
    try:
        podman("import", "--quiet", path, name)
        path.unlink()
        yield name
    finally:
        podman("rmi", "--force", "--ignore", name)


@pytest.fixture(scope="module")
def image(podman, base, wheels, root):
    """The name of the image that the Containerfile makes, with no network; its times are all 0."""
    name = f"localhost/loadkit-test:{uuid.uuid4().hex[:8]}"
    arguments = {"BASE": base, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
    words = [word for item in arguments.items() for word in ("--build-arg", "=".join(item))]
    options = ("--network", "none", "--layers=false", "--timestamp", "0", "--volume", f"{wheels}:/wheels:ro")
    try:
        podman("build", "--quiet", *options, *words, "--tag", name, root)
        yield name
    finally:
        podman("rmi", "--force", "--ignore", name)


class Pod:
    """A pod template as words of `podman run`, with its volumes as folders here."""

    def __init__(self, built, component, folder, results, key=KEY):
        self._built, self._folder, self._results, self._key = built, folder, results, key
        spec, container = dict(built.pod(component)["spec"]), dict(built.container(component))
        del spec["containers"]
        self._volumes = {volume["name"]: volume for volume in spec.pop("volumes")}
        self._group = spec["securityContext"]["fsGroup"]
        self.command = [*container.pop("command"), *container.pop("args")]
        del container["image"]
        fields = [("pod", spec), ("container", container)]
        self.words = [word for _, each in fields for name in each for word in self._given(name, each[name])]

    def _given(self, name, value):
        """What podman is told for one field."""
        known = {
            "securityContext": lambda: [word for key in value for word in self._secured(key, value)],
            "volumeMounts": lambda: [word for mount in value for word in self._mounted(mount)],
            "env": lambda: [word for item in value for word in ("--env", f"{item['name']}={item['value']}")],
            "resources": lambda: ["--memory", value["limits"]["memory"].replace("Gi", "g").replace("Mi", "m")],
            "workingDir": lambda: ["--workdir", value],
        }
        if name == "resources":
            assert set(value["limits"]) == {"memory"}
        return [] if name in CLUSTER else known[name]()

    def _secured(self, name, context):
        value = context[name]
        known = {
            "runAsUser": lambda: ["--user", f"{value}:{context['runAsGroup']}"],
            "runAsGroup": list,
            "runAsNonRoot": list,
            "fsGroup": lambda: ["--group-add", str(value)],
            "seccompProfile": lambda: [] if value == {"type": "RuntimeDefault"} else [value],
            "allowPrivilegeEscalation": lambda: [] if value else ["--security-opt", "no-new-privileges"],
            "readOnlyRootFilesystem": lambda: ["--read-only", "--read-only-tmpfs=false"] if value else [],
            "capabilities": lambda: ["--cap-drop", ",".join(value["drop"]).lower()],
        }
        return [] if name in CLUSTER else known[name]()

    def _mounted(self, mount):
        """A volume where the container wants it: by its kind, as a cluster would fill it."""
        (kind,) = set(self._volumes[mount["name"]]) - {"name"}
        source = self._volumes[mount["name"]][kind]
        if source.get("medium") == "Memory":
            size = source["sizeLimit"].replace("Mi", "m")
            return ["--tmpfs", f"{mount['mountPath']}:rw,size={size},mode=1777"]
        place = self._results if kind == "persistentVolumeClaim" else self._folder / mount["name"]
        place.mkdir(parents=True, exist_ok=True)
        if kind in ("persistentVolumeClaim", "emptyDir"):
            os.chown(place, 0, self._group)
            place.chmod(0o2775)
        elif kind == "projected":
            maps = {item["metadata"]["name"]: item["data"] for item in self._built.all("ConfigMap")}
            for part in source["sources"]:
                for name, text in maps[part["configMap"]["name"]].items():
                    (place / name).write_text(text)
        else:
            assert kind == "secret"
            (place / "key").write_text(self._key + "\n")
            os.chown(place / "key", 0, self._group)
            (place / "key").chmod(source["defaultMode"])
        return ["--volume", f"{place}:{mount['mountPath']}:{'ro' if mount.get('readOnly') else 'rw'}"]


@pytest.fixture(scope="module")
def cluster(podman, image):
    """start(name, words, command): a container in a network without a way out, in which it is known by `name`."""
    mark = uuid.uuid4().hex[:8]
    started = []
    podman("network", "create", "--internal", f"loadkit-{mark}")

    def start(alias, words, command):
        name = f"loadkit-{mark}-{len(started)}"
        started.append(name)
        network = ("--network", f"loadkit-{mark}", "--network-alias", alias)
        podman("run", "--detach", "--name", name, *network, *words, "--entrypoint", command[0], image, *command[1:])
        return name

    def address(name):
        return podman("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", name)

    start.address = address
    try:
        yield start
    finally:
        if started:
            podman("rm", "--force", "--time", "0", *started)
        podman("network", "rm", "--force", f"loadkit-{mark}")


def get(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


@pytest.fixture(scope="module")
def server(cluster):
    """A simulator that wants the key, in a container of the image; returns the address of what it has received."""
    law = ("--ttft-ms", "20", "--itl-ms", "2", "--key-env", "SIM_KEY")
    listen = ("--host", "0.0.0.0", "--port", str(PORT))
    name = cluster(
        "server.default.svc",
        ("--env", f"SIM_KEY={KEY}", "--read-only", "--tmpfs", "/tmp"),
        ("python", "-m", "loadkit.sim", "serve", *listen, *law),
    )
    return f"http://{cluster.address(name)}:{PORT}/sim/truth"


@pytest.fixture(scope="module")
def ended(podman, cluster, server, ci, tmp_path_factory):
    """The run of the overlay at its end."""
    folder, results = tmp_path_factory.mktemp("pods"), tmp_path_factory.mktemp("results")
    folder.parent.chmod(0o755)
    service = ci.one("Service")["metadata"]["name"]
    master = Pod(ci, "master", folder / "master", results)
    names = [cluster(service, master.words, master.command)]
    for number in range(ci.one("Job", "worker")["spec"]["parallelism"]):
        worker = Pod(ci, "worker", folder / f"worker-{number}", results)
        names.append(cluster(f"worker-{number}", worker.words, worker.command))
    page, last = f"http://{cluster.address(names[0])}:9646/metrics", ""
    waiting = subprocess.Popen(["podman", "wait", names[0]], stdout=subprocess.DEVNULL)
    try:
        while True:
            with suppress(OSError):
                last = get(page)
            with suppress(subprocess.TimeoutExpired):
                waiting.wait(0.25)
                break
    finally:
        waiting.kill()
        waiting.wait()
    codes = [int(podman("wait", name)) for name in names]
    output = [podman("logs", name) for name in names]
    assert (results / "latest").exists(), output
    run = (results / "latest").resolve()
    manifest = json.loads((run / "manifest.json").read_text())
    rows = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    return {
        "codes": codes,
        "output": output,
        "run": run,
        "records": [row for row in rows if row["kind"] == "request"],
        "manifest": manifest,
        "received": [row["request_id"] or "" for row in json.loads(get(server))["requests"]],
        "scrape": last,
    }


def test_the_records_are_what_the_server_received(ended):
    """Each request once, both workers took part, and the server, which wants the key of the file, answered them."""
    received = Counter(name for name in ended["received"] if name.startswith(ended["manifest"]["run_id"]))
    assert Counter({row["request_id"]: len(row["attempts"]) for row in ended["records"]}) == received
    assert {row["outcome"] for row in ended["records"]} == {"ok"}
    assert len({row["worker"] for row in ended["records"]}) == 2


def test_exit_codes_travel(ended):
    """The container of the master ends with the code of the run, 0 or what a busy machine makes of it; the workers
    with 0."""
    summary = json.loads((ended["run"] / "summary.json").read_text())
    invalid = [reason for cell in summary["cells"] for reason in cell["validity"]["reasons"]]
    blamed = any("event loop lag" in reason or "CPU" in reason for reason in invalid)
    assert ended["codes"][0] == summary["exit_code"], ended["output"][0]
    assert ended["codes"][0] == 0 or (ended["codes"][0] in (3, 6) and blamed), ended["output"][0]
    assert ended["codes"][1:] == [0, 0], ended["output"]


def test_the_volume_holds_the_run_and_no_key(ended, ci):
    """All files of the run folder, written by the user that the pods run as; the key is in none and in no output."""
    names = {path.name for path in ended["run"].iterdir()}
    assert {"manifest.json", "records.jsonl", "telemetry.jsonl", "summary.json", "report.md", "report.html"} <= names
    user = ci.pod("master")["spec"]["securityContext"]["runAsUser"]
    assert {path.stat().st_uid for path in ended["run"].iterdir()} == {user}
    assert not any(KEY.encode() in path.read_bytes() for path in ended["run"].iterdir())
    assert not any(KEY in text for text in ended["output"])


def test_the_metrics_port_answered_to_the_end(ended):
    """The last scrape, while the master lingered, counts every request of the records."""
    assert sum(float(value) for value in COUNT.findall(ended["scrape"])) == len(ended["records"])


def test_a_wrong_key_is_exit_code_5(podman, cluster, server, ci, tmp_path_factory):
    """A master whose Secret is not what the server wants ends with the code of a target that refuses."""
    folder, results = tmp_path_factory.mktemp("refused"), tmp_path_factory.mktemp("results")
    master = Pod(ci, "master", folder, results, key="another-key-than-that")
    name = cluster("refused", master.words, master.command)
    assert podman("wait", name) == "5", podman("logs", name)


def test_a_pod_may_do_no_more_than_it_says(podman, image, ci, tmp_path_factory):
    """Inside: the user of the manifests without a capability, a root file system that cannot be written, a key that
    only root and the group read, a spool and a /tmp that can be written."""
    worker = Pod(ci, "worker", tmp_path_factory.mktemp("seen"), tmp_path_factory.mktemp("results"))
    alone = ("run", "--rm", "--network", "none", *worker.words, "--entrypoint", "python")
    found = json.loads(podman(*alone, image, "-c", LOOK))
    user = ci.pod("worker")["spec"]["securityContext"]
    assert found == {
        "uid": user["runAsUser"],
        "gid": user["runAsGroup"],
        "capabilities": 0,
        "no_new_privileges": "1",
        "seccomp": "2",
        "writable": ["/spool", "/tmp"],
        "key": [0, "0o440", KEY],
    }


def test_the_final_image_has_no_compiler(podman, image):
    """Nothing in it builds anything; pip is not among what was installed, and no byte code is written at run time."""
    names = ("cc", "gcc", "ld", "make", "pip")
    look = f"import shutil, sys; print(*map(shutil.which, {names}), sys.dont_write_bytecode)"
    said = podman("run", "--rm", "--network", "none", "--entrypoint", "python", image, "-c", look)
    assert said.split() == ["None"] * len(names) + ["True"]


def test_the_image_is_small(podman, base, image):
    """The base grows by the packages and their byte code, and by nothing that it took to install them."""
    bytes_of = [int(podman("image", "inspect", "--format", "{{.Size}}", name)) for name in (base, image)]
    assert 0 < bytes_of[1] - bytes_of[0] < MOST_ADDED_MB * 1e6


def test_a_second_build_would_be_the_same(podman, image, root):
    """The known causes of difference are out (a second build takes 20 s and more): byte code goes by a hash that is not
    looked at, never by a time (PEP 552: flags 1); the files have the time that was asked for; the place of the sources
    is fixed; each version is the one of constraints.txt; and the package is the source tree, byte for byte."""
    alone = ("run", "--rm", "--network", "none", "--entrypoint", "/opt/loadkit/bin/python")
    found = json.loads(podman(*alone, image, "-c", SAME))
    assert (found["byte code"], found["times"], found["links"]) == (["01000000"], [0], ["file:///src"])
    pins = [line.split("==") for line in (root / "constraints.txt").read_text().splitlines() if "==" in line]
    pinned = {canonicalize_name(name): version.split()[0] for name, version in pins}
    versions = {canonicalize_name(name): version for name, version in found["versions"].items()}
    versions.pop("loadkit")
    assert versions
    assert versions.items() <= pinned.items()
    package = root / "loadkit"
    here = {str(path.relative_to(package)): path for path in package.rglob("*") if path.is_file()}
    assert found["sources"] == {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in here.items()
        if "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
