"""What was given on a command line, read option by option; every bad value is a one-line ConfigError."""

import json
from argparse import Namespace
from collections.abc import Callable
from typing import Any, TypeVar

from loadkit.plan.endpoint import OWN_BODY_FIELDS
from loadkit.plan.errors import ConfigError
from loadkit.plan.flags import PREFIX
from loadkit.plan.keys import check_header, looks_like_key

_Number = TypeVar("_Number", int, float)


def filled(name: str, value: str) -> str:
    """The value without blanks around it. ConfigError where nothing is left, or where no file can have such a name."""
    if not value.strip():
        raise ConfigError(f"{name} is empty: give it a value or leave it out")
    if "\0" in value:
        raise ConfigError(f"{name} has a null byte in it: write it again")
    return value.strip()


class Given:
    """The namespace by option name: text, None where it was not given. An empty value is an error: most come from a
    shell variable that is not set, and the default is not what was meant."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def text(self, name: str) -> str | None:
        value = getattr(self._namespace, PREFIX + name.replace("-", "_"), None)
        return None if value is None else filled(f"--{name}", str(value))

    def flag(self, name: str) -> bool:
        return bool(getattr(self._namespace, PREFIX + name.replace("-", "_"), False))

    def number(self, name: str, kind: Callable[[str], _Number], low: float, high: float) -> _Number | None:
        """A number in [low, high], or None where it was not given."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            whole = "a whole number" if kind is int else "a number"
            raise ConfigError(f"--{name} {text[:40]!r}: must be {whole} from {low:g} to {high:g}")
        return value

    def url(self) -> str | None:
        """The URL, wherever it was given; Locust's own --host serves too."""
        given = [getattr(self._namespace, name, None) for name in (f"{PREFIX}url_argument", f"{PREFIX}url", "host")]
        urls = list(dict.fromkeys(filled("URL", str(url)) for url in given if url is not None))
        if len(urls) > 1:
            raise ConfigError("two different URLs are given: keep one")
        return urls[0] if urls else None

    def headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for item in getattr(self._namespace, PREFIX + "header", None) or []:
            name, equals, value = str(item).partition("=")
            try:
                check_header(name.strip() if equals else "", value.strip())
            except ValueError as error:
                raise ConfigError(f"--header: {error}") from None
            found[name.strip()] = value.strip()
        return found

    def extra_body(self) -> dict[str, Any]:
        text = self.text("extra-body")
        if text is None:
            return {}
        try:
            body = json.loads(text)
            json.dumps(body, allow_nan=False)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise ConfigError('--extra-body: must be a JSON object, such as {"top_k": 1}')
        for name in body:
            if name in OWN_BODY_FIELDS:
                raise ConfigError(f"--extra-body: may not set {name!r}; use {OWN_BODY_FIELDS[name]}")
        if looks_like_key(body):
            raise ConfigError("--extra-body: holds a literal key; a key belongs in a variable that key_env names")
        return body
