"""endpoints.toml and the variables that stand in for it.

[endpoints.lab]
base_url = "http://10.0.0.5:8000"
model = "qwen2.5-7b"
key_env = "LAB_API_KEY"          # the name of a variable; a key itself is refused
# key_file = "~/.keys/lab"       # instead: a file of mode 600, relative to this one
window = "128K"
price_input = 0.27               # per million tokens
timeouts = { ttft = 900 }
"""

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loadkit.plan.endpoint import Endpoint, Timeouts
from loadkit.plan.errors import ConfigError
from loadkit.plan.tiers import parse_tier

FILE_NAME = "endpoints.toml"
KEY_FIELDS = ("api_key", "apikey", "api-key", "key", "token", "auth_token", "secret", "password", "authorization")


def find(named: str | None, cwd: Path, environ: Mapping[str, str]) -> Path | None:
    """The file in force: the one named, ./endpoints.toml, ~/.config/loadkit/endpoints.toml, else None."""
    if named is not None:
        path = cwd / named
        if not os.path.isfile(path):  # unlike the method it takes any text, however long
            raise ConfigError(f"{named}: there is no such file; name an existing one with --endpoints")
        return path
    places = [cwd / FILE_NAME]
    if environ.get("HOME"):
        places.append(Path(environ["HOME"]) / ".config" / "loadkit" / FILE_NAME)
    return next((path for path in places if path.is_file()), None)


def load(path: Path) -> dict[str, Endpoint]:
    """All endpoints of a file by name, in its order. ConfigError names file and line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    found = parse(text, str(path))
    return {name: replace(known, key_file=_beside(path, known.key_file)) for name, known in found.items()}


def _beside(path: Path, key_file: str | None) -> str | None:
    """The path of a key file: as written where it is absolute or in ~, else from the folder of the endpoints file."""
    return None if key_file is None else str(path.parent.absolute() / Path(key_file).expanduser())


def parse(text: str, source: str) -> dict[str, Endpoint]:
    """The endpoints in `text`; `source` is what errors call it."""
    try:
        document = tomllib.loads(text)
    except ValueError as error:  # a TOMLDecodeError, or a number with thousands of digits
        raise ConfigError(_toml_fault(error, text, source)) from None
    except RecursionError:
        raise ConfigError(f"{source}:1: is nested too deeply") from None
    for name in document:
        if name != "endpoints":
            raise ConfigError(f"{source}:{_line(text, None, name)}: {name!r} is unknown here; write [endpoints.NAME]")
    tables = document.get("endpoints", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigError(f"{source}:{_line(text, None, 'endpoints')}: write each endpoint as [endpoints.NAME]")
    return {name: _endpoint(name, table, text, source) for name, table in tables.items()}


def _toml_fault(error: ValueError, text: str, source: str) -> str:
    """One line with file and line of a syntax error."""
    message = str(error)
    place = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    line = place[1] if place else text.count("\n") + 1
    return f"{source}:{line}: {message[: place.start()] if place else message.removesuffix(' (at end of document)')}"


def _line(text: str, table: str | None, key: str | None) -> int:
    """Line of `key` in [endpoints.<table>], as near as a plain search finds it; 1 where it does not."""
    inside, header = table is None, 1
    for number, line in enumerate(text.splitlines(), 1):
        heading = re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line)
        if heading:
            parts = [part.strip(" \"'") for part in heading[1].split(".")]
            inside = table is None or parts[1:2] == [table]
            if inside and (len(parts) == 2 if table is not None else parts[0] == key):
                header = number
            if inside and table is not None and parts[2:3] == [key]:
                return number
        elif inside and key and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return number
    return header


def _endpoint(name: str, table: dict[str, Any], text: str, source: str) -> Endpoint:
    def refuse(key: str | None, message: str) -> ConfigError:
        return ConfigError(f"{source}:{_line(text, name, key)}: {message}")

    values: dict[str, Any] = {}
    for key, value in table.items():
        if key.lower() in KEY_FIELDS:
            raise refuse(
                key, f"endpoint {name}: a key is written into the file; move it to a variable, key_env names it"
            )
        if key not in _READ:
            near = difflib.get_close_matches(key, _READ, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_READ)}"
            raise refuse(key, f"endpoint {name}: unknown key {key!r}; {hint}")
        try:
            values[key] = _READ[key](value)
        except (ValueError, OverflowError, ConfigError) as error:
            raise refuse(key, f"endpoint {name}: {key}: {error}") from None
    if "base_url" not in values:
        raise refuse(None, f"endpoint {name}: base_url is missing")
    try:
        return Endpoint(name=name, **values)
    except ConfigError as error:
        raise refuse(None, str(error)) from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError('must be text in "quotes"')
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("must be a number")
    return float(value)


def _window(value: Any) -> int:
    return parse_tier(value if isinstance(value, str) else str(value))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("must be a table")
    return value


def _headers(value: Any) -> dict[str, str]:
    return {name: _text(text) for name, text in _object(value).items()}


def _timeouts(value: Any) -> Timeouts:
    known = ("connect", "ttft", "read", "total")
    for name in _object(value):
        if name not in known:
            raise ValueError(f"unknown timeout {name!r}; known are {', '.join(known)}")
    seconds = {name: _number(item) for name, item in value.items()}
    return Timeouts(**seconds, ttft_scales="ttft" not in seconds)


_READERS: dict[str, Callable[[Any], Any]] = {
    "window": _window,
    "price_input": _number,
    "price_output": _number,
    "timeouts": _timeouts,
    "headers": _headers,
    "extra_body": _object,
}
_READ = {f.name: _READERS.get(f.name, _text) for f in fields(Endpoint) if f.name not in ("name", "word_usage")}

# Prefix of the variables, protocol, and the key variables with their auth mode.
_FAMILIES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("LOADKIT", "openai-chat", {"LOADKIT_API_KEY": "bearer"}),
    ("OPENAI", "openai-chat", {"OPENAI_API_KEY": "bearer"}),
    ("ANTHROPIC", "anthropic", {"ANTHROPIC_API_KEY": "x-api-key", "ANTHROPIC_AUTH_TOKEN": "bearer"}),
)


def from_environ(environ: Mapping[str, str]) -> Endpoint | None:
    """The endpoint that LOADKIT_*, then OPENAI_*, then ANTHROPIC_* variables name by their _BASE_URL, else None."""
    for prefix, protocol, keys in _FAMILIES:
        base_url = environ.get(f"{prefix}_BASE_URL")
        if base_url:
            return _of_family(prefix, protocol, keys, base_url, environ)
    return None


def from_url(url: str, environ: Mapping[str, str]) -> Endpoint:
    """An endpoint for a bare URL. A key goes only where it belongs: a family of variables serves when its own
    _BASE_URL has the same origin, and LOADKIT_* also when it names no base URL."""
    for prefix, protocol, keys in _FAMILIES:
        base_url = environ.get(f"{prefix}_BASE_URL")
        if base_url and _origin(base_url) == _origin(url):
            return _of_family(prefix, protocol, keys, url, environ, name="url")
    if not environ.get("LOADKIT_BASE_URL"):
        return _of_family(*_FAMILIES[0], url, environ, name="url")
    return Endpoint(name="url", base_url=url)


def _origin(url: str | None) -> tuple[str, str] | None:
    if not url:
        return None
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return None
    return parts.scheme.lower(), parts.netloc.lower()


def _of_family(
    prefix: str, protocol: str, keys: dict[str, str], base_url: str, environ: Mapping[str, str], name: str = ""
) -> Endpoint:
    given = [variable for variable in keys if environ.get(variable)]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are both set: an endpoint has one auth mode, unset one of them")
    return Endpoint(
        name=name or prefix.lower(),
        base_url=base_url,
        model=environ.get(f"{prefix}_MODEL") or None,
        protocol=protocol,
        key_env=given[0] if given else None,
        auth=keys[given[0]] if given else "none",
    )
