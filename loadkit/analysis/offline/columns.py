"""What the columns of another tool's file mean: by names that leave no doubt, else by the user's word."""

import re
from collections.abc import Iterable, Mapping

from loadkit.plan.errors import ConfigError

# field -> names that mean it, in the form of `_plain`. `bos_tokens` counts those inside `prompt_tokens` or
# `tokens_with_bos`; of `real_tokens` it is not said whether BOS is inside, and `bos_added` does not say it either.
FIELDS: dict[str, tuple[str, ...]] = {
    "model": ("model", "model_name", "model_id"),
    "hardware": ("hardware", "machine", "host", "device", "board"),
    "concurrency": ("concurrency", "streams", "parallel"),
    "round": ("round", "repeat", "trial"),
    "target_tokens": ("target_tokens", "target", "target_length", "target_len", "target_input_tokens"),
    "tokens_with_bos": ("tokens_with_bos", "real_tokens_with_bos", "input_tokens_with_bos", "prompt_tokens_with_bos"),
    "tokens_without_bos": ("tokens_without_bos", "tokens_no_bos", "real_tokens_no_bos", "real_tokens_without_bos"),
    "prompt_tokens": ("prompt_tokens", "input_tokens"),
    "real_tokens": ("real_tokens", "real_input_tokens", "n_tokens", "n_prompt"),
    "bos_tokens": ("bos_tokens",),
    "bos_added": ("bos_added", "add_bos", "adds_bos", "bos"),
    "bos_policy": ("bos_policy",),
    "cached_tokens": ("cached_tokens",),
    "output_tokens": ("output_tokens", "completion_tokens", "generated_tokens", "new_tokens"),
    "ttft_ms": ("ttft_ms", "time_to_first_token_ms"),
    "ttft_s": ("ttft_s", "ttft_sec", "ttft_seconds", "time_to_first_token_s"),
    "tpot_ms": ("tpot_ms", "time_per_output_token_ms"),
    "tpot_s": ("tpot_s", "tpot_sec", "tpot_seconds", "time_per_output_token_s"),
    "total_ms": ("total_ms", "e2e_ms", "total_time_ms", "latency_ms"),
    "total_s": ("total_s", "e2e_s", "total_time_s", "total_sec", "latency_s"),
}
LENGTHS = ("target_tokens", "tokens_with_bos", "tokens_without_bos", "prompt_tokens", "real_tokens")
TIMES = ("ttft_ms", "ttft_s", "no unit")
_NO_UNIT = {"ttft": "ttft", "time_to_first_token": "ttft", "tpot": "tpot", "time_per_output_token": "tpot"}
_BY_NAME = {name: field for field, names in FIELDS.items() for name in names}
_SHOWN = 12


def field_of(column: str) -> str | None:
    """The field a column name means; 'no unit' for a time that does not say its unit; None for any other name."""
    plain = _plain(column)
    return _BY_NAME.get(plain) or ("no unit" if plain in _NO_UNIT else None)


def parse_map(words: Iterable[str]) -> dict[str, str]:
    """FIELD=COLUMN words as {field: column}. Raises ConfigError for anything else."""
    found: dict[str, str] = {}
    for word in words:
        field, equals, column = word.partition("=")
        if not equals or not column or field not in FIELDS:
            raise ConfigError(f"--map {word}: give FIELD=COLUMN, FIELD one of {', '.join(FIELDS)}")
        if field in found:
            raise ConfigError(f"--map names {field} twice")
        found[field] = column
    return found


def columns_of(names: Iterable[str], mapped: Mapping[str, str]) -> dict[str, str]:
    """{field: column} for the column names of a file; what the user mapped wins over names.

    Raises ConfigError where a mapped column is not there, no column is a TTFT or a length, a time does not say its
    unit, or two columns mean one field.
    """
    known = list(dict.fromkeys(names))
    if missing := [column for column in mapped.values() if column not in known]:
        raise ConfigError(f"--map: there is no column {missing[0]!r}; there are {_listed(known)}")
    found: dict[str, str] = dict(mapped)
    for column in known:
        field = field_of(column)
        if field is None or column in mapped.values() or field in mapped:
            continue
        if field == "no unit":
            kind = _NO_UNIT[_plain(column)]
            if {f"{kind}_ms", f"{kind}_s"} & mapped.keys():
                continue
            raise ConfigError(
                f"column {column!r} does not say its unit: give --map {kind}_s={column} or --map {kind}_ms={column}"
            )
        if field in found:
            raise ConfigError(
                f"columns {found[field]!r} and {column!r} both mean {field}: choose with --map {field}=COLUMN"
            )
        found[field] = column
    if not {"ttft_ms", "ttft_s"} & found.keys():
        raise ConfigError(
            f"no column is a TTFT; there are {_listed(known)}: name it with --map ttft_s=COLUMN or ttft_ms=COLUMN"
        )
    if not found.keys() & set(LENGTHS):
        raise ConfigError(
            f"no column is a length in tokens; there are {_listed(known)}: "
            "name it with --map prompt_tokens=COLUMN (as counted) or target_tokens=COLUMN (as asked for)"
        )
    return found


def _plain(column: str) -> str:
    """'TTFT (s)' -> 'ttft_s'."""
    return re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name[:40]) for name in names[:_SHOWN]) + more
