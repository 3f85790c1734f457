"""Keys: read from a variable, checked before anything is sent, and never shown, not even when they are wrong."""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadkit.plan.errors import ConfigError
from loadkit.plan.shown import KEY_SHAPE

AUTH_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "proxy-authorization", "cookie"})
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*", re.ASCII)
_LONGEST_KEY = 16_384
# A variable of one tool with the protocol of another is how a right key ends as a 401.
_FOREIGN_PREFIX = {
    "openai-chat": "ANTHROPIC_",
    "openai-completions": "ANTHROPIC_",
    "ollama": "ANTHROPIC_",
    "anthropic": "OPENAI_",
}


def looks_like_key(value: Any) -> bool:
    """Whether a string, or any string inside a list or dict, has the shape of a literal key."""
    if isinstance(value, str):
        return KEY_SHAPE.search(value) is not None
    if isinstance(value, Mapping):
        return any(looks_like_key(item) for pair in value.items() for item in pair)
    if isinstance(value, (list, tuple)):
        return any(looks_like_key(item) for item in value)
    return False


def read_key(variable: str, protocol: str, environ: Mapping[str, str]) -> str:
    """The key in `variable`, fit for a header. ConfigError names the variable and the fault, never the value."""
    foreign = _FOREIGN_PREFIX.get(protocol)
    if foreign and variable.startswith(foreign):
        raise ConfigError(
            f"{variable} belongs to another style than protocol {protocol} (endpoint_style_mix): "
            "export this endpoint's key under a name of its own, or change `protocol`"
        )
    if variable not in environ:
        raise ConfigError(f"the key variable {variable} is not set: export it in the shell that starts loadkit")
    fault = _fault(environ[variable])
    if fault:
        raise ConfigError(f"the key in {variable} {fault}")
    return environ[variable]


def read_key_file(path: str) -> str:
    """The key in a file that only its owner can read (mode 600 or less), without the newline at its end.

    A file of root's may be read by a group too, where this process is not root's: so a Secret is mounted in Kubernetes.

    ConfigError names the file and the fault, never the content.
    """
    try:
        with Path(path).open("rb") as file:
            found = os.fstat(file.fileno())
            mode, of_root = found.st_mode, found.st_uid == 0 != os.geteuid()
            if not stat.S_ISREG(mode):
                raise ConfigError(f"key_file {path} is not a file")
            if stat.S_IMODE(mode) & (0o137 if of_root else 0o177):
                raise ConfigError(f"key_file {path} has mode {stat.S_IMODE(mode):03o}: make it 600 (chmod 600 {path})")
            value = file.read(_LONGEST_KEY).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"key_file {path} cannot be read: {error.strerror}") from None
    except ValueError:  # a null byte
        raise ConfigError(f"key_file {path} is no path: write it again") from None
    value = value.removesuffix("\n").removesuffix("\r")
    fault = _fault(value)
    if fault:
        raise ConfigError(f"the key in key_file {path} {fault}")
    return value


def _fault(value: str) -> str | None:
    """What is wrong with a key, without quoting it."""
    if not value.strip():
        return "is empty: export a key in it"
    if "\n" in value or "\r" in value:
        return "has a line break in it: export it without (a file read with $(cat …) has none at its end)"
    if value != value.strip():
        return "has blanks around it: export it without"
    if value.lower().startswith(("bearer ", "basic ", "authorization:", "x-api-key:")):
        return "begins with the header's own words: export the bare key, loadkit adds them"
    if value[0] in "\"'" or value[-1] in "\"'":
        return "has quotes around it: export it without"
    if value.startswith("$"):
        return "is the name of another variable, not its value: export the value"
    if not value.isascii() or not value.isprintable() or " " in value:
        return "has characters that no header can carry: copy it again"
    return None


def check_header(name: str, value: str) -> None:
    """Refuse a header that would carry a key, or that loadkit has to set itself. ValueError says which."""
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise ValueError("a header is NAME=VALUE with a name of letters, digits and dashes")
    if name.lower() in AUTH_HEADERS or looks_like_key(value):
        raise ValueError(f"the header {name} would carry a key: name its variable in `key_env` of endpoints.toml")
    if name.lower() in {"host", "content-length", "content-type", "transfer-encoding", "connection", "accept-encoding"}:
        raise ValueError(f"the header {name} is set by loadkit itself")
    if not value.isascii() or not value.isprintable():
        raise ValueError(f"the header {name} has characters that no header can carry")
