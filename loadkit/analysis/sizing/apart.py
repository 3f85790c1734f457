"""Workers where prefill and decode run apart, by the scheme of NVIDIA Dynamo's planner, from the same curves."""

from math import fsum

from loadkit.analysis.sizing.core import Core, Served
from loadkit.analysis.sizing.figures import Figure, said
from loadkit.analysis.sizing.judged import STREAMS
from loadkit.analysis.sizing.question import Question
from loadkit.capacity.replicas import decode_work, prefill_work, whole

DECODE = ("itl", "tpot")  # objectives that a decode worker has to hold


def figures(core: Core, question: Question) -> list[Figure]:
    """Prefill and decode workers for the mix; none where a tier was not measured alone, or never held its ITL."""
    rate, speeds = question.rate, [(_reads(entry), _writes(entry)) for entry in core.served]
    if rate is None or any(reads is None or writes is None for reads, writes in speeds):
        return []
    entries = [(entry, reads or 0.0, writes or 0.0) for entry, (reads, writes) in zip(core.served, speeds, strict=True)]
    parts = [(rate * entry.share.share, entry, reads, writes) for entry, reads, writes in entries]
    prefill = fsum(prefill_work(load, entry.share.tier_tokens, reads) for load, entry, reads, _ in parts)
    decode = fsum(decode_work(load, entry.output_tokens, writes) for load, entry, _, writes in parts)
    return [
        Figure(
            "replicas.apart_prefill",
            "prefill workers, were prefill and decode apart",
            whole(prefill),
            "workers",
            "ceil(sum of arrivals/s x prompt tokens / prefill tokens/s of one stream alone)",
            {f"{entry.share.name} prefill": said(reads, "tokens/s") for entry, reads, _ in entries},
            note="not measured apart",
        ),
        Figure(
            "replicas.apart_decode",
            "decode workers beside them",
            whole(decode),
            "workers",
            "ceil(sum of arrivals/s x output tokens / the most output tokens/s of loads that hold ITL and TPOT)",
            {f"{entry.share.name} decode": said(writes, "tokens/s") for entry, _, writes in entries},
            note="a lower rate than decode alone has: prefill ran beside it",
        ),
    ]


def _reads(entry: Served) -> float | None:
    """Prompt tokens per second of one stream alone."""
    alone = next((row for row in entry.curve.rows if row.kind == STREAMS and row.point.load == 1 and row.ttft_s), None)
    return entry.curve.prompt_tokens / alone.ttft_s if alone else None


def _writes(entry: Served) -> float | None:
    """The most output tokens per second among the loads whose answers keep their pace."""
    kept = [
        row.cell["output_tokens_per_s"]
        for row in entry.curve.rows
        if row.cell["output_tokens_per_s"] and not {n.partition(".")[0] for n in row.point.missed} & set(DECODE)
    ]
    return max(kept, default=None)
