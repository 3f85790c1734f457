"""Natural texts that prompts are cut from. They are our own writing, so a prompt never carries anybody's data."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

FILLERS = ("en", "zh")


@dataclass(frozen=True, slots=True)
class Filler:
    """A text with its name and the SHA-256 (hex) of its UTF-8 bytes; both go into the manifest."""

    id: str
    text: str
    sha256: str

    @classmethod
    def of(cls, id: str, text: str) -> "Filler":
        """A filler from any text; the hash is taken here."""
        return cls(id, text, hashlib.sha256(text.encode()).hexdigest())


def filler(id: str) -> Filler:
    """The filler of the given name (`FILLERS`); ValueError for any other name."""
    if id not in FILLERS:
        raise ValueError(f"unknown filler {id!r}: choose one of {', '.join(FILLERS)}")
    return Filler.of(id, (files("loadkit.prompt") / "fillers" / f"{id}.txt").read_text(encoding="utf-8").strip())
