"""Built tiers on disk: the escaped body in one file, everything else as JSON beside it.

Workers map the body read-only, so that all processes and users of a machine share one copy of it.
"""

import json
import mmap
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from loadkit.plan.errors import ConfigError
from loadkit.prompt.heads import Heads
from loadkit.prompt.tier import TierText


def meta(tier: TierText) -> dict[str, Any]:
    """All of a tier but its body, as JSON values."""
    plain = {f.name: getattr(tier, f.name) for f in fields(tier) if f.name not in ("body", "heads")}
    heads = {f.name: getattr(tier.heads, f.name) for f in fields(tier.heads)}
    return {"schema": "loadkit-tier/1", **plain, "heads": heads, "body_bytes": len(tier.body)}


def save(tier: TierText, folder: Path) -> Path:
    """Write a tier into `folder` and return the path of its JSON file.

    The files are named by filler and length and take their place whole, the JSON last.
    """
    path = folder / f"{tier.filler_id}-{tier.tier_tokens}.json"
    _replace(path.with_suffix(".body"), tier.body)
    _replace(path, json.dumps(meta(tier), ensure_ascii=False).encode())
    return path


def load(path: Path) -> TierText:
    """The tier saved at `path`, its body mapped. ConfigError when the files are missing or do not belong together."""
    try:
        known = json.loads(path.read_bytes())
        body = _mapped(path.with_suffix(".body"))
        heads = Heads(**{**known["heads"], "units": tuple(known["heads"]["units"])})
        values = {f.name: known[f.name] for f in fields(TierText) if f.name not in ("body", "heads")}
        size = known["body_bytes"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no prompt tier that can be read: {error}") from None
    if len(body) != size:
        raise ConfigError(f"{path.with_suffix('.body')} has {len(body)} bytes and not {size}: build the tier again")
    return TierText(body=body, heads=heads, **values)


def _mapped(path: Path) -> memoryview:
    """The bytes of a file as a read-only view of its mapping, which lives as long as a view of it does."""
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _replace(path: Path, data: bytes | memoryview) -> None:
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    beside.write_bytes(data)
    beside.replace(path)
