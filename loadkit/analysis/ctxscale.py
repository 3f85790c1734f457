"""One small table of a ladder over prompt lengths at one stream: what `loadkit engine ladder` writes.

It is the file that the measurements behind "TTFT = tokens x unit price" were kept in, with what they left to guess: how
many BOS tokens a count holds, and what machine it was. Scalars at the top hold for every row; `loadkit analyze` reads
the file as it reads anybody's.
"""

from collections.abc import Iterable, Mapping
from statistics import median, median_low
from typing import Any

from loadkit.measure import timing
from loadkit.record.names import Outcome, Phase

SCHEMA = "loadkit-eng-ctxscale/1"
FIELDS = (
    "target_tokens: prompt length asked for, tokens, template and BOS included",
    "tokens_with_bos: prompt length as the engine counted it, tokens",
    "bos_added: BOS tokens inside tokens_with_bos",
    "real_tokens: tokens_with_bos - bos_added; the unit price divides by it",
    "bos_policy: excluded = real_tokens holds no BOS token",
    "ttft_s: request sent to first token, s, median over rounds",
    "tpot_ms: (last token - first token) / (output tokens - 1), ms, median over rounds; null below two tokens",
    "unit_price_ms: ttft / real_tokens, ms per token, median over rounds",
    "prefill_parallelism: tpot_ms / unit_price_ms, near 1 where a prompt is read token by token",
    "rounds: one entry for each answer that came whole",
)
# What the engine tells of itself and its machine, for every row.
ABOUT = ("model", "source", "parameters", "dtype", "seed", "prefill_mode", "threads", "cpu", "cores", "numpy", "blas")


def ctxscale(manifest: Mapping[str, Any], records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The table of a run: a row for each tier, lengths rising; a tier without a whole answer has null times.

    `manifest` and `records` are those of a run folder.
    """
    target, host = manifest["target"], manifest["host"]
    measured = [record for record in records if record.get("phase") == Phase.MEASURE.value]
    tiers = sorted({record["tier_tokens"] for record in measured})
    about = {name: target.get(name) for name in (*ABOUT, "blas_kernel")}
    return {
        "schema": SCHEMA,
        "run_id": manifest["run_id"],
        "started_at": manifest["started_at"],
        "fields": list(FIELDS),
        **about,
        # The engine's numbers belong to one machine; two of them make no series.
        "hardware": f"{target.get('cpu') or host['machine']}, {host['cpus']} CPUs, {target.get('threads')} threads",
        "system": host["system"],
        "dimensions": [f"{name}={value}" for name, value in (target.get("dimensions") or {}).items()],
        "records": [_row(tier, [record for record in measured if record["tier_tokens"] == tier]) for tier in tiers],
    }


def _row(tier: int, records: list[Mapping[str, Any]]) -> dict[str, Any]:
    whole = [record for record in records if record["outcome"] == Outcome.OK.value]
    rounds = [_round(record) for record in whole]
    ttft_s, tpot_ms, price = (_middle(item[name] for item in rounds) for name in ("ttft_s", "tpot_ms", "unit_price_ms"))
    counts = {
        name: median_low([item[name] for item in rounds]) if rounds else None
        for name in ("tokens_with_bos", "bos_added", "real_tokens", "output_tokens")
    }
    return {
        "target_tokens": tier,
        **counts,
        "bos_policy": "excluded",
        "ttft_s": ttft_s,
        "tpot_ms": tpot_ms,
        "unit_price_ms": price,
        "prefill_parallelism": tpot_ms / price if tpot_ms and price else None,
        "requests": len(records),
        "ok": len(whole),
        "rounds": rounds,
    }


def _round(record: Mapping[str, Any]) -> dict[str, Any]:
    bos = record["bos_tokens"] or 0
    return {
        "round": record["round"],
        "tokens_with_bos": record["prompt_tokens"],
        "bos_added": bos,
        "real_tokens": record["prompt_tokens"] - bos,
        "output_tokens": record["output_tokens"],
        "ttft_s": record["ttft_ms"] / 1000,
        "tpot_ms": record["tpot_ms"],
        "unit_price_ms": timing.unit_price_ms(record["ttft_ms"], record["prompt_tokens"], bos, record["cached_tokens"]),
    }


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
