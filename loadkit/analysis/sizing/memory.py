"""How many sequences run at once: by the cache formula of the model card, and by Little's law at the plateau."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, fsum

from loadkit.analysis.sizing.core import Served
from loadkit.analysis.sizing.figures import Figure, said
from loadkit.analysis.sizing.judged import STREAMS, Row
from loadkit.analysis.sizing.question import Hardware
from loadkit.capacity.memory import GIB, Fit, fit
from loadkit.capacity.queueing import SATURATED, running

QUEUED = 0.95  # fewer running than this share of the streams: the others wait for a place
AGREE = 0.05


@dataclass(frozen=True, slots=True)
class Places:
    """`formula`: sequences of this length that the memory holds (None without a card); `implied`: how many were seen
    to run while others waited (None where none waited), and at which loads."""

    formula: Fit | None
    implied: float | None
    loads: tuple[float, ...]

    @property
    def memory_binds(self) -> bool:
        """Whether the cache is what keeps more from running: both counts agree within 5 %."""
        if self.formula is None or self.implied is None:
            return False
        return abs(self.implied - self.formula.max_sequences) <= AGREE * self.implied


def places(served: Served, hardware: Hardware | None) -> Places:
    """Both counts for an entry of the mix."""
    implied, loads = _implied(served)
    return Places(formula(served, hardware) if hardware else None, implied, loads)


def formula(served: Served, hardware: Hardware) -> Fit:
    """The cache formula for prompts and answers of the entry. Blocks are not rounded up: a mean is compared with it."""
    tokens = ceil(served.share.tier_tokens + served.output_tokens)
    return fit(hardware.card, hardware.memory, tokens, bits=hardware.bits, kv=hardware.kv, block=1)


def _implied(served: Served) -> tuple[float | None, tuple[float, ...]]:
    """Mean of X (TTFT without a queue + gaps) over the loads at the plateau in which some wait.

    The TTFT without a queue is the one at the highest load whose TTFT objective holds: what it holds on top of an idle
    server's is sharing, not waiting.
    """
    rows = [row for row in served.curve.rows if row.kind == STREAMS and row.gap_s]
    calm = served.best if served.best in rows else None
    top = max((row.point.requests_per_s for row in rows), default=0.0)
    if calm is None:
        return None, ()
    found = {row.point.load: running_at(row, calm, served.curve.output_tokens) for row in rows}
    busy = {
        row.point.load: found[row.point.load]
        for row in rows
        if row.point.requests_per_s >= SATURATED * top and found[row.point.load] < QUEUED * row.point.load
    }
    return (fsum(busy.values()) / len(busy), tuple(busy)) if busy else (None, ())


def running_at(row: Row, calm: Row, output_tokens: float) -> float:
    return running(row.point.requests_per_s, calm.ttft_s, row.gap_s, output_tokens)


def figures(served: Served, found: Places, hardware: Hardware | None) -> list[Figure]:
    """Both counts as figures."""
    name, answer = served.share.name, []
    if found.formula and hardware:
        space = found.formula
        answer.append(
            Figure(
                f"{name}.sequences_formula",
                f"sequences of {space.tokens} tokens that fit, by the cache formula",
                space.max_sequences,
                "sequences",
                "floor((GPUs x memory x use - weights - overhead) / cache of one sequence)",
                {
                    "budget": said(space.budget / GIB, "GiB"),
                    "weights": said(space.weights / GIB, "GiB"),
                    "overhead": said(space.overhead / GIB, "GiB"),
                    "cache of one sequence": said(space.per_sequence / GIB, "GiB"),
                    "cache type": hardware.kv,
                    "model card": f"{hardware.card.name} ({hardware.card.source})",
                },
            )
        )
    if found.implied is not None and served.best is not None:
        answer.append(
            Figure(
                f"{name}.sequences_running",
                "sequences that ran while others waited",
                found.implied,
                "sequences",
                "mean of requests/s x (TTFT without a queue + (output tokens - 1) x TPOT), Little's law at the plateau",
                {
                    "loads at the plateau": ", ".join(f"{load:g}" for load in found.loads) + " streams",
                    "TTFT without a queue": said(served.best.ttft_s, "s"),
                    "output tokens": said(served.curve.output_tokens),
                },
            )
        )
    return answer


def with_cache(hardware: Hardware, kv: str) -> Hardware:
    """The same with a cache of another type."""
    return replace(hardware, kv=kv)


def memory_sentences(served: Sequence[Served], found: Sequence[Places]) -> list[str]:
    """What the two counts say of each other."""
    lines = []
    for entry, place in zip(served, found, strict=True):
        if place.formula and entry.best and entry.best.streams > place.formula.max_sequences:
            lines.append(
                f"{entry.share.name}: {entry.best.streams:g} streams held their objectives and the cache formula has "
                f"room for {place.formula.max_sequences}: this card, memory or cache type is not what was measured."
            )
        if place.formula is None or place.implied is None:
            continue
        says = "agree: the cache is what keeps more from running" if place.memory_binds else "disagree"
        lines.append(
            f"{entry.share.name}: {place.implied:.0f} sequences ran at the plateau and the cache formula gives "
            f"{place.formula.max_sequences}; they {says}."
        )
    return lines
