"""Other tools' configuration as text for endpoints.toml. Keys are moved to variables; no value is ever written."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from loadkit.plan import address, endpoints_file
from loadkit.plan.errors import ConfigError
from loadkit.plan.keys import VARIABLE, looks_like_key

_ACCEPTED = (
    "a Codex config.toml, a Claude settings.json, a JSON file with base_url, api_key and model "
    "(also baseUrl and apiKey, or OPENAI_BASE_URL and OPENAI_API_KEY), or a TOML file with [provider]"
)
_BASE_URL = ("base_url", "baseUrl", "baseURL", "OPENAI_BASE_URL")
_API_KEY = ("api_key", "apiKey", "OPENAI_API_KEY")
_MODEL = ("model", "OPENAI_MODEL")


@dataclass(frozen=True, slots=True)
class Imported:
    """`text` is ready to be appended to endpoints.toml; `moved` are (variable, field it replaces) for keys that were
    written in the file and have to be exported now; `notes` say what had no place."""

    text: str
    moved: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Found:
    """One endpoint as found: fields of endpoints.toml, and the literal key with the field it stood in."""

    name: str
    fields: dict[str, Any]
    literal: str | None = None
    literal_field: str = ""
    variable: str | None = None


def convert(text: str, source: str, name: str | None = None) -> Imported:
    """Endpoint text from the content of another tool's file; `source` is what errors call it, `name` names the
    endpoint. The kind of file is seen from its content. ConfigError where it is none of the known kinds."""
    document = _document(text, source)
    notes: list[str] = []
    found = _claude(document) or _codex(document, notes) or _provider(document) or _plain(document)
    if not found:
        raise ConfigError(f"{source}: is none of the files that can be imported: {_ACCEPTED}")
    if name is not None:
        if len(found) > 1:
            raise ConfigError(f"{source}: has {len(found)} endpoints with names of their own: leave --name out")
        found[0].name = name
    moved: list[tuple[str, str]] = []
    blocks = [_block(item, source, moved, notes) for item in _named_apart(found)]
    written = "\n".join(blocks)
    secrets = [item.literal for item in found if item.literal and len(item.literal) >= 8]
    if any(secret in written for secret in secrets):
        raise ConfigError(f"{source}: its key also stands in another field: take it out there first")
    endpoints_file.parse(written, source)
    return Imported(written, tuple(moved), tuple(notes))


def _document(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError):
            raise ConfigError(f"{source}: is neither JSON nor TOML; importable are {_ACCEPTED}") from None


def _first(table: Mapping[str, Any], names: Iterable[str]) -> tuple[str, str | None]:
    """Name and text of the first of the fields that is there with some text."""
    for name in names:
        value = table.get(name)
        if isinstance(value, str) and value.strip():
            return name, value
    return "", None


def _claude(document: Any) -> list[_Found]:
    env = document.get("env") if isinstance(document, dict) else None
    if not isinstance(env, dict) or not isinstance(env.get("ANTHROPIC_BASE_URL"), str):
        return []
    keys = [key for key in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY") if env.get(key)]
    if len(keys) > 1:
        raise ConfigError(f"{' and '.join(keys)} are both in it: an endpoint has one auth mode, take one out")
    fields = {"base_url": env["ANTHROPIC_BASE_URL"], "model": env.get("ANTHROPIC_MODEL"), "protocol": "anthropic"}
    found = _Found("claude", fields)
    if keys:
        found.literal, found.literal_field, found.variable = str(env[keys[0]]), f"env.{keys[0]}", keys[0]
        fields["auth"] = "bearer" if keys[0] == "ANTHROPIC_AUTH_TOKEN" else "x-api-key"
    return [found]


def _codex(document: Any, notes: list[str]) -> list[_Found]:
    providers = document.get("model_providers") if isinstance(document, dict) else None
    if not isinstance(providers, dict):
        return []
    result = []
    for name, provider in providers.items():
        if not isinstance(provider, dict) or not isinstance(provider.get("base_url"), str):
            notes.append(f"provider {name} has no base_url and was left out")
            continue
        chosen = document.get("model_provider") in (name, None)
        fields = {"base_url": provider["base_url"], "model": document.get("model") if chosen else None}
        if provider.get("name") not in (None, name):
            fields["note"] = provider["name"]
        if provider.get("wire_api") not in (None, "chat"):
            notes.append(f"provider {name} speaks a wire_api other than chat; openai-chat was written")
        field, literal = _first(provider, ("experimental_bearer_token", *_API_KEY))
        result.append(_Found(name, fields, literal, f"model_providers.{name}.{field}", provider.get("env_key")))
    return result


def _provider(document: Any) -> list[_Found]:
    table = document.get("provider") if isinstance(document, dict) else None
    if not isinstance(table, dict) or not _first(table, _BASE_URL)[1]:
        return []
    return [_flat(table, "provider", "provider.")]


def _plain(document: Any) -> list[_Found]:
    items = document if isinstance(document, list) else [document]
    return [
        _flat(item, "imported", "")
        for item in items
        if isinstance(item, dict) and _first(item, _BASE_URL)[1] is not None
    ]


def _flat(table: Mapping[str, Any], name: str, prefix: str) -> _Found:
    fields: dict[str, Any] = {"base_url": _first(table, _BASE_URL)[1], "model": _first(table, _MODEL)[1]}
    if isinstance(table.get("note"), str):
        fields["note"] = table["note"]
    timeout = table.get("timeout")
    if isinstance(timeout, (int, float)) and not isinstance(timeout, bool) and timeout > 0:
        fields["timeouts"] = {"read": float(timeout)}
    given = table.get("name")
    field, literal = _first(table, _API_KEY)
    variable = field if VARIABLE.fullmatch(field) else None
    return _Found(given if isinstance(given, str) and given else name, fields, literal, prefix + field, variable)


def _named_apart(found: list[_Found]) -> list[_Found]:
    """Names fit for a table heading, each once."""
    seen: set[str] = set()
    for item in found:
        base = re.sub(r"[^A-Za-z0-9_-]+", "-", item.name).strip("-").lower()[:40]
        base = base if base and not looks_like_key(item.name) else "imported"
        item.name = next(n for n in (base, *(f"{base}-{i}" for i in range(2, len(found) + 2))) if n not in seen)
        seen.add(item.name)
    return found


def _block(item: _Found, source: str, moved: list[tuple[str, str]], notes: list[str]) -> str:
    """The table of one endpoint."""
    clean, dropped = address.clean_base_url(str(item.fields["base_url"]))
    notes += [f"{item.name}: {warning}" for warning in dropped]
    lines = [f"[endpoints.{item.name}]", f"base_url = {_quoted(clean)}"]
    for field, value in item.fields.items():
        if field == "timeouts":
            lines.append(f"timeouts = {{ read = {value['read']!r} }}")
        elif field != "base_url" and isinstance(value, str):
            if looks_like_key(value):
                raise ConfigError(f"{source}: a literal key stands in {field!r}: take it out there first")
            lines.append(f"{field} = {_quoted(value)}")
    variable = item.variable
    if item.literal or variable:
        if not isinstance(variable, str) or not VARIABLE.fullmatch(variable) or looks_like_key(variable):
            if variable:
                notes.append(f"{item.name}: its env_key is not a variable's name in capitals; another was written")
            variable = re.sub(r"[^A-Z0-9]+", "_", item.name.upper()) + "_API_KEY"
            variable = variable if VARIABLE.fullmatch(variable) else f"_{variable}"
        lines.append(f"key_env = {_quoted(variable)}")
    if item.literal and variable:
        moved.append((variable, item.literal_field))
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A TOML basic string: JSON's escapes, and DEL, which TOML does not allow bare."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
