"""A records file, ours or another tool's, as one summary for each model on each machine. Nothing is believed but
marks and counts, and nothing is averaged over models or machines."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from loadkit.analysis.offline.columns import columns_of, parse_map
from loadkit.analysis.offline.mapped import records_of
from loadkit.analysis.offline.prices import Prices, warnings
from loadkit.analysis.offline.ratios import ratios
from loadkit.analysis.offline.recompute import recomputed
from loadkit.analysis.offline.table import read
from loadkit.analysis.offline.trace import trace
from loadkit.analysis.saved import lines, manifest_of
from loadkit.analysis.summary import summarise
from loadkit.plan.errors import ConfigError
from loadkit.record.errors import FolderError, reason, regular
from loadkit.record.folder import RunFolder
from loadkit.record.jsonl import SCHEMA as RECORDS
from loadkit.record.jsonl import Rows

SCHEMA = "loadkit-analysis/1"
_GROUP = {"ours": ("run_id", "endpoint", "model"), "mapped": ("model", "hardware")}
_MOST_GROUPS = 200

Records = Iterable[Mapping[str, Any]]


def analyse(path: Path, *, bos: int | None, mapping: Iterable[str], explain: bool) -> dict[str, Any]:
    """{schema, file, kind: ours|mapped, groups: [...], ratios: [...], notes: [...]}.

    A group is {group: {model, ...}, summary, prices, warnings, trace}: the summary of analysis.summary, the price rows
    of offline.prices, the sentences they warrant, and with `explain` every number with its formula and inputs.
    `path` is a run folder, its records.jsonl, or a file of another tool (JSON, JSON lines, CSV). Raises ConfigError
    where BOS is not settled, a column is not known or the file has nothing to analyse; FolderError where it cannot be
    read.
    """
    if path.is_dir():
        path = RunFolder.open(path).records_path
    mapped = parse_map(mapping)
    if not _is_ours(path):
        return _mapped(path, bos, mapped, explain)
    if mapped:
        raise ConfigError(f"--map is for files of other tools; {path} holds records of loadkit")
    return _ours(path, bos, explain)


def _is_ours(path: Path) -> bool:
    """Whether the first line that is JSON is one of ours. Raises ConfigError for a schema of another version."""
    try:
        with regular(path).open("rb") as file:
            for line in file:
                row = _row(line)
                if row is None:
                    continue
                schema = row.get("schema")
                if row.get("kind") == "header" and schema != RECORDS:
                    raise ConfigError(f"{path} has the schema {str(schema)[:60]!r}; this version reads {RECORDS}")
                return row.get("kind") in ("header", "request")
    except OSError as error:
        raise FolderError(f"cannot read {path}: {reason(error)}") from error
    return False


def _row(line: bytes) -> dict[str, Any] | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _ours(path: Path, bos: int | None, explain: bool) -> dict[str, Any]:
    folder = RunFolder(path.parent)
    rows = lines(path)
    keys = _groups(rows, "ours")
    if not keys:
        raise ConfigError(f"{path} holds no request")
    changed: Counter[str] = Counter()
    alone = len(keys) == 1 and path.name == folder.records_path.name
    manifest = manifest_of(folder) if alone else {}
    telemetry: Iterable[Mapping[str, Any]] = lines(folder.telemetry_path) if alone else ()

    groups = []
    for key in keys:
        first, again = (_recomputed(Rows(path), key, bos, count) for count in (changed, Counter()))
        damaged = rows.damaged if alone else 0
        groups.append(_group("ours", key, first, again, explain, manifest, telemetry, damaged))
    notes = [f"{n} stored {name} are not what their marks give; the marks were used." for name, n in changed.items()]
    if rows.damaged:
        notes.append(f"{rows.damaged} lines of the file are damaged and left out.")
    return {"schema": SCHEMA, "file": path.name, "kind": "ours", "groups": groups, "ratios": [], "notes": notes}


def _recomputed(
    rows: Records, key: tuple[Any, ...], bos: int | None, count: Counter[str]
) -> Iterator[Mapping[str, Any]]:
    """The requests of one group, their derived values worked out again; `count` learns what was stored otherwise."""
    for row in rows:
        if row.get("kind") != "request" or _key(row, "ours") != key:
            continue
        record, changed = recomputed(row, bos)
        count.update(changed)
        yield record


def _mapped(path: Path, bos: int | None, mapped: Mapping[str, str], explain: bool) -> dict[str, Any]:
    times = frozenset(column for field, column in mapped.items() if field in ("ttft_ms", "ttft_s"))
    rows = read(path, times)
    columns = columns_of((name for row in rows for name in row), mapped)
    records, left_out = records_of(rows, columns, bos)
    if not any(record["ttft_ms"] for record in records):
        raise ConfigError(f"{path}: no row has both a length in tokens and a TTFT above 0")
    notes = [f"{field} is column {column!r}." for field, column in columns.items() if field != column]
    if "concurrency" not in columns:
        notes.append("There is no concurrency column: every row is taken as one stream alone.")
    notes.append("Cells are marked ?: the file says nothing of its load generator's health.")
    if left_out:
        notes.append(f"{left_out} rows name no length in tokens and are left out.")
    if not any(record["prompt_tokens"] for record in records):
        notes.append("There is no count of the tokens that were really read, only targets: no price is worked out.")
    groups = []
    for key in _groups(records, "mapped"):
        mine = [record for record in records if _key(record, "mapped") == key]
        groups.append(_group("mapped", key, mine, mine, explain, {"endpoint": {"model": key[0]}}))
    found = {"schema": SCHEMA, "file": path.name, "kind": "mapped", "groups": groups}
    return {**found, "ratios": ratios(groups), "notes": notes}


def _group(
    kind: str,
    key: tuple[Any, ...],
    records: Records,
    again: Records,
    explain: bool,
    manifest: Mapping[str, Any],
    telemetry: Iterable[Mapping[str, Any]] = (),
    damaged: int = 0,
) -> dict[str, Any]:
    prices = Prices()
    summary = summarise(prices.watch(records), manifest, telemetry, damaged_lines=damaged)
    rows = prices.rows()
    return {
        "group": dict(zip(_GROUP[kind], key, strict=True)),
        "summary": summary,
        "prices": rows,
        "warnings": warnings(rows),
        "trace": trace(again, summary) if explain else None,
    }


def _groups(records: Records, kind: str) -> list[tuple[Any, ...]]:
    """The models, and machines or runs, of the file, in the order in which they come."""
    found = dict.fromkeys(_key(record, kind) for record in records if record.get("kind", "request") == "request")
    if len(found) > _MOST_GROUPS:
        raise ConfigError(f"the file holds {len(found)} combinations of {', '.join(_GROUP[kind])}: cut it up")
    return list(found)


def _key(record: Mapping[str, Any], kind: str) -> tuple[Any, ...]:
    return tuple(None if record.get(name) is None else str(record[name]) for name in _GROUP[kind])
