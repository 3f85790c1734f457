"""checkov over everything that reaches a cluster; k8s/checkov.yaml has what is left out, each with its reason."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

OVERLAYS = ("ci", "long-context", "edge", "interactive")
PIN = "checkov==3.3.30"
HOME = Path(sys.prefix) / "share" / PIN  # a place of its own: it needs a hundred packages that loadkit does not


@pytest.fixture(scope="module")
def checkov():
    """Path of a checkov: the machine's, else one that pip installs, once."""
    if found := shutil.which("checkov"):
        return found
    if not HOME.exists():
        fresh = HOME.with_name(f"{PIN}.{os.getpid()}")
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", fresh, PIN]
        done = subprocess.run(install, capture_output=True, text=True, timeout=400, check=False)
        if done.returncode:
            shutil.rmtree(fresh, ignore_errors=True)
            pytest.skip(f"there is no checkov, and pip cannot get one: {done.stderr.strip()[-200:]}")
        fresh.rename(HOME)
    return HOME / "bin" / "checkov"


@pytest.fixture(scope="module")
def findings(checkov, build, k8s, tmp_path_factory):
    """Ids of checks that fail, {"all": in every object there is, "slip": in an overlay with a slip}."""
    folder = tmp_path_factory.mktemp("lint")
    texts = [build(k8s / "overlays" / name).text for name in OVERLAYS]
    texts += [(k8s / name).read_text() for name in ("setup.yaml", "reader.yaml")]
    slip = re.sub(r"allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", texts[0])
    for name, parts in {"all": texts, "slip": [slip]}.items():
        (folder / name).mkdir()
        for number, text in enumerate(parts):
            (folder / name / f"{number}.yaml").write_text(text)
    environ = {**os.environ, "PYTHONPATH": str(HOME)}
    command = [checkov, "--config-file", k8s / "checkov.yaml", "--output", "json", "--directory", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environ, cwd=folder)
    result = json.loads(done.stdout)
    assert result["summary"]["parsing_errors"] == 0
    assert result["summary"]["passed"] > 500
    failed = [(item["file_path"].split("/")[1], item["check_id"]) for item in result["results"]["failed_checks"]]
    return {name: {check for place, check in failed if place == name} for name in ("all", "slip")}


@pytest.mark.timeout(600)
def test_the_linter_has_nothing_to_say(findings):
    """Every overlay, the claim and the reader: no finding but those that are left out with a reason."""
    assert findings["all"] == set()


@pytest.mark.timeout(600)
def test_the_linter_looks(findings):
    """A container that may gain privileges is found."""
    assert findings["slip"] == {"CKV_K8S_20"}


def test_every_exception_has_its_reason(k8s):
    """No check is left out without a line of why."""
    text = (k8s / "checkov.yaml").read_text()
    lines = [line for line in text.splitlines() if line.startswith("  - ")]
    assert [line.split()[1] for line in lines] == yaml.safe_load(text)["skip-check"]
    assert all(re.fullmatch(r"  - CKV_K8S_\d+ # [^:]+: .{20,}", line) for line in lines)
