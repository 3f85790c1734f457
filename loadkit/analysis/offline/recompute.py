"""The derived values of a record again, from its marks and counts; what is stored is not believed."""

from collections.abc import Mapping
from typing import Any

from loadkit.analysis.offline.bos import policy
from loadkit.analysis.reading import names, number, numbers
from loadkit.measure import timing
from loadkit.record.names import Flag

DERIVED = ("e2e_ms", "decode_ms", "tpot_ms", "prefill_tokens_per_s", "decode_tokens_per_s", "unit_price_ms")
_SAME = 1e-6  # relative: further apart than this is not rounding


def recomputed(record: Mapping[str, Any], bos: int | None) -> tuple[dict[str, Any], list[str]]:
    """The record with its derived values from its marks, and the names of those that were stored otherwise.

    Raises ConfigError where the record has prompt tokens and neither it nor `bos` says how many are BOS.
    """
    ttft, last, prompt = (number(record, name) for name in ("ttft_ms", "last_token_ms", "prompt_tokens"))
    inside = None if prompt is None else policy(_whole(record, "bos_tokens"), bos)
    tpot = _tpot(record, ttft, last)
    marks = None not in (ttft, last)
    fresh = {
        "e2e_ms": last,
        "decode_ms": timing.difference_ms(last, ttft),
        "tpot_ms": tpot if marks else None,
        "prefill_tokens_per_s": timing.prefill_tokens_per_s(_whole(record, "prompt_tokens"), ttft),
        "decode_tokens_per_s": timing.decode_tokens_per_s(tpot),
        "unit_price_ms": timing.unit_price_ms(
            ttft, _whole(record, "prompt_tokens"), inside, _whole(record, "cached_tokens")
        ),
    }
    changed = [name for name in DERIVED if _otherwise(number(record, name), fresh[name])]
    if "unit_price_ms" in changed and number(record, "bos_tokens") is None:
        changed.remove("unit_price_ms")  # stored before anyone said how many BOS tokens there are
    return {**record, "bos_tokens": inside, **fresh}, changed


def _tpot(record: Mapping[str, Any], ttft: float | None, last: float | None) -> float | None:
    if Flag.HIDDEN_REASONING.value in names(record, "flags") or (ttft or 0.0) > (last or 0.0):
        return None
    tokens = numbers(record, "event_tokens")
    return timing.tpot_ms(ttft, last, _whole(record, "output_tokens"), int(tokens[0]) if tokens else 1)


def _otherwise(stored: float | None, fresh: float | None) -> bool:
    if stored is None or fresh is None:
        return stored is not fresh
    return abs(stored - fresh) > _SAME * max(abs(stored), abs(fresh))


def _whole(record: Mapping[str, Any], name: str) -> int | None:
    value = number(record, name)
    return None if value is None else int(value)
