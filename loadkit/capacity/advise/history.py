"""What was tried, in order: one change at a time, tokens/s before and after, a conclusion and how it was started.

An entry is plain JSON. Inputs that one change moves together (weights, bits and cache of another model) are one thing;
an entry that changes two things says nothing about either and is refused.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from loadkit.capacity.advise.advice import Advice
from loadkit.capacity.advise.situation import Situation
from loadkit.capacity.errors import CardError

SCHEMA = "loadkit-advice-history/1"
SAME = 0.03  # a change of tokens/s up to this share is none
# What one change moves. Answers that describe no setting (a target, a bandwidth, a need) are no change of the set-up.
THINGS = {
    "engine": ("engine",),
    "model": ("weights_gb", "quant_bits", "kv_bytes_per_token", "moe", "active_gb", "layers", "min_quant_bits"),
    "context": ("ctx_set",),
    "users": ("users", "seqs"),
    "prefix reuse": ("prefix_reuse",),
    "input": ("shared_prefix_share", "prefill_share"),
    "machine": ("mem_gb", "pcie_gen"),
    "draft": ("draft_gb",),
}


def read(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The entries of a history file; CardError names the first line that is none."""
    past = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or row.get("schema") != SCHEMA or not _whole(row):
            raise CardError(f"line {number} is no entry of a history of `loadkit advise`")
        past.append(row)
    return past


def _whole(row: Mapping[str, Any]) -> bool:
    """Whether what later entries read is there."""
    measured = row.get("after_tps")
    step = row.get("next")
    told = isinstance(row.get("situation"), dict) and isinstance(step, dict) and {"layer", "launch"} <= set(step)
    shown = {"number", "changed", "before_tps", "conclusion", "launch"} <= set(row)
    return told and shown and isinstance(measured, (int, float)) and measured > 0


def changed(before: Mapping[str, Any], now: Situation) -> list[str]:
    """The things that differ from the entry's situation, an answer given for the first time left out."""
    flat = asdict(now)
    return [
        thing
        for thing, names in THINGS.items()
        if any(before.get(name) is not None and flat[name] is not None and before[name] != flat[name] for name in names)
    ]


def entry(
    past: Sequence[Mapping[str, Any]], now: Situation, advice: Advice, *, launch: str | None, at: str
) -> dict[str, Any]:
    """The entry of a measured situation (measured_tps) after those of `past`. CardError for two changes at once.

    `launch`: the command it was started with; without one, that of the advice which the last entry gave. `advice`: what
    is advised now; its layer and command are kept as the next step.
    """
    if now.measured_tps is None:
        raise CardError("a history holds measurements: give the tokens/s of one stream with --measured")
    last = past[-1] if past else None
    things = changed(last["situation"], now) if last else []
    if len(things) > 1:
        raise CardError(
            f"two things changed since the last entry ({' and '.join(things)}): measure after each one, "
            "or neither is known to have helped"
        )
    before = last["after_tps"] if last else None
    return {
        "schema": SCHEMA,
        "number": len(past) + 1,
        "at": at,
        "changed": things[0] if things else None,
        "layer": last["next"]["layer"] if last and things else None,
        "before_tps": before,
        "after_tps": now.measured_tps,
        "conclusion": conclusion(before, now.measured_tps),
        "launch": launch or (last["next"]["launch"] if last and things else None),
        "situation": {name: value for name, value in asdict(now).items() if value is not None},
        "next": {"layer": advice.layer, "action": advice.action, "title": advice.title, "launch": advice.launch},
    }


def conclusion(before: float | None, after: float) -> str:
    """What a change of tokens/s says."""
    if before is None:
        return f"{after:g} tokens/s to begin with"
    share = after / before - 1
    if abs(share) <= SAME:
        return f"{before:g} to {after:g} tokens/s ({share:+.0%}): no difference"
    return f"{before:g} to {after:g} tokens/s ({share:+.0%}): {'keep it' if share > 0 else 'take it back'}"
