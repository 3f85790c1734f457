"""Rows of another tool as ordinary records, so that the same summary is made of them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from loadkit.analysis.offline.bos import tokens_of
from loadkit.analysis.reading import number
from loadkit.measure import timing
from loadkit.record.names import Outcome, Phase
from loadkit.record.record import Record

SOURCE = "file"  # the *_source of counts that another tool wrote


def records_of(
    rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], bos: int | None
) -> tuple[list[dict[str, Any]], int]:
    """One record for each row that names a length, and how many rows name none.

    Times become ms. A row without a TTFT above 0 is a request without an answer. Rows of one model, hardware, length
    and concurrency are rounds, numbered as they come; concurrency is 1 where the file has none. `hardware` is kept as
    an extra key. Raises ConfigError where BOS is not settled.
    """
    records: list[dict[str, Any]] = []
    seen: Counter[tuple[Any, ...]] = Counter()
    left_out = 0
    for index, row in enumerate(rows, 1):
        values = {field: row.get(column) for field, column in columns.items()}
        record = _record(values, bos)
        if record is None:
            left_out += 1
            continue
        key = (record["model"], record["hardware"], record["cell"])
        seen[key] += 1
        records.append({**record, "round": int(number(values, "round") or seen[key]), "request_id": f"row {index}"})
    return records, left_out


def _record(values: Mapping[str, Any], bos: int | None) -> dict[str, Any] | None:
    prompt, inside = tokens_of(values, bos)
    target = _whole(values, "target_tokens")
    tier = target or prompt
    if not tier:
        return None
    streams = _whole(values, "concurrency") or 1
    ttft, tpot, total = (_ms(values, name) for name in ("ttft", "tpot", "total"))
    cached = _whole(values, "cached_tokens")
    output = _whole(values, "output_tokens")
    return Record().to_json() | {
        "model": _text(values, "model"),
        "hardware": _text(values, "hardware"),
        "cell": f"{tier}x{streams}",
        "tier_tokens": tier,
        "concurrency": streams,
        "phase": Phase.MEASURE.value,
        "outcome": None if ttft is None else Outcome.OK.value,
        "target_tokens": target,
        "prompt_tokens": prompt,
        "prompt_tokens_source": None if prompt is None else SOURCE,
        "bos_tokens": inside,
        "cached_tokens": cached,
        "output_tokens": output,
        "output_tokens_source": None if output is None else SOURCE,
        "ttft_ms": ttft,
        "tpot_ms": tpot,
        "e2e_ms": total,
        "prefill_tokens_per_s": timing.prefill_tokens_per_s(prompt, ttft),
        "decode_tokens_per_s": timing.decode_tokens_per_s(tpot),
        "unit_price_ms": timing.unit_price_ms(ttft, prompt, inside, cached),
    }


def _ms(values: Mapping[str, Any], name: str) -> float | None:
    """A time in ms from its ms or its s column; a time of 0 or less is a missing one."""
    ms, s = number(values, f"{name}_ms"), number(values, f"{name}_s")
    found = ms if ms is not None else None if s is None else round(1000 * s, timing.NS_DIGITS)
    return found if found is not None and found > 0 else None


def _whole(values: Mapping[str, Any], name: str) -> int | None:
    value = number(values, name)
    return None if value is None or value < 0 else int(value)


def _text(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    return None if value is None else str(value)
