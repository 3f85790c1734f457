"""Facts that need not be asked: from a model card, from a run, from what a board told of itself.

Each function returns answers by field name, with who says so. A field that a source does not tell is left out.
"""

from collections.abc import Mapping
from typing import Any

from loadkit.capacity import kv as cache
from loadkit.capacity.boards import published
from loadkit.capacity.card import ModelCard
from loadkit.capacity.errors import CardError
from loadkit.capacity.memory import GB, weight_bytes
from loadkit.capacity.roofline import weights_per_step

Facts = dict[str, tuple[Any, str]]
ENGINES = {"ollama": "ollama", "rkllm": "rkllm", "rkllama": "rkllama", "llama.cpp": "llama.cpp", "vllm": "vllm"}


def from_card(card: ModelCard, bits: float | None = None, kv: str = "bf16") -> Facts:
    """Size, cache, active weights and layers of a model at `bits` per weight, or at those of its file."""
    who = f"the card of {card.name}"
    width = bits or card.bits
    facts: Facts = {}
    if width is not None:
        facts["quant_bits"] = (width, who)
        facts["weights_gb"] = (weight_bytes(card, bits) / GB, who)
    if card.dims is not None or card.kv_bytes_per_token is not None:
        facts["kv_bytes_per_token"] = (cache.per_token(card, kv), who)
    if card.dims is not None:
        facts["layers"] = (card.dims.layers, who)
        facts["moe"] = (card.dims.moe is not None, who)
    known = card.dims is not None or card.active_decode is not None
    if width is not None and known:
        facts["active_gb"] = (min(weights_per_step(card, 1, width), weight_bytes(card, bits)) / GB, who)
    return facts


def from_run(summary: Mapping[str, Any], manifest: Mapping[str, Any]) -> Facts:
    """Users, prefill share, tokens/s, shared prefix, window and engine, as far as a run measured or knew them."""
    facts: Facts = {}
    cells = [cell for cell in summary.get("cells", ()) if cell["validity"]["status"] != "invalid"]
    counted = [cell for cell in cells if cell.get("concurrency")]
    if counted:
        facts["users"] = (max(cell["concurrency"] for cell in counted), "the run's largest concurrency")
    alone = [cell for cell in counted if cell["concurrency"] == 1]
    if alone:
        longest = max(alone, key=lambda cell: cell.get("tier_tokens") or 0)
        _take(facts, "prefill_share", longest.get("prefill_share"), "the run's longest tier alone")
        tpot = (longest.get("tpot_ms") or {}).get("p50")
        _take(facts, "measured_tps", 1000 / tpot if tpot else None, "the run's longest tier alone, 1000 / TPOT")
    _take(facts, "shared_prefix_share", part(manifest, "plan").get("shared_prefix") or None, "the run's plan")
    endpoint, target = part(manifest, "endpoint"), part(manifest, "target")
    _take(facts, "ctx_set", endpoint.get("window") or target.get("window"), "the window the endpoint states")
    named = str(target.get("engine") or endpoint.get("protocol") or "")
    _take(facts, "engine", ENGINES.get(named), "the run's endpoint")
    return facts


def from_probe(probe: Mapping[str, Any]) -> Facts:
    """Memory, bandwidth and narrowest weights of a board, from `loadkit board probe --json`.

    Bandwidth measured goes before bandwidth computed, and both before the published figure of the board; of several
    measured the fastest, whose reader is named.
    """
    facts: Facts = {}
    told = _memory_facts(probe)
    total = told.get("installed, as the kernel uses it")
    _take(facts, "mem_gb", total / GB if total else None, "the probe, as the kernel uses it")
    measured = {name: rate for name, rate in told.items() if name.startswith("measured bandwidth")}
    board = _published(probe.get("board"))
    if measured:
        reader = max(measured, key=lambda name: measured[name])
        facts["bw_gbs"] = (measured[reader] / GB, f"the probe: {reader}"[:200])
    elif "theoretical bandwidth" in told:
        facts["bw_gbs"] = (told["theoretical bandwidth"] / GB, "the probe: theoretical bandwidth")
    elif board:
        facts["bw_gbs"] = (board.bandwidth / GB, f"theoretical, {board.name}")
    if board and board.min_bits:
        facts["min_quant_bits"] = (board.min_bits, f"the NPU of {board.key}")
    return facts


def part(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table inside a manifest; an empty one where it is missing or damaged."""
    value = raw.get(name)
    return value if isinstance(value, Mapping) else {}


def _take(facts: Facts, field: str, value: Any, who: str) -> None:
    if value is not None:
        facts[field] = (value, who)


def _memory_facts(probe: Mapping[str, Any]) -> dict[str, float]:
    """Positive numbers of the probe's group "memory" by name, in bytes or bytes/s."""
    found = {}
    rows = probe.get("facts")
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, Mapping) or row.get("group") != "memory":
            continue
        value = row.get("value")
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            found[str(row.get("name"))] = float(value)
    return found


def _published(name: Any) -> published.Board | None:
    try:
        return published.board(str(name))
    except CardError:
        return None
