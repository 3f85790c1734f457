"""What computes: the processor, the library that multiplies matrices, and the kernel it took for this processor."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import numpy as np


def facts() -> dict[str, Any]:
    """What times depend on besides the model, for whoever records them."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "numpy": np.__version__,
        "blas": library(),
        "blas_kernel": kernel(),
    }


def processor() -> str | None:
    """The processor's name where the system tells it (Linux), else None."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            found = re.search(r"^model name\s*:\s*(.+)$", file.read(), re.MULTILINE)
    except OSError:
        return None
    return found.group(1).strip() if found else None


def library() -> str:
    """Name and version of the library behind matrix products."""
    found = np.show_config(mode="dicts") or {}
    blas = found.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


def kernel() -> str | None:
    """OpenBLAS's kernel, such as "SkylakeX" or "Haswell"; None for another library or one that does not say.

    OpenBLAS tells it only while it is loaded, so a short-lived process loads it once more.
    """
    try:
        child = subprocess.run(
            [sys.executable, "-c", "import numpy"],
            env={**os.environ, "OPENBLAS_VERBOSE": "2"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"^Core: (\S+)", child.stderr + child.stdout, re.MULTILINE)
    return found.group(1) if found else None
