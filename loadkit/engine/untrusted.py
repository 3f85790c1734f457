"""Values out of files that somebody else wrote: each is checked before use, and every complaint is one short line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loadkit.engine.errors import EngineError

MAX_TEXT_FILE = 128 * 2**20  # bytes of a config, an index or a tokenizer; the largest tokenizers have 40 MB


def shown(value: object) -> str:
    """A value for an error line: printable, on one line, at most 80 characters."""
    text = value if isinstance(value, str) else str(value)
    return "".join(char if char.isprintable() else "?" for char in text[:80])


def integer(where: str, name: str, value: Any) -> int:
    """`value` if it is an integer of at most 63 bits; EngineError that names it otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
        raise EngineError(f"{where}: {name} must be an integer, it is {shown(value)!r}")
    return value


def number(where: str, name: str, value: Any) -> float:
    """`value` as a float if it is a finite number; EngineError that names it otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
        raise EngineError(f"{where}: {name} must be a number, it is {shown(value)!r}")
    return float(value)


def read_text(path: Path) -> str:
    """The text of a file of at most 128 MiB; EngineError when it cannot be read."""
    try:
        if path.stat().st_size > MAX_TEXT_FILE:
            raise EngineError(f"{path}: larger than {MAX_TEXT_FILE} bytes")
        return path.read_text("utf-8")
    except OSError as error:
        raise EngineError(f"{path}: {error.strerror or error}") from None
    except ValueError:
        raise EngineError(f"{path} is not UTF-8 text") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; EngineError when it is missing or something else."""
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError):
        raise EngineError(f"{path} is not JSON") from None
    if not isinstance(value, dict):
        raise EngineError(f"{path} is not a JSON object")
    return value
