"""The header of a GGUF file: metadata, and where each tensor lies (the ggml repository's specification, 2 and 3).

The file comes from someone else: every count, length, type and offset is checked against the bytes that are there
before anything of its size is made, so a header that lies costs no more memory than the file is long.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from loadkit.engine.untrusted import shown

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
MAX_HEADER = 64 * 2**20  # bytes; a vocabulary of 256,000 with its merges takes 12 MB
MAX_NAME = 64 * 2**10  # bytes of a key or a tensor's name
MAX_ENTRIES = 2**16  # metadata fields, and tensors
MAX_AXES = 4


class Damaged(Exception):
    """The header cannot be what its file holds; the message says what is wrong, in one line."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor's place: `rows` of `row_bytes` bytes from byte `begin` of the file; `columns` values in a row."""

    kind: GGMLQuantizationType
    shape: tuple[int, ...]  # slowest axis first, as NumPy has it
    begin: int
    row_bytes: int

    @property
    def rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def end(self) -> int:
        return self.begin + self.rows * self.row_bytes


def read_header(data: mmap.mmap | bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Metadata by key (strings, numbers, lists of strings, arrays of numbers) and tensors by name of a mapped file.

    Raises Damaged.
    """
    view = memoryview(data)
    cursor = _Cursor(view[:MAX_HEADER])
    if bytes(view[:4]) != b"GGUF":
        raise Damaged("it does not begin with GGUF")
    cursor.at = 4
    version = cursor.scalar("I")
    if version not in (2, 3):
        raise Damaged(f"its version is {version}, only 2 and 3 are known")
    tensors, fields = cursor.scalar("Q"), cursor.scalar("Q")
    if max(tensors, fields) > MAX_ENTRIES:
        raise Damaged(f"it announces {tensors} tensors and {fields} metadata fields")
    metadata: dict[str, Any] = {}
    for _ in range(fields):
        name = cursor.string(MAX_NAME)
        if name in metadata:
            raise Damaged(f"the key {shown(name)} is there twice")
        metadata[name] = cursor.value(cursor.scalar("I"))
    infos = [cursor.tensor() for _ in range(tensors)]
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise Damaged(f"its alignment {shown(alignment)} is no power of two")
    base = -(-cursor.at // alignment) * alignment
    found: dict[str, Tensor] = {}
    for name, shape, kind, offset in infos:
        if name in found:
            raise Damaged(f"the tensor {shown(name)} is there twice")
        if offset % alignment:
            raise Damaged(f"the tensor {shown(name)} does not begin at a multiple of {alignment} bytes")
        found[name] = _place(name, shape, kind, base + offset)
    _check_places(found, len(view))
    return metadata, found


def _place(name: str, shape: tuple[int, ...], kind: int, begin: int) -> Tensor:
    try:
        known = GGMLQuantizationType(kind)
        block, size = GGML_QUANT_SIZES[known]
    except (ValueError, KeyError):
        raise Damaged(f"the tensor {shown(name)} has the unknown type {kind}") from None
    if shape[-1] % block:
        raise Damaged(f"rows of {shape[-1]} values of the tensor {shown(name)} are no whole blocks of {block}")
    return Tensor(known, shape, begin, shape[-1] // block * size)


def _check_places(tensors: dict[str, Tensor], size: int) -> None:
    """Raise when a tensor ends after the file, or begins before another has ended."""
    before, free = "", 0
    for name, tensor in sorted(tensors.items(), key=lambda pair: pair[1].begin):
        if tensor.begin < free:
            raise Damaged(f"the tensors {shown(before)} and {shown(name)} overlap")
        if tensor.end > size:
            raise Damaged(f"the tensor {shown(name)} ends at byte {tensor.end}, the file at {size}")
        before, free = name, tensor.end


@dataclass(slots=True)
class _Cursor:
    """Reads one value after the other from the front of the file."""

    view: memoryview
    at: int = 0

    def take(self, count: int) -> memoryview:
        """The next `count` bytes."""
        if count > len(self.view) - self.at:
            raise Damaged(f"its header is cut short or longer than {MAX_HEADER} bytes")
        self.at += count
        return self.view[self.at - count : self.at]

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def string(self, longest: int = MAX_HEADER) -> str:
        length = self.scalar("Q")
        if length > longest:
            raise Damaged(f"a text of {length} bytes")
        return str(self.take(length), "utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            return self.array()
        if kind not in SCALARS:
            raise Damaged(f"a value of the unknown type {kind}")
        return self.scalar(SCALARS[kind])

    def array(self) -> Any:
        """A list of strings or a NumPy array of numbers; arrays of arrays are not known to any model."""
        kind, length = self.scalar("I"), self.scalar("Q")
        if kind == STRING:
            if length > (len(self.view) - self.at) // 8:  # each has at least its own length before it
                raise Damaged(f"an array of {length} texts")
            return [self.string() for _ in range(length)]
        if kind not in SCALARS:
            raise Damaged(f"an array of the type {kind}")
        dtype = np.dtype("<" + SCALARS[kind])
        return np.frombuffer(self.take(length * dtype.itemsize), dtype)

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape (slowest axis first), type number and offset of the next tensor."""
        name = self.string(MAX_NAME)
        axes = self.scalar("I")
        if not 1 <= axes <= MAX_AXES:
            raise Damaged(f"the tensor {shown(name)} has {axes} axes")
        shape = struct.unpack(f"<{axes}Q", self.take(8 * axes))[::-1]
        if not all(1 <= extent < 2**40 for extent in shape):
            raise Damaged(f"the tensor {shown(name)} has a side of {max(shape)}")
        return name, shape, self.scalar("I"), self.scalar("Q")
