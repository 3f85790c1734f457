"""How often a run was resumed, after what, and what of it was measured again."""

from collections.abc import Mapping
from typing import Any

from loadkit.analysis.reading import number, numbers, rows

# What had ended a run, by its name in the manifest; a signal is told by its own name.
AFTER = {"stopped_by": "", "fault": "a fault", "limit": "a budget", "ended_at": "an end with visits left"}


def resumes(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every resume in order: `after` is what had ended the run before, None where it was cut; `repeated` are indexes of
    the visits that were measured again."""
    found = []
    for resume in rows(manifest, "resumes"):
        before = resume.get("before")
        before = before if isinstance(before, Mapping) else {}
        after = next((words or str(before[name])[:40] for name, words in AFTER.items() if before.get(name)), None)
        found.append({"after": after, "repeated": [int(index) for index in numbers(resume, "repeated")]})
    return found


def excused(manifest: Mapping[str, Any]) -> float:
    """Lines of the records that could not be read when the run was last resumed: whatever they held was measured again,
    because their visits had too few records."""
    return max((number(resume, "damaged_lines") or 0 for resume in rows(manifest, "resumes")), default=0)
