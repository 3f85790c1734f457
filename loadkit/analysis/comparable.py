"""What two runs differ in, by their manifests, and whether they may be compared at all.

Runs are compared when they differ in one named thing: the model, the endpoint, or one setting. Hardware, concurrency,
max_tokens, filler, temperature and prompt seed are the guard: a difference in any of them is never the thing compared.
Cells are matched by tier, so the tiers of two runs may differ. What follows from the model (its tokenizer, BOS, window)
counts as the model; of a target that loadkit starts itself, the port, the process and the load time say nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from loadkit.analysis.reading import number, rows

GUARD = ("hardware", "concurrency", "max_tokens", "filler", "temperature", "prompt seed")
_OWN = ("engine", "sim")  # targets that are started by the run and get a port of their own
_PLAN_ELSEWHERE = {"name", "cells", "slo", "seed", "filler", "prompts", "headers", "extra_body", *GUARD}
_OF_THE_MODEL = {"parameters", "source", "dtype", "tokenizer", "bos_tokens", "template_tokens", "bytes_per_token"}
_OF_ONE_START = {"kind", "ready", "url", "model", "pid", "truth", "load_s", "context"}
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs: its name, its value in run A and its value in run B (None = not there)."""

    name: str
    a: Any
    b: Any

    @property
    def guarded(self) -> bool:
        """Whether nothing may be compared across it."""
        return self.name in GUARD

    @property
    def shown(self) -> tuple[str, str]:
        """Both values as they may be printed: clipped, and never that of a header."""
        return _short(self.a), _short(self.b)

    def __str__(self) -> str:
        return f"{self.name}: {' against '.join(self.shown)}"


def changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    """Everything the manifests differ in, the guard first."""
    left, right = conditions(a), conditions(b)
    found = [
        Change(name, left.get(name), right.get(name))
        for name in dict.fromkeys((*left, *right))
        if left.get(name) != right.get(name)
    ]
    names = {change.name for change in found}
    if "model" in names:
        found = [change for change in found if change.name not in ("tokenizer", *_target_names(_OF_THE_MODEL))]
    if "endpoint" in names:
        found = [change for change in found if not change.name.startswith("target ")]
    return found


def one_thing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Change | None:
    """The one thing the runs differ in; None when the manifests tell them apart in nothing (a repeat).

    Raises ValueError naming everything that differs when it is more than one thing, or guarded.
    """
    found = changes(a, b)
    if guarded := [change.name for change in found if change.guarded]:
        hint = "; give both runs the same --seed" if "prompt seed" in guarded else ""
        listed = "; ".join(map(str, found))
        raise ValueError(f"nothing is compared across {', '.join(guarded)}. The runs differ in {listed}{hint}")
    if len(found) > 1:
        raise ValueError(
            f"runs are compared that differ in one thing; these differ in {len(found)}: {'; '.join(map(str, found))}"
        )
    return found[0] if found else None


def _load(cell: Mapping[str, Any]) -> str:
    """Planned streams, or the rate of an open loop and the most streams it may use."""
    streams, rate = str(cell.get("concurrency")), number(cell, "rate")
    return streams if rate is None else f"{rate:g}/s through {streams}"


def conditions(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> value of everything that could change a number of the run, guard first, in a fixed order."""
    plan, endpoint, target, host = (_part(manifest, name) for name in ("plan", "endpoint", "target", "host"))
    own = target.get("kind") in _OWN
    known = {
        "hardware": _joined(host.get("machine"), host.get("cpus"), "CPUs"),
        "concurrency": sorted({_load(cell) for cell in rows(plan, "cells")}),
        "max_tokens": plan.get("max_tokens"),
        "filler": _filler(plan, _part(manifest, "prompts")),
        "temperature": plan.get("temperature"),
        "prompt seed": plan.get("seed"),
        "model": _joined(endpoint.get("model"), *(target.get(name) for name in ("parameters", "source"))),
        "endpoint": target.get("kind") if own else _address(endpoint.get("base_url")),
        "protocol": endpoint.get("protocol"),
        "proxied": _part(manifest, "check").get("proxied"),
        "loadkit version": _part(manifest, "versions").get("loadkit"),
    }
    settings = {name: value for name, value in plan.items() if name not in _PLAN_ELSEWHERE}
    extra = {f"extra_body {name}": value for name, value in _part(plan, "extra_body").items()}
    headers = {f"header {name}": _Hidden(value) for name, value in _part(plan, "headers").items()}
    facts = {f"target {name}": value for name, value in _flat(target).items() if name not in _OF_ONE_START}
    return {**known, **settings, **extra, **headers, **facts}


class _Hidden(str):
    """The value of a header: compared, never shown."""

    def __new__(cls, value: Any) -> "_Hidden":
        return super().__new__(cls, value)


def _short(value: Any) -> str:
    if isinstance(value, _Hidden):
        return "(a value)"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _target_names(names: set[str]) -> set[str]:
    return {f"target {name}" for name in names}


def _part(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = row.get(name)
    return value if isinstance(value, Mapping) else {}


def _joined(*values: Any) -> str | None:
    """The values that are there in one text; None without any but the last."""
    found = [str(value) for value in values if value is not None]
    return " ".join(found) if values[0] is not None else None


def _filler(plan: Mapping[str, Any], prompts: Mapping[str, Any]) -> str | None:
    """The filler by id and text, or the file of public prompts in its place."""
    hashes = sorted({str(tier["filler_sha256"])[:8] for tier in rows(prompts, "tiers") if tier.get("filler_sha256")})
    return _joined(plan.get("prompts") or plan.get("filler"), *hashes)


def _address(base_url: Any) -> str | None:
    """Scheme, host, port and path of an address; nothing that could hold a key."""
    if not isinstance(base_url, str):
        return None
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested facts under dotted names."""
    found: dict[str, Any] = {}
    for name, value in facts.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found
