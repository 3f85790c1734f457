"""A cell of a board run under the names that articles use, beside the engine's own clocks and the memory's bound.

Decode_TPS_P50 is 1000 / ITL_P50 and is given only where one event is one token and one read; TTFT is the client's, by
HTTP, and holds the server's tokenizer, which it cannot take out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from loadkit.analysis.spread import median
from loadkit.analysis.strata import Stratum
from loadkit.capacity.boards import published
from loadkit.capacity.boards.bench import bench
from loadkit.capacity.boards.bound_check import Bench, check
from loadkit.capacity.card import ModelCard
from loadkit.capacity.errors import CardError
from loadkit.capacity.roofline import dram_bandwidth
from loadkit.record.names import Flag

CHARACTERS = Flag.EVENTS_ARE_CHARACTERS.value
SAME = 0.01  # a clock nearer than this to the one assumed is that one


def board_cell(
    stratum: Stratum,
    cell: Mapping[str, Any],
    facts: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    card: ModelCard | None,
) -> dict[str, Any]:
    """One row: ms, tokens/s and shares. What is not known is None, and `no_decode` or `no_bound` says why."""
    ttft, itl = cell["ttft_ms"] or {}, cell["itl_ms"] or {}
    gaps = itl.get("p50")
    rate = cell["decode_tokens_per_s"]
    known = _bench(facts, rows, card)
    return {
        "cell": cell["cell"],
        "tier_tokens": cell["tier_tokens"],
        "concurrency": cell["concurrency"],
        "n": cell["ok"],
        "low_n": ttft.get("low_n"),
        "TTFT_P50": ttft.get("p50"),
        "TTFT_P99": ttft.get("p99"),
        "ITL_P50": gaps,
        "ITL_P99": None if gaps is None else itl.get("p99"),
        "Decode_TPS_P50": 1000 / gaps if gaps else None,
        "decode_tokens_per_s": rate,
        "no_decode": _why_no_decode(cell),
        **_engine(stratum, ttft.get("p50")),
        "bound": _bound(rate, known),
        "no_bound": known if isinstance(known, str) else None,
    }


def _why_no_decode(cell: Mapping[str, Any]) -> str | None:
    """Why there is no Decode_TPS_P50, where there is none."""
    if CHARACTERS in cell["flags"]:
        return "events are characters and no tokens are stated"
    if cell["itl_withheld"]:
        return ", ".join(cell["itl_withheld"])
    return None if cell["itl_ms"] else "no gap between tokens was seen"


def _engine(stratum: Stratum, ttft: float | None) -> dict[str, float | None]:
    """Medians of what the engine says of itself, and the tokenizer's share of the client's TTFT."""
    prefill, decode, tokenize = (
        median(stratum.stated[name]) for name in ("server_prefill_ms", "server_decode_ms", "tokenize_ms")
    )
    return {
        "engine_prefill_ms": prefill,
        "engine_decode_ms": decode,
        "tokenize_ms": tokenize,
        "tokenize_share": tokenize / ttft if tokenize is not None and ttft else None,
    }


def _bench(facts: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], card: ModelCard | None) -> Bench | str:
    """Bytes and bandwidth that the rate is held against, or the reason why there is nothing to hold it against."""
    quant = facts.get("quantisation")
    name = quant.get("name") if isinstance(quant, Mapping) else None
    bandwidth = _bandwidth(facts, rows)
    if card is None:
        return "no model card: name one with --card"
    if bandwidth is None:
        return "the memory's bandwidth is not known: give it with --bandwidth"
    try:
        known = bench(card, name, _published(facts), bandwidth=bandwidth[0], bandwidth_from=bandwidth[1])
    except CardError as error:
        return str(error)
    return known


def _published(facts: Mapping[str, Any]) -> published.Board | None:
    """The board's published rates, for the band and the causes; None where nobody published any."""
    try:
        return published.board(str(facts.get("board")))
    except CardError:
        return None


def _bandwidth(facts: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> tuple[float, str] | None:
    """Bytes/s and who says so. A theoretical figure follows the clock that was seen, where that is another one."""
    stated = facts.get("bandwidth")
    if not isinstance(stated, Mapping) or not isinstance(stated.get("bytes_per_s"), int | float):
        return None
    bits, clock = stated.get("bus_bits"), stated.get("clock_hz")
    seen = max((row["frequency_hz"]["ddr"] for row in rows if "ddr" in (row.get("frequency_hz") or {})), default=None)
    if bits and clock and seen and abs(seen - clock) > SAME * clock:
        return dram_bandwidth(seen, bits), f"theoretical, at the {seen / 1e6:.0f} MHz that were seen, {bits} bit"
    return float(stated["bytes_per_s"]), str(stated.get("source"))


def _bound(rate: float | None, known: Bench | str) -> dict[str, Any] | None:
    """The verdict on a decode rate: bound, share of it, sentence, and the causes of what cannot be."""
    if rate is None or isinstance(known, str):
        return None
    found = check(rate, known)
    return {
        "tokens_per_s": found.bound,
        "share": found.share,
        "reading": found.reading,
        "implied_bytes_per_s": found.implied_bandwidth,
        "bytes_per_token": known.bytes_per_token,
        "bytes_from": known.bytes_from,
        "bandwidth_bytes_per_s": known.bandwidth,
        "bandwidth_from": known.bandwidth_from,
        "sentence": found.sentence,
        "causes": [asdict(cause) for cause in found.causes],
    }
