"""A Hugging Face folder: config.json and safetensors in one file or several, memory-mapped.

The safetensors format: 8 bytes little-endian header length, a JSON header of {name: {dtype, shape, data_offsets}}, then
the data without holes. The header comes from someone else, so every size and offset in it is checked before use.
"""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadkit.engine.config import ModelConfig, from_hf
from loadkit.engine.errors import EngineError
from loadkit.engine.untrusted import read_json, shown
from loadkit.engine.weights import Array, Weights, pack

MAX_HEADER = 16 * 2**20  # bytes; a thousand tensors take a tenth of one
MAX_AXES = 8
DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


@dataclass(frozen=True, slots=True)
class Entry:
    dtype: str
    shape: tuple[int, ...]
    begin: int  # bytes from the start of the file
    end: int


class SafetensorsFile:
    """One memory-mapped safetensors file. Raises EngineError when it is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise EngineError(f"{path.name}: cannot be read: {error}") from None
        self.entries = self._header()

    def read(self, name: str) -> Array:
        """The tensor `name` as float32."""
        entry = self.entries[name]
        kind = DTYPES.get(entry.dtype)
        if kind is None:
            known = ", ".join(DTYPES)
            raise EngineError(f"{self.path.name}: {shown(name)} is {shown(entry.dtype)}, only {known} are supported")
        count = (entry.end - entry.begin) // kind.itemsize
        raw: NDArray[Any] = np.frombuffer(self._data, kind, count, entry.begin)
        if entry.dtype == "BF16":  # the upper half of a float32
            wide = raw.astype(np.uint32)
            wide <<= 16
            values = wide.view(np.float32)
        else:
            values = raw.astype(np.float32)
        forget(self._data, entry.begin, entry.end)
        return values.reshape(entry.shape)

    def _header(self) -> dict[str, Entry]:
        size = len(self._data)
        length = int.from_bytes(self._data[:8], "little")
        if size < 8 or length > min(MAX_HEADER, size - 8):
            raise self._damaged(f"a header of {length} bytes in a file of {size}")
        try:
            raw = json.loads(self._data[8 : 8 + length])
        except (ValueError, RecursionError):
            raise self._damaged("the header is not JSON") from None
        if not isinstance(raw, dict):
            raise self._damaged("the header is not a JSON object")
        raw.pop("__metadata__", None)
        entries = {name: self._entry(name, item, 8 + length) for name, item in raw.items()}
        expected = 8 + length
        for name, entry in sorted(entries.items(), key=lambda pair: pair[1].begin):
            if entry.begin != expected:
                raise self._damaged(f"{shown(name)} overlaps another tensor or leaves a hole")
            expected = entry.end
        if expected != size:
            raise self._damaged(f"the tensors end at byte {expected}, the file at {size}")
        return entries

    def _entry(self, name: str, item: Any, base: int) -> Entry:
        try:
            dtype, shape, (begin, end) = item["dtype"], tuple(item["shape"]), item["data_offsets"]
            numbers = len(shape) <= MAX_AXES and all(type(n) is int and 0 <= n < 2**48 for n in (*shape, begin, end))
        except (TypeError, KeyError, ValueError):
            numbers = False
        if not numbers or not isinstance(dtype, str):
            raise self._damaged(f"{shown(name)} has no proper dtype, shape and data_offsets")
        count = 1
        for extent in shape:
            count *= extent
        if dtype in DTYPES and end - begin != count * DTYPES[dtype].itemsize:
            raise self._damaged(f"{shown(name)} has {end - begin} bytes, its shape asks for another number")
        return Entry(dtype, shape, base + begin, base + end)

    def _damaged(self, why: str) -> EngineError:
        return EngineError(f"{self.path.name}: damaged safetensors file: {why}")


def forget(data: mmap.mmap, begin: int, end: int) -> None:
    """Let the system drop the mapped pages between two bytes of the file: their values have been copied."""
    first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
    if end - first >= mmap.PAGESIZE:
        data.madvise(mmap.MADV_DONTNEED, first, end - first)


def load(folder: Path, threads: int = 1) -> tuple[ModelConfig, Weights]:
    """Config and weights of a Hugging Face folder, laid out for `threads` threads."""
    config = from_hf(read_json(folder / "config.json"))
    files = [SafetensorsFile(path) for path in _shards(folder)]
    where = {name: file for file in files for name in file.entries}

    def tensor(name: str) -> Array:
        if name not in where:
            raise EngineError(f"{folder.name}: no tensor {name} in its safetensors files")
        return where[name].read(name)

    return config, pack(config, tensor, rope_pairs=False, threads=threads)


def _shards(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return [folder / "model.safetensors"]
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise EngineError(f"{index} has no weight_map of tensor names to file names")
    # Only the file name is taken: an index must not lead out of its folder.
    return [folder / name for name in sorted({Path(name).name for name in names.values()})]
