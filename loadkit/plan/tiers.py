"""Tier names: '4K' is 4096 server-counted prompt tokens, template and BOS included."""

import re
from fractions import Fraction

from loadkit.plan.errors import ConfigError

K = 1024
M = 1024 * K
MAX_TIER = 16 * M
TEMPLATE_RESERVE = 64  # tokens kept free below a window for the chat template, whose size is not known while planning

_NAME = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([KM]?)", re.ASCII)
_UNITS = {"": 1, "K": K, "M": M}
ACCEPTED = "a tier is a whole number of tokens, such as 128, 1.5K, 4K or 1M (K = 1024, M = 1048576, at most 16M)"


def parse_tier(text: str) -> int:
    """Tokens of one tier name; ConfigError says what is accepted."""
    match = _NAME.fullmatch(text.strip().upper())
    tokens = Fraction(match[1]) * _UNITS[match[2]] if match else Fraction(0)
    if tokens.denominator != 1 or not 1 <= tokens <= MAX_TIER:
        raise ConfigError(f"unknown tier {text.strip()[:40]!r}: {ACCEPTED}")
    return int(tokens)


def parse_tiers(text: str) -> tuple[int, ...]:
    """Tiers of a comma list, ascending, each once."""
    return tuple(sorted({parse_tier(item) for item in text.split(",")}))


def tier_name(tokens: int) -> str:
    """The shortest exact name: 4096 -> '4K', 1048576 -> '1M', 1536 -> '1536'."""
    for unit, size in (("M", M), ("K", K)):
        if tokens >= size and tokens % size == 0:
            return f"{tokens // size}{unit}"
    return str(tokens)


def fit_tier(tokens: int, window: int | None, max_tokens: int, overhead: int = TEMPLATE_RESERVE) -> int:
    """Prompt tokens to build for a tier: servers check prompt + max_tokens against the window, so a tier at the
    window shrinks to window - max_tokens - overhead. Above a declared window: ConfigError. Undeclared: unchanged."""
    if window is None:
        return tokens
    if tokens > window:
        raise ConfigError(
            f"tier {tier_name(tokens)} is above the endpoint's window of {tier_name(window)} tokens: "
            "leave it out, or correct `window` if the server takes more"
        )
    room = window - max_tokens - overhead
    if room < 1:
        raise ConfigError(
            f"a window of {window} tokens has no room for a prompt beside {max_tokens} output tokens "
            f"and {overhead} for the chat template: lower --max-tokens"
        )
    return min(tokens, room)
