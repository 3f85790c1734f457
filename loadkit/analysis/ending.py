"""How a run ended, as the exit code a pipeline reads: from the manifest and the cells, never from a process's mood."""

from collections.abc import Iterable, Mapping
from typing import Any

from loadkit.analysis.missing import missing
from loadkit.analysis.repeats import repeats, standing
from loadkit.analysis.resumes import excused, resumes
from loadkit.measure import slo
from loadkit.measure.validity import exit_code
from loadkit.record.names import Outcome

# States of a visit that is over as it should be: done, or changed on purpose while the run went on.
SETTLED = frozenset({"done", "ended", "dropped"})
# Outcomes that say the target itself cannot be loaded, whatever the length of a prompt.
UNREACHABLE = frozenset(
    {
        Outcome.AUTH,
        Outcome.FORBIDDEN,
        Outcome.NOT_FOUND,
        Outcome.MODEL_NOT_FOUND,
        Outcome.CONNECT_ERROR,
        Outcome.DNS_ERROR,
        Outcome.TLS_ERROR,
        Outcome.PROXY_ERROR,
        Outcome.CONNECT_TIMEOUT,
    }
)


def ending(
    manifest: Mapping[str, Any], cells: Iterable[Mapping[str, Any]], *, saturated: bool, damaged_lines: int = 0
) -> int | None:
    """The exit code of the run (`loadkit.record.names.ExitCode`); None when the manifest is not there to tell.

    saturated: the load generator was unhealthy in some cell. damaged_lines: lines of the records that cannot be read;
    with one that no resume knew of, or with fewer measured records than the plan took, the run is not complete. A cell
    of nothing but refusals is a finished measurement, unless they say that the target cannot be loaded at all.
    """
    if not manifest.get("ended_at"):
        return exit_code(incomplete=True) if manifest else None
    cells = list(cells)
    return exit_code(
        target=_unreachable(cells),
        stopped=bool(manifest.get("stopped_by")),
        saturated=saturated,
        incomplete=damaged_lines > excused(manifest)
        or bool(missing(manifest, cells))
        or not _complete(manifest, cells),
        slo_failed=_missed(manifest, cells),
    )


def _missed(manifest: Mapping[str, Any], cells: list[Mapping[str, Any]]) -> bool:
    """Whether an objective is missed. A search for the highest rate looks for one that misses: there, whether no rate
    of a tier meets them."""
    broken = {item["cell"] for item in objectives(manifest, cells) if item["met"] is False}
    plan = manifest.get("plan")
    if not isinstance(plan, Mapping) or not plan.get("rate_search"):
        return bool(broken)
    kept = {cell["tier_tokens"] for cell in cells if cell["cell"] not in broken}
    return any(cell["tier_tokens"] not in kept for cell in cells if cell["cell"] in broken)


def objectives(manifest: Mapping[str, Any], cells: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every objective of the plan in every cell that is not invalid: what it is, what was measured, whether it is met.

    `value` and `limit` are in ms, for error_rate a share of 1; `met` is None where the cell does not have the number.
    """
    usable = [cell for cell in cells if cell["validity"]["status"] != "invalid"]
    return [
        {
            "cell": cell["cell"],
            "name": item.name,
            "limit": item.limit,
            "value": item.value(cell),
            "met": item.holds(cell),
        }
        for item in _slos(manifest) or []
        for cell in usable
    ]


def _slos(manifest: Mapping[str, Any]) -> list[slo.Slo] | None:
    """The objectives of the plan; None where the manifest holds something that is none."""
    plan = manifest.get("plan")
    text = plan.get("slo") if isinstance(plan, Mapping) else None
    try:
        return slo.parse(text) if text else []
    except (ValueError, TypeError, AttributeError):  # a damaged manifest
        return None


def course(manifest: Mapping[str, Any], cells: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any] | None:
    """How the run went as a whole: what stopped it, how many of its visits are done, and which of their measured
    requests are `missing` in the records. None without a manifest."""
    if not manifest:
        return None
    visits = standing(manifest)
    return {
        "ended": bool(manifest.get("ended_at")),
        "stopped_by": _text(manifest.get("stopped_by")),
        "fault": _text(manifest.get("fault")),
        "limit": _text(manifest.get("limit")),
        "resumes": resumes(manifest),
        "visits": sum(visit.get("state") != "dropped" for visit in visits),
        "visits_done": sum(visit.get("state") in ("done", "ended") for visit in visits),
        "changes": _changes(visits),
        "refine": _refine(manifest, visits),
        "repeated": repeats(manifest),
        "missing": missing(manifest, cells),
        "slo_readable": _slos(manifest) is not None,
    }


def _refine(manifest: Mapping[str, Any], visits: Iterable[Mapping[str, Any]]) -> dict[str, int] | None:
    """How many tiers --refine was allowed to add, and did; None where it was not asked for."""
    plan = manifest.get("plan")
    wanted = plan.get("refine") if isinstance(plan, Mapping) else None
    if type(wanted) is not int or wanted < 1:
        return None
    why = {str(visit.get("cell")): _text(visit.get("why")) or "" for visit in visits}
    return {"wanted": wanted, "added": sum(text.startswith("refine:") for text in why.values())}


def _changes(visits: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What was changed of the plan while the run went on, once per cell: {cell, change, why}; change is added, ended
    or dropped."""
    found = {}
    for visit in visits:
        change, why = visit.get("state"), _text(visit.get("why"))
        if change not in ("ended", "dropped"):
            change = "added"
        if why is not None:
            cell = str(visit.get("cell"))
            found[cell, change] = {"cell": cell, "change": change, "why": why}
    return list(found.values())


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _unreachable(cells: list[Mapping[str, Any]]) -> bool:
    outcomes = {name for cell in cells for name, count in cell["outcomes"].items() if count}
    return bool(outcomes) and outcomes <= UNREACHABLE


def _complete(manifest: Mapping[str, Any], cells: list[Mapping[str, Any]]) -> bool:
    planned = manifest.get("visits")
    whole = isinstance(planned, list) and all(isinstance(visit, Mapping) for visit in planned)
    done = whole and all(str(visit.get("state")) in SETTLED for visit in standing(manifest))
    if manifest.get("limit") and not planned:  # nothing else says that the users had more to do
        return False
    return done and not manifest.get("fault") and all(cell["validity"]["status"] != "invalid" for cell in cells)
