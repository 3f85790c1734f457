"""What was planned, of whom, and with which versions: the manifest for people. It may be missing or partial."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from loadkit.analysis.reading import number, rows
from loadkit.report import numbers
from loadkit.report.escape import plain

Pair = tuple[str, str]
_LONGEST = 200_000  # characters of the manifest that are shown
_PLAN = {
    "name": "Plan",
    "rounds": "Rounds",
    "warmup": "Warm-up requests",
    "max_tokens": "Max tokens of an answer",
    "temperature": "Temperature",
    "seed": "Seed of the prompts",
    "filler": "Filler text",
    "shared_prefix": "Shared prefix",
    "arrivals": "Arrivals of an open loop",
    "slo": "Objectives",
    "retry": "Retries",
}


def of_run(manifest: Mapping[str, Any]) -> list[Pair]:
    """What was asked of whom, as (name, value); what the manifest does not say is left out."""
    endpoint, plan = part(manifest, "endpoint"), part(manifest, "plan")
    cells = rows(plan, "cells")
    pairs = [
        ("Model", endpoint.get("model") or manifest.get("model")),
        ("Base URL", endpoint.get("base_url")),
        ("Protocol", endpoint.get("protocol")),
        ("Key", _key(endpoint)),
        ("Target", part(manifest, "target").get("kind")),
        ("Started", manifest.get("started_at")),
        ("Ended", manifest.get("ended_at")),
        ("Context tiers", ", ".join(_distinct(cells, "tier_tokens"))),
        ("Concurrency", ", ".join(_distinct(cells, "concurrency"))),
        ("Requests per second", ", ".join(f"{rate:g}" for rate in _rates(cells))),
        *((title, plan.get(name)) for name, title in _PLAN.items()),
        ("Prompt tokens", part(manifest, "prompts").get("counter")),
        ("Command", _command(manifest)),
    ]
    return [(title, plain(_say(value), limit=800)) for title, value in pairs if value not in (None, "")]


def versions(manifest: Mapping[str, Any]) -> list[Pair]:
    """Programs and libraries with their versions, and the machine of the load generator."""
    found = [*part(manifest, "versions").items(), *part(manifest, "host").items()]
    return [(plain(str(name)), plain(_say(value))) for name, value in found]


def whole(manifest: Mapping[str, Any]) -> str:
    """The manifest as text, every line without control characters."""
    text = json.dumps(manifest, indent=1, ensure_ascii=True)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "\n..."


def part(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under the name, or an empty one."""
    value = manifest.get(name)
    return value if isinstance(value, Mapping) else {}


def _key(endpoint: Mapping[str, Any]) -> str:
    """Where the key came from; never the key."""
    if endpoint.get("key_env"):
        return f"from ${endpoint['key_env']}"
    return "from a file" if endpoint.get("key_file") else "none"


def _distinct(cells: Iterable[Mapping[str, Any]], key: str) -> list[str]:
    found = sorted({cell[key] for cell in cells if isinstance(cell.get(key), int)})
    return [numbers.tier(value) if key == "tier_tokens" else str(value) for value in found]


def _rates(cells: Iterable[Mapping[str, Any]]) -> list[float]:
    return sorted({rate for cell in cells if (rate := number(cell, "rate")) is not None})


def _command(manifest: Mapping[str, Any]) -> str:
    words = manifest.get("command")
    return " ".join(str(word) for word in words) if isinstance(words, list) else ""


def _say(value: Any) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
