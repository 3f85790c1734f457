"""A model card from the header of a GGUF file: its metadata, and the names, shapes and types of its tensors.

Only the header is read, and long arrays (the vocabulary) are passed over, so a file of many gigabytes costs
milliseconds. Layout: the GGUF specification of the ggml repository, versions 2 and 3, little-endian.
"""

import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from loadkit.capacity.errors import CardError

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
LONGEST_ARRAY = 1024  # one number per layer is kept, a vocabulary is not
LONGEST_STRING = 1 << 24
MOST = 1 << 20  # metadata fields and tensors


@dataclass(frozen=True, slots=True)
class Tensor:
    """Shape as the file has it, the fastest axis first."""

    shape: tuple[int, ...]
    kind: int

    @property
    def elements(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in the file. CardError for a type this gguf package does not know."""
        try:
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType(self.kind)]
        except (KeyError, ValueError):
            raise CardError(f"GGUF: tensor type {self.kind} is not known") from None
        return self.elements // block * size


@dataclass(slots=True)
class Header:
    """Metadata by name (arrays above 1024 entries are None) and tensors by name."""

    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)


def read_header(path: Path) -> Header:
    """The header of a GGUF file. CardError when it is none or cut short."""
    try:
        with path.open("rb") as file:
            return _header(file)
    except OSError as error:
        raise CardError(f"{path}: {error.strerror or error}") from None
    except (struct.error, UnicodeDecodeError, OverflowError):
        raise CardError(f"{path.name}: the GGUF header is damaged or cut short") from None


def _header(file: BinaryIO) -> Header:
    if file.read(4) != b"GGUF":
        raise CardError("not a GGUF file")
    version = _scalar(file, "I")
    if version not in (2, 3):
        raise CardError(f"GGUF version {version} is not supported, only 2 and 3")
    tensors, pairs = _scalar(file, "Q"), _scalar(file, "Q")
    if tensors > MOST or pairs > MOST:
        raise CardError("the GGUF header is damaged: it announces too many entries")
    header = Header()
    for _ in range(pairs):
        name = _string(file)
        header.metadata[name] = _value(file, _scalar(file, "I"))
    for _ in range(tensors):
        name = _string(file)
        axes = _scalar(file, "I")
        if axes > 8:
            raise CardError("the GGUF header is damaged: a tensor of more than 8 axes")
        shape = struct.unpack(f"<{axes}Q", file.read(8 * axes))
        header.tensors[name] = Tensor(shape, _scalar(file, "I"))
        file.seek(8, 1)  # where its data starts
    return header


def _scalar(file: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", file.read(struct.calcsize(code)))[0]


def _string(file: BinaryIO) -> str:
    length = _scalar(file, "Q")
    if length > LONGEST_STRING:
        raise CardError("the GGUF header is damaged: a string of more than 16 MiB")
    text = file.read(length)
    if len(text) < length:
        raise struct.error
    return text.decode("utf-8", "replace")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == STRING:
        return _string(file)
    if kind == ARRAY:
        return _array(file)
    if kind not in SCALARS:
        raise CardError(f"the GGUF header is damaged: value type {kind}")
    return _scalar(file, SCALARS[kind])


def _array(file: BinaryIO) -> list[Any] | None:
    """A short array of numbers; None for a long one, and for text, which says nothing about size."""
    kind, length = _scalar(file, "I"), _scalar(file, "Q")
    if kind == STRING:
        for _ in range(length):
            size = _scalar(file, "Q")
            if size > LONGEST_STRING:
                raise CardError("the GGUF header is damaged: a string of more than 16 MiB")
            file.seek(size, 1)
        return None
    if kind not in SCALARS:
        raise CardError(f"the GGUF header is damaged: array of type {kind}")
    size = struct.calcsize(SCALARS[kind])
    if length > LONGEST_ARRAY:
        file.seek(length * size, 1)
        return None
    return list(struct.unpack(f"<{length}{SCALARS[kind]}", file.read(length * size)))
