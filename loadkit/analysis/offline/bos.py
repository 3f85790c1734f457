"""How many BOS tokens a token count holds: found in the data or told by the user, never guessed.

A price that divides by one token too many is off by 0.8 % at 123 tokens; one that subtracts BOS twice is off the other
way. So a file that does not settle it is refused with the option that does.
"""

from collections.abc import Mapping
from typing import Any

from loadkit.analysis.reading import number
from loadkit.plan.errors import ConfigError

_TAKEN_OUT = ("excluded", "without", "removed", "none")  # values of bos_policy


def tokens_of(row: Mapping[str, Any], given: int | None) -> tuple[int | None, int | None]:
    """(prompt tokens, BOS tokens inside them) of a row of another tool, keyed by field; (None, None) without a count.

    `given` is the user's --bos. Raises ConfigError where the row does not settle BOS, or contradicts `given`.
    """
    whole, bare, some, real = (
        _count(row, name) for name in ("tokens_with_bos", "tokens_without_bos", "prompt_tokens", "real_tokens")
    )
    whole = some if whole is None else whole
    if bare is None and real is not None and (row.get("bos_policy") in _TAKEN_OUT or (whole or 0) > real):
        bare = real
    if bare is not None:
        inside = 0 if whole is None else whole - bare
        return bare + inside, _agreed(inside, given, "the token columns")
    if whole is not None:
        column = "prompt_tokens" if some is not None else "tokens_with_bos"
        return whole, policy(_stated(row, column), given, column)
    return real, None if real is None else policy(None, given, "real_tokens")


def policy(stated: int | None, given: int | None, column: str = "prompt_tokens") -> int:
    """BOS tokens inside a count, from what the file states and what the user gave; one is enough, two must agree."""
    if stated is not None:
        return _agreed(stated, given, "the file")
    if given is None:
        holds = "holds BOS tokens" if column == "tokens_with_bos" else "may or may not hold BOS tokens"
        raise ConfigError(
            f"{column} {holds} and nothing says how many: give --bos N (0 = none inside, or already taken out)"
        )
    return given


def _agreed(stated: int, given: int | None, who: str) -> int:
    if stated < 0:
        raise ConfigError(f"by {who} there are {stated} BOS tokens: the file is damaged, or --map took wrong columns")
    if given is not None and given != stated:
        raise ConfigError(f"--bos {given}, but by {who} it is {stated}: leave --bos out")
    return stated


def _stated(row: Mapping[str, Any], column: str) -> int | None:
    """What the row states of BOS inside the count: `bos_added` only of a count that is known to hold them."""
    inside = _count(row, "bos_tokens")
    return _count(row, "bos_added") if inside is None and column == "tokens_with_bos" else inside


def _count(row: Mapping[str, Any], name: str) -> int | None:
    value = row.get(name)
    value = int(value) if isinstance(value, bool) else number(row, name)
    return None if value is None or value < 0 else int(value)
