"""The Containerfile: what its linter says, what it copies, and that its versions are all written down."""

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@pytest.fixture(scope="module")
def stages(root):
    """Instructions of each stage, in lines that are whole."""
    text = re.sub(r"\\\n\s*", " ", (root / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    starts = [number for number, line in enumerate(lines) if line.startswith("FROM ")]
    return [lines[:1], *(lines[a:b] for a, b in zip(starts, [*starts[1:], len(lines)], strict=True))]


def test_the_linter_has_nothing_to_say(root):
    """hadolint, with no rule left out."""
    program = Path(sys.executable).with_name("hadolint")
    command = [program, "--no-color", root / "Containerfile"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=root)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_final_stage_only_copies_and_is_nobodys_root(stages, ci):
    """Whatever it takes to build stays in the first stage; the user is the one that the pods run as."""
    before, build, final = stages
    assert before == ["ARG BASE=python:3.11-slim"]
    assert build[0] == "FROM ${BASE} AS build"
    assert final[0] == "FROM ${BASE}"
    assert {line.split()[0] for line in final} == {"FROM", "COPY", "ENV", "WORKDIR", "USER", "ENTRYPOINT"}
    user = ci.pod("master")["spec"]["securityContext"]
    assert f"USER {user['runAsUser']}:{user['runAsGroup']}" in final


def test_everything_that_is_copied_is_there_and_sent_to_the_build(stages, root):
    """The context is a list of what may go; each source of a COPY is on it, and exists."""
    sent = {line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = set()
    for line in [*stages[1], *stages[2]]:
        if line.startswith("COPY ") and "--from=" not in line:
            copied |= {source.removeprefix("./") for source in line.split()[1:-1]}
    assert copied == sent
    assert all((root / name).exists() for name in copied)


def test_every_version_of_the_image_is_in_constraints(root):
    """Whatever loadkit needs, and that needs, is pinned, so the same packages are installed every time."""
    pinned = {line.partition("==")[0] for line in (root / "constraints.txt").read_text().splitlines() if "==" in line}
    pinned = {canonicalize_name(name) for name in pinned}
    needed, ahead = set(), {"loadkit"}
    while ahead:
        name = ahead.pop()
        for line in requires(name) or ():
            found = Requirement(line)
            wanted = canonicalize_name(found.name)
            if (found.marker is None or found.marker.evaluate({"extra": ""})) and wanted not in needed:
                needed.add(wanted)
                ahead.add(wanted)
    assert "locust" in needed
    assert needed <= pinned


def test_the_pods_call_what_the_image_has(stages, overlay):
    """The locustfile is where the image has it, and the programs are on its path."""
    final = stages[2]
    assert "COPY locustfiles /opt/loadkit/locustfiles" in final
    (environment,) = [line for line in final if line.startswith("ENV ")]
    assert "PATH=/opt/loadkit/bin:$PATH" in environment
    for component in ("master", "worker"):
        container = overlay.container(component)
        assert container["command"] == ["locust"]
        assert "--locustfile=/opt/loadkit/locustfiles/ladder.py" in container["args"]
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"/tmp", container["workingDir"]} <= mounts
