"""page.js with Vega, Vega-Lite and Vega-Embed around it, from the package that ships them."""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import vl_convert


def bundle(source: str, environ: Mapping[str, str]) -> str:
    """The script of the page. Joining it takes a second or two of CPU, so it is kept among the user's cache files.

    A cache that cannot be read or written costs that time and nothing else.
    """
    kept = _cache(environ) / f"report-{_key(source)}.js"
    with suppress(OSError, UnicodeDecodeError):
        return kept.read_text("utf-8")
    script = vl_convert.javascript_bundle(source)
    part = kept.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(script, "utf-8")
        part.replace(kept)
    return script


def _key(source: str) -> str:
    """Another page.js or another version of the libraries is another file."""
    return hashlib.sha256(f"{version('vl-convert-python')}\n{source}".encode()).hexdigest()[:16]


def _cache(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".cache")
    return Path(base) / "loadkit"
