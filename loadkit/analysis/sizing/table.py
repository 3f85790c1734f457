"""A published table, or another tool's, as cells: one row for each concurrency, with averages in place of percentiles.

CSV or JSON with columns such as `concurrency, ttft_ms, itl_ms, output_tokens_per_s`. The one number of a column stands
for every percentile an objective may ask for, which the answer says among its assumptions.
"""

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from loadkit.analysis.offline.table import read
from loadkit.analysis.reading import number
from loadkit.capacity.queueing import residence_s
from loadkit.measure.quantile import LEVELS
from loadkit.plan.errors import ConfigError

# field -> names that mean it, in the form of `_plain`
FIELDS: dict[str, tuple[str, ...]] = {
    "concurrency": ("concurrency", "streams", "users", "clients", "c"),
    "prompt_tokens": ("prompt_tokens", "input_tokens", "isl", "input_sequence_length", "tier_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens", "osl", "output_sequence_length"),
    "ttft_ms": ("ttft_ms", "time_to_first_token_ms", "ttft_avg_ms", "mean_ttft_ms"),
    "ttft_s": ("ttft_s", "time_to_first_token_s", "ttft_avg_s", "mean_ttft_s"),
    "itl_ms": ("itl_ms", "inter_token_latency_ms", "tpot_ms", "mean_itl_ms", "mean_tpot_ms"),
    "itl_s": ("itl_s", "inter_token_latency_s", "tpot_s", "mean_itl_s", "mean_tpot_s"),
    "output_tokens_per_s": ("output_tokens_per_s", "throughput_tokens_s", "tokens_per_s", "tok_s", "tps", "tokens_s"),
    "requests_per_s": ("requests_per_s", "requests_s", "rps", "qps", "request_throughput"),
}
COUNTS = ("prompt_tokens", "output_tokens")
_BY_NAME = {name: field for field, names in FIELDS.items() for name in names}
SUSPECT = "a table: nothing is known of its load generator's health"


def cells_of(path: Path, *, mapping: Mapping[str, str], prompt: int | None, output: int | None) -> list[dict[str, Any]]:
    """The rows of the file as cells. `mapping` is {field: column}; `prompt` and `output` are the tokens of all rows
    where the table has no such columns. ConfigError, one line, for what cannot be told or contradicts itself."""
    rows = read(path)
    columns = _columns({name for row in rows for name in row}, mapping, path.name)
    for field, given in (("prompt_tokens", prompt), ("output_tokens", output)):
        option = "--" + field.replace("_", "-")
        if given is None and field not in columns:
            raise ConfigError(f"{path.name}: no column says the {field.replace('_', ' ')}: give {option} N")
        if given is not None and field in columns:
            raise ConfigError(f"{option} is given and {path.name} has the column {columns[field]!r}: leave it out")
    given_tokens = {"prompt_tokens": prompt, "output_tokens": output}
    cells = [_cell(row, columns, given_tokens, f"{path.name}: row {i}") for i, row in enumerate(rows, 1)]
    names = [cell["cell"] for cell in cells]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{path.name}: {twice} (tokens x concurrency) stands in two rows: keep one")
    return cells


def parse_map(words: Iterable[str]) -> dict[str, str]:
    """FIELD=COLUMN words as {field: column}. Raises ConfigError for anything else."""
    found: dict[str, str] = {}
    for word in words:
        field, equals, column = word.partition("=")
        if not equals or not column or field not in FIELDS:
            raise ConfigError(f"--map {word[:60]}: give FIELD=COLUMN, FIELD one of {', '.join(FIELDS)}")
        if field in found:
            raise ConfigError(f"--map names {field} twice")
        found[field] = column
    return found


def _columns(names: set[str], mapping: Mapping[str, str], file: str) -> dict[str, str]:
    found = dict(mapping)
    for column in mapping.values():
        if column not in names:
            raise ConfigError(f"--map: {file} has no column {column[:40]!r}")
    for column in sorted(names - set(mapping.values())):
        field = _BY_NAME.get(re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_"))
        if field is None or field in mapping:
            continue
        if field in found:
            raise ConfigError(f"{file}: {found[field]!r} and {column!r} both mean {field}: choose with --map")
        found[field] = column
    for fields in (("concurrency",), ("ttft_ms", "ttft_s"), ("output_tokens_per_s", "requests_per_s")):
        if not found.keys() & set(fields):
            raise ConfigError(f"{file}: no column is {' or '.join(fields)}: name it with --map {fields[0]}=COLUMN")
    return found


def _cell(
    row: Mapping[str, Any], columns: Mapping[str, str], given: Mapping[str, int | None], where: str
) -> dict[str, Any]:
    values = {field: _positive(row, column, where) for field, column in columns.items() if row.get(column) is not None}
    prompt, output = (values.get(name) or given[name] for name in COUNTS)
    streams, ttft = values.get("concurrency"), _ms(values, "ttft")
    if not prompt or not output or not streams or ttft is None:
        raise ConfigError(f"{where}: concurrency, TTFT or a count of tokens is missing")
    if any(value != int(value) for value in (prompt, output, streams)):
        raise ConfigError(f"{where}: concurrency and tokens are whole numbers")
    gap = _ms(values, "itl")
    rate = values.get("requests_per_s") or (values.get("output_tokens_per_s") or 0.0) / output
    if not rate:
        raise ConfigError(f"{where}: neither tokens/s nor requests/s is given")
    e2e = 1000 * residence_s(ttft / 1000, (gap or 0.0) / 1000, output) if gap is not None or output == 1 else None
    return {
        "cell": f"{int(prompt)}x{int(streams)}",
        "tier_tokens": int(prompt),
        "concurrency": int(streams),
        "rate": None,
        "n": None,
        "ok": None,
        "outcomes": {},
        "prompt_tokens": {"median": int(prompt)},
        "output_tokens": {"median": int(output)},
        "ttft_ms": _everywhere(ttft),
        "itl_ms": _everywhere(gap),
        "tpot_ms": _everywhere(gap),
        "e2e_ms": _everywhere(e2e),
        "requests_per_s": rate,
        "output_tokens_per_s": rate * output,
        "prefill_ms_per_1k": 1000 * ttft / prompt,
        "validity": {"status": "suspect", "reasons": [SUSPECT]},
    }


def _positive(row: Mapping[str, Any], column: str, where: str) -> float:
    value = number(row, column)
    if value is None or not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{where}: {str(row.get(column))[:40]!r} in column {column[:40]!r} is no number above 0")
    return float(value)


def _ms(values: Mapping[str, float], name: str) -> float | None:
    ms, s = values.get(f"{name}_ms"), values.get(f"{name}_s")
    return ms if ms is not None else None if s is None else 1000 * s


def _everywhere(value: float | None) -> dict[str, float] | None:
    """One average in the place of every statistic."""
    return None if value is None else dict.fromkeys((*LEVELS, "mean", "min", "max"), value)
