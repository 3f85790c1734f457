"""Child processes know no keys and import nothing from where they run."""

import json
import os
import subprocess

from loadkit.prompt.build import BuildSpec, build_in_child
from loadkit.prompt.child import python_module, without_keys

SECRETS = {"LOADKIT_API_KEY", "hf_token", "AWS_SECRET", "PGPASSWORD", "AUTHORIZATION", "X_AUTH", "MY_KEYS"}
PLAIN = {"PATH", "PYTHONPATH", "KEYBOARD", "TOKENIZERS_PARALLELISM", "XAUTHORITY", "SSL_CERT_FILE"}


def test_variables_named_like_keys_are_left_out():
    """By their names, in either case; whatever else a process needs stays."""
    assert without_keys(dict.fromkeys(SECRETS | PLAIN, "x")) == dict.fromkeys(PLAIN, "x")


def test_the_working_folder_is_not_imported_from(tmp_path, monkeypatch):
    """A file json.py where the user stands is not our json; a folder on PYTHONPATH is still looked into."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "json.py").write_text("raise SystemExit('the wrong json')")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "mine.py").write_text("import json, os; print(json.dumps(sorted(os.environ)))")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.setenv("LAB_API_KEY", "k3y")
    done = subprocess.run(python_module("mine"), capture_output=True, env=without_keys(os.environ), timeout=60)
    assert done.stderr == b""
    assert "PYTHONPATH" in (names := json.loads(done.stdout))
    assert "LAB_API_KEY" not in names
    (tier,) = build_in_child(BuildSpec("bytes", {}, (256,), 8, "en", str(tmp_path)))
    assert tier.tier_tokens == 256
