"""The manifests under a linter, trivy: what `kubectl kustomize` makes of every overlay, and what is applied by itself.

The rules are those that the program carries; nothing is fetched. The Containerfile has a linter of its own.
"""

import copy
import json
import os
import subprocess

import pytest
import yaml

EXCEPTIONS = "trivyignore.yaml"
ALONE = ("setup.yaml", "reader.yaml", "scale/workers.yaml")
UNLIMITED = "KSV-0011"


def pod_with(reader, **fields):
    """The reader, with other fields of its pod."""
    pod = copy.deepcopy(reader)
    pod["spec"].update(fields)
    return pod


def container_with(reader, **fields):
    """The reader, with other fields of its container; those of `securityContext` are put into the one it has."""
    pod = copy.deepcopy(reader)
    (container,) = pod["spec"]["containers"]
    container["securityContext"].update(fields.pop("securityContext", {}))
    container.update(fields)
    return pod


FAULTS = {
    "KSV-0001": lambda pod: container_with(pod, securityContext={"allowPrivilegeEscalation": True}),
    "KSV-0005": lambda pod: container_with(pod, securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
    "KSV-0009": lambda pod: pod_with(pod, hostNetwork=True),
    "KSV-0012": lambda pod: pod_with(pod, securityContext={"runAsNonRoot": False}),
    "KSV-0013": lambda pod: container_with(pod, image="loadkit:latest"),
    "KSV-0014": lambda pod: container_with(pod, securityContext={"readOnlyRootFilesystem": False}),
    "KSV-0017": lambda pod: container_with(pod, securityContext={"privileged": True}),
    "KSV-0018": lambda pod: container_with(pod, resources={"limits": {"cpu": "1"}}),
    "KSV-0020": lambda pod: pod_with(pod, securityContext={"runAsUser": 1000}),
    "KSV-0023": lambda pod: pod_with(pod, volumes=[{"name": "results", "hostPath": {"path": "/var"}}]),
    "KSV-0024": lambda pod: container_with(pod, ports=[{"containerPort": 9646, "hostPort": 9646}]),
    "KSV-0109": lambda pod: {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "keys", "namespace": "loadkit"},
        "data": {"password": "a-key-that-the-server-wants"},
    },
    "KSV-0110": lambda pod: pod | {"metadata": {"name": "reader", "namespace": "default"}},
}


@pytest.fixture(scope="module")
def reader(k8s):
    """The pod that holds the volume for who copies from it."""
    (pod,) = [item for item in yaml.safe_load_all((k8s / "reader.yaml").read_text()) if item["kind"] == "Pod"]
    return pod


@pytest.fixture(scope="module")
def folder(build, k8s, reader, tmp_path_factory):
    """All manifests, each of its own in a file, and beside them those with a fault."""
    made = tmp_path_factory.mktemp("manifests")
    for path in (k8s / "overlays").iterdir():
        (made / f"{path.name}.yaml").write_text(build(path).text)
    for name in ALONE:
        (made / name.replace("/", "-")).write_text((k8s / name).read_text())
    for rule, fault in FAULTS.items():
        (made / f"{rule}.yaml").write_text(yaml.safe_dump(fault(reader)))
    return made


@pytest.fixture(scope="module")
def lint(trivy, folder, tmp_path_factory):
    """lint(exceptions): file -> [(rule, what is wrong)] of the rules that are broken, and file -> rules it was held
    against."""
    cache = tmp_path_factory.mktemp("cache")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRIVY_")}

    def run(exceptions):
        options = ("--skip-check-update", "--skip-version-check", "--disable-telemetry", "--quiet", "--format", "json")
        options += ("--include-non-failures", "--cache-dir", cache, "--ignorefile", exceptions)
        command = [trivy, "config", *options, "."]
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        broken, held = {}, {}
        for result in json.loads(done.stdout)["Results"]:
            found = result["Misconfigurations"]
            broken[result["Target"]] = [(each["ID"], each["Message"]) for each in found if each["Status"] == "FAIL"]
            held[result["Target"]] = {each["ID"] for each in found if each["ID"].startswith("KSV")}
        return broken, held

    return run


@pytest.fixture(scope="module")
def excused(lint, k8s):
    """What is found beside the exceptions."""
    return lint(k8s / EXCEPTIONS)


@pytest.fixture(scope="module")
def strict(lint):
    """What is found without any exception."""
    return lint("")


def test_the_linter_has_nothing_to_say(folder, excused):
    """Every file was read as Kubernetes and held against the rules, also the transformer in `scale`, which makes no
    object; only those with a fault break any."""
    broken, held = excused
    files = {path.name for path in folder.iterdir()}
    assert files == set(held)
    assert all(rules >= set(FAULTS) for rules in held.values())
    sound = files - {f"{rule}.yaml" for rule in FAULTS}
    assert len(files) - len(sound) == len(FAULTS)
    assert {name: broken[name] for name in sound if broken[name]} == {}


@pytest.mark.parametrize("rule", FAULTS)
def test_the_linter_finds_a_fault(excused, rule):
    """One fault at a time, put into the reader or beside it: its rule is broken, beside the exceptions."""
    assert rule in {found for found, _ in excused[0][f"{rule}.yaml"]}


def test_every_exception_has_a_reason_and_is_needed(build, strict, k8s):
    """Without them exactly they are broken, by exactly the load generators of each overlay."""
    (exception,) = yaml.safe_load((k8s / EXCEPTIONS).read_text())["misconfigurations"]
    assert exception["id"] == UNLIMITED
    assert len(exception["statement"].split()) > 5
    for path in (k8s / "overlays").iterdir():
        jobs = {job["metadata"]["name"] for job in build(path).all("Job")}
        found = strict[0][f"{path.name}.yaml"]
        assert {rule for rule, _ in found} == {UNLIMITED}
        assert {name for name in jobs for _, message in found if f"'{name}'" in message} == jobs
        assert len(found) == len(jobs)
