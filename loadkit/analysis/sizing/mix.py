"""What arrives: `4K:0.7,32K/256:0.25,128K/2000:0.05`, a tier of prompt tokens, its output tokens, its share.

mix   = entry ("," entry)*
entry = tier ["/" output tokens] ":" share, a share as 0.7 or 70%
"""

import math
import re
from dataclasses import dataclass

from loadkit.plan.errors import ConfigError
from loadkit.plan.tiers import parse_tier, tier_name

_ENTRY = re.compile(r"([^/:]+)(?:/([^/:]+))?:([^/:]+)")
_SUM = 0.005  # shares as people round them
MOST_OUTPUT = 1_000_000
MOST_ENTRIES = 100


@dataclass(frozen=True, slots=True)
class Share:
    """`share` of all requests have `tier_tokens` of prompt and `output_tokens` of answer (None: as measured)."""

    tier_tokens: int
    share: float
    output_tokens: int | None = None

    @property
    def name(self) -> str:
        """As it was written: 128K/2000."""
        return tier_name(self.tier_tokens) + (f"/{self.output_tokens}" if self.output_tokens else "")


def parse_mix(text: str) -> tuple[Share, ...]:
    """The entries, in order, their shares scaled to 1. Raises ConfigError, one line, naming the entry that is wrong."""
    entries = [_entry(part.strip()) for part in text.split(",")]
    if len(entries) > MOST_ENTRIES:
        raise ConfigError(f"--mix has {len(entries)} entries: at most {MOST_ENTRIES}")
    names = [entry.name for entry in entries]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"--mix names {twice} twice: add the shares up")
    total = math.fsum(entry.share for entry in entries)
    if abs(total - 1) > _SUM:
        raise ConfigError(f"--mix: the shares add up to {total:.6g} and not to 1")
    return tuple(Share(entry.tier_tokens, entry.share / total, entry.output_tokens) for entry in entries)


def _entry(part: str) -> Share:
    match = _ENTRY.fullmatch(part)
    if match is None:
        raise ConfigError(f"--mix {part[:40]!r}: expected TIER:SHARE or TIER/OUTPUT:SHARE, such as 4K:0.7")
    tier, output, share = (piece.strip() if piece else None for piece in match.groups())
    return Share(parse_tier(tier or ""), _share(part, share or ""), _output(part, output))


def _output(part: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 8 and 1 <= int(text) <= MOST_OUTPUT):
        raise ConfigError(f"--mix {part[:40]!r}: output tokens are a whole number from 1 to {MOST_OUTPUT}")
    return int(text)


def _share(part: str, text: str) -> float:
    percent = text.endswith("%")
    try:
        value = float(text.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise ConfigError(f"--mix {part[:40]!r}: a share is a number above 0 and at most 1, or a percentage")
    return value
