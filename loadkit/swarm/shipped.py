"""Prompt texts on their way to the workers: files that processes of the master's machine map, or bytes for the others.

A worker takes a text only when its hash is the one the master announced, so all workers send what the manifest says.
"""

import json
import tempfile
import zlib
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event

from loadkit.plan.errors import ConfigError
from loadkit.prompt import store
from loadkit.prompt.prompt import Prompt
from loadkit.prompt.public import PublicTier
from loadkit.prompt.tier import TierText

ARRIVAL_S = 120.0
FOLDER = ".prompts"  # of the run folder, while the run goes on

Text = TierText | PublicTier
Ref = dict[str, str]
"""Where the master has a text, and its hash: {path, sha256}."""


class Shelf:
    """The texts of a run as the master has them on disk. Removed with `clear`."""

    def __init__(self, run_folder: Path, texts: Mapping[int, Text]) -> None:
        """`texts` by length; it may grow."""
        self._folder = run_folder / FOLDER
        self._texts = texts
        self._refs: dict[int, Ref] = {}

    def refs(self) -> dict[str, Ref]:
        """Length -> where it is, of every text there is now."""
        for length, text in self._texts.items():
            if length not in self._refs:
                self._refs[length] = self._put(length, text)
        return {str(length): ref for length, ref in self._refs.items()}

    def packed(self, length: int) -> dict[str, bytes]:
        """The files of a text as bytes for a worker elsewhere: {about, body}."""
        path = Path(self._refs[length]["path"])
        return {"about": path.read_bytes(), "body": zlib.compress(_body(path), 1)}

    def clear(self) -> None:
        """Remove the files; who has mapped one keeps it."""
        for path in self._folder.glob("*") if self._folder.is_dir() else ():
            path.unlink()
        if self._folder.is_dir():
            self._folder.rmdir()

    def _put(self, length: int, text: Text) -> Ref:
        self._folder.mkdir(exist_ok=True)
        if isinstance(text, TierText):
            path = store.save(text, self._folder)
        else:
            path = self._folder / f"public-{length}.json"
            path.write_text(json.dumps(_public(text)))
        return {"path": str(path), "sha256": _hash(path)}


def load(ref: Ref) -> Text | None:
    """The text, mapped, where its files are on this machine and are the ones meant; None otherwise."""
    path = Path(ref["path"])
    try:
        return _read(path) if _hash(path) == ref["sha256"] else None
    except OSError:
        return None


def unpack(ref: Ref, packed: Mapping[str, bytes]) -> Text:
    """The text from the bytes that the master sent. ConfigError where they are not the ones it announced."""
    # A mapping outlives the name of its file, so nothing is left behind.
    with tempfile.TemporaryDirectory(prefix="loadkit-prompts-") as folder:
        path = Path(folder) / "text.json"
        path.write_bytes(packed["about"])
        path.with_suffix(".body").write_bytes(zlib.decompress(packed["body"]))
        if _hash(path) != ref["sha256"]:
            raise ConfigError("the prompts that arrived are not those of the master: their hashes differ")
        return _read(path)


class Fetch:
    """Gets the texts of a worker: mapped where the master's files are on this machine, else asked for."""

    def __init__(self, ask: Callable[[int], None]) -> None:
        """`ask(length)` asks the master for the bytes of a text; they are given to `arrived`."""
        self._ask = ask
        self._packed: dict[int, Mapping[str, bytes]] = {}
        self._came = Event()

    def __call__(self, length: int, ref: Ref) -> Text:
        """The text. ConfigError where it does not come, or is not the one that was announced."""
        if (text := load(ref)) is not None:
            return text
        with gevent.Timeout(ARRIVAL_S, ConfigError("the master did not send its prompts")):
            while length not in self._packed:
                self._came.clear()
                self._ask(length)
                self._came.wait(ARRIVAL_S / 4)
        return unpack(ref, self._packed.pop(length))

    def arrived(self, length: int, packed: Mapping[str, bytes]) -> None:
        """What `Shelf.packed` gave, at the other end."""
        self._packed[length] = packed
        self._came.set()


def _body(path: Path) -> bytes:
    body = path.with_suffix(".body")
    return body.read_bytes() if body.exists() else b""


def _hash(path: Path) -> str:
    return sha256(path.read_bytes() + b"\0" + _body(path)).hexdigest()


def _read(path: Path) -> Text:
    known = json.loads(path.read_bytes())
    return _from_public(known) if "public" in known else store.load(path)


def _public(tier: PublicTier) -> dict[str, Any]:
    prompts = [
        [b"".join(p.content).decode(), p.tokens, p.exact, p.tokens_source, p.chars, p.sha256] for p in tier.prompts
    ]
    return {"public": prompts, "tier_tokens": tier.tier_tokens}


def _from_public(known: dict[str, Any]) -> PublicTier:
    prompts = tuple(Prompt((text.encode(),), *rest) for text, *rest in known["public"])
    return PublicTier(known["tier_tokens"], prompts)
