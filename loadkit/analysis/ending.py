"""How a run ended, as the exit code a pipeline reads: from the manifest and the cells, never from a process's mood."""

from collections.abc import Iterable, Mapping
from typing import Any

from loadkit.analysis.missing import missing
from loadkit.analysis.reading import rows
from loadkit.measure import slo
from loadkit.measure.validity import exit_code
from loadkit.record.names import Outcome

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
    with one of them, or with fewer measured records than the plan took, the run is not complete. A cell of nothing but
    refusals is a finished measurement, unless the refusals say that the target cannot be loaded at all.
    """
    if not manifest.get("ended_at"):
        return exit_code(incomplete=True) if manifest else None
    cells = list(cells)
    return exit_code(
        target=_unreachable(cells),
        stopped=bool(manifest.get("stopped_by")),
        saturated=saturated,
        incomplete=bool(damaged_lines or missing(manifest, cells)) or not _complete(manifest, cells),
        slo_failed=any(item["met"] is False for item in objectives(manifest, cells)),
    )


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
    visits = rows(manifest, "visits")
    return {
        "ended": bool(manifest.get("ended_at")),
        "stopped_by": _text(manifest.get("stopped_by")),
        "fault": _text(manifest.get("fault")),
        "visits": len(visits),
        "visits_done": sum(visit.get("state") == "done" for visit in visits),
        "missing": missing(manifest, cells),
        "slo_readable": _slos(manifest) is not None,
    }


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _unreachable(cells: list[Mapping[str, Any]]) -> bool:
    outcomes = {name for cell in cells for name, count in cell["outcomes"].items() if count}
    return bool(outcomes) and outcomes <= UNREACHABLE


def _complete(manifest: Mapping[str, Any], cells: list[Mapping[str, Any]]) -> bool:
    visits = manifest.get("visits")
    done = isinstance(visits, list) and all(isinstance(v, Mapping) and v.get("state") == "done" for v in visits)
    return done and not manifest.get("fault") and all(cell["validity"]["status"] != "invalid" for cell in cells)
