"""An endpoint: where requests go, as whom, and what is known about it. It holds the name of a key, never the key."""

import ipaddress
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from loadkit.plan import address
from loadkit.plan.errors import ConfigError
from loadkit.plan.keys import VARIABLE, check_header, looks_like_key, read_key, read_key_file

PROTOCOL_NAMES = ("openai-chat", "openai-completions", "anthropic", "ollama")
AUTH_MODES = ("bearer", "x-api-key", "none")
MAX_TOKENS_FIELDS = ("max_tokens", "max_completion_tokens")
# Fields of the request body that options set: an extra body may not say something else behind their back.
OWN_BODY_FIELDS = {
    "model": "--model",
    "messages": "--tiers",
    "prompt": "--tiers",
    "stream": "nothing: loadkit measures streams",
    "max_tokens": "--max-tokens",
    "max_completion_tokens": "--max-tokens",
    "temperature": "--temperature",
}

_TTFT_TIER = 128 * 1024  # up to this many tokens the default first-token timeout stands as it is
_DECODE_S = 3600.0  # time allowed after the first token where no total is given
_LONGEST_CONNECT_S = 300.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds: to connect, to the first token, between two reads, and for the whole request (None = by the others).

    `ttft_scales` says that `ttft` is the default and grows with the tier; a value somebody chose never does.
    """

    connect: float = 10.0
    ttft: float = 600.0
    read: float = 600.0
    total: float | None = None
    ttft_scales: bool = True

    def __post_init__(self) -> None:
        for name in ("connect", "ttft", "read", "total"):
            value = getattr(self, name)
            if value is None and name == "total":
                continue
            if value is None or not math.isfinite(value) or value <= 0:
                raise ConfigError(f"the {name} timeout must be a number of seconds above 0: no wait may be endless")
        if self.connect > _LONGEST_CONNECT_S:
            raise ConfigError(f"the connect timeout must be at most {_LONGEST_CONNECT_S:.0f} seconds")

    def for_tier(self, tokens: int) -> "Timeouts":
        """The same with every value settled for prompts of `tokens`: 600 s to 128K, then in proportion (1M: 4800)."""
        ttft = self.ttft * max(1.0, tokens / _TTFT_TIER) if self.ttft_scales else self.ttft
        total = self.total if self.total is not None else ttft + _DECODE_S
        return replace(self, ttft=ttft, total=total, ttft_scales=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server and how to talk to it. Anything wrong is a ConfigError when it is made.

    Prices are per million tokens in `currency`; `window` is in tokens, None where nobody declared one; `model` is
    None until `--model` or the server's own list fills it. `auth` left empty follows from the key and the protocol.
    """

    name: str
    base_url: str
    model: str | None = None
    protocol: str = "openai-chat"
    key_env: str | None = None
    key_file: str | None = None
    auth: str = ""
    window: int | None = None
    price_input: float | None = None
    price_output: float | None = None
    currency: str = "USD"
    timeouts: Timeouts = field(default_factory=Timeouts)
    headers: dict[str, str] = field(default_factory=dict)
    extra_body: dict[str, Any] = field(default_factory=dict)
    max_tokens_field: str = "max_tokens"
    note: str = ""
    word_usage: bool = False  # the server's usage was found to count words: it is not taken for tokens

    def __post_init__(self) -> None:
        if not self.auth:
            with_key = "x-api-key" if self.protocol == "anthropic" else "bearer"
            object.__setattr__(self, "auth", with_key if self.has_key else "none")
        fault = self._fault()
        if fault:
            raise ConfigError(f"endpoint {self.name}: {fault}")
        address.clean_base_url(self.base_url)

    def _fault(self) -> str | None:
        """The first thing wrong with the values, or None."""
        for label, value, allowed in (
            ("protocol", self.protocol, PROTOCOL_NAMES),
            ("auth", self.auth, AUTH_MODES),
            ("max_tokens_field", self.max_tokens_field, MAX_TOKENS_FIELDS),
        ):
            if value not in allowed:
                return f"{label} must be one of {', '.join(allowed)}"
        if self.key_env is not None and (not VARIABLE.fullmatch(self.key_env) or looks_like_key(self.key_env)):
            return "key_env must be the name of a variable in capitals, such as LAB_API_KEY, and not a key"
        if self.key_env and self.key_file:
            return "it has two places for its key, key_env and key_file: keep one"
        if self.auth == "none" and self.has_key:
            return "it has two auth modes, auth none and a key: keep one"
        if self.auth != "none" and not self.has_key:
            return f"auth {self.auth} needs key_env, the name of the variable that holds the key, or key_file"
        if self.window is not None and self.window < 1:
            return "window must be a number of tokens above 0"
        if any(p is not None and not (math.isfinite(p) and p >= 0) for p in (self.price_input, self.price_output)):
            return "prices must be numbers per million tokens, 0 or above"
        return self._literal_fault()

    def _literal_fault(self) -> str | None:
        """What in the headers, the extra body or any text must not be there."""
        try:
            for name, value in self.headers.items():
                check_header(name, value)
        except ValueError as error:
            return str(error)
        try:
            json.dumps(self.extra_body, allow_nan=False)
        except (TypeError, ValueError):
            return "the extra body holds a value that JSON has no form for"
        for name in self.extra_body:
            if name in OWN_BODY_FIELDS:
                return f"the extra body may not set {name!r}: use {OWN_BODY_FIELDS[name]}"
        texts = [self.name, self.base_url, self.model, self.key_file, self.extra_body, self.note, self.currency]
        if looks_like_key(texts):
            return "a literal key is written into it: move it to a variable and name that in key_env"
        return None

    @property
    def host(self) -> str:
        """Host and port as the URL has them."""
        return urlsplit(address.clean_base_url(self.base_url)[0]).netloc

    @property
    def loopback(self) -> bool:
        """Whether the server is on this machine by its address."""
        name = urlsplit(address.clean_base_url(self.base_url)[0]).hostname or ""
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return name == "localhost"

    @property
    def has_key(self) -> bool:
        """Whether it names a place for a key."""
        return bool(self.key_env or self.key_file)

    @property
    def key_place(self) -> str | None:
        """Where the key is, for messages: its variable or its file; None where there is none."""
        return f"key_file {self.key_file}" if self.key_file else self.key_env

    def key(self, environ: Mapping[str, str]) -> str | None:
        """The key, checked; None where auth is none. ConfigError names the variable or file, never the value."""
        if self.key_file:
            return read_key_file(self.key_file)
        return read_key(self.key_env, self.protocol, environ) if self.key_env else None

    def warnings(self) -> tuple[str, ...]:
        """What was dropped from the base URL, one line each."""
        return address.clean_base_url(self.base_url)[1]

    def to_json(self) -> dict[str, Any]:
        """Builtin values only, for the manifest and for workers; of the base URL only what is used."""
        return {**asdict(self), "base_url": address.clean_base_url(self.base_url)[0]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Endpoint":
        """What `to_json` wrote, also after a trip through JSON. ConfigError where it is something else."""
        try:
            return cls(**{**data, "timeouts": Timeouts(**data["timeouts"])})
        except (KeyError, TypeError):
            raise ConfigError("the stored endpoint is damaged or of another version of loadkit") from None


def url_for(endpoint: Endpoint, path: str) -> str:
    """Final URL of an operation path ('/chat/completions', '/v1/messages', '/models'); never doubles /v1."""
    return address.join(endpoint.base_url, endpoint.protocol, path)


def root_url_for(endpoint: Endpoint, path: str) -> str:
    """Final URL of a route beside the API, such as /tokenize or /metrics."""
    return address.join_root(endpoint.base_url, endpoint.protocol, path)
