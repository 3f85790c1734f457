"""Headers of GGUF files, written byte by byte, without the weights behind them."""

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    """Type and value: text, bool, uint32, float32, or an array of text, bool or int32."""
    match value:
        case str():
            return struct.pack("<I", 8) + _string(value)
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_string, value))
        case [bool(), *_]:
            return struct.pack("<IIQ", 9, 7, len(value)) + struct.pack(f"<{len(value)}?", *value)
        case _:
            return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


def gguf_bytes(metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]], kind: int = 1) -> bytes:
    """A version 3 header; every tensor has the type `kind` (1: F16, 2: Q4_0)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    pairs = b"".join(_string(name) + _value(value) for name, value in metadata.items())
    infos = b"".join(
        _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)
        for name, shape in tensors.items()
    )
    return head + pairs + infos


@pytest.fixture
def gguf_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a header as a file: gguf_file(metadata, tensors, kind=1) -> its path."""

    def write(metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]], kind: int = 1) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(gguf_bytes(metadata, tensors, kind))
        return path

    return write
