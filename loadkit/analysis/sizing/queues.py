"""Does it wait: Little's law on every measured load, and Erlang's bound on the replicas that were worked out."""

from collections.abc import Iterable, Sequence
from math import fsum, inf

from loadkit.analysis.sizing.core import Core, Served
from loadkit.analysis.sizing.figures import Figure, said
from loadkit.analysis.sizing.judged import STREAMS, Curve, Row
from loadkit.analysis.sizing.question import Question
from loadkit.capacity.queueing import SATURATED, Wait, in_flight, onset, saturation, waiting
from loadkit.plan.tiers import tier_name

ALLOWED = 0.1  # Little's law may miss the planned streams by this share
QUANTILE = 0.95


def little(curve: Curve, row: Row) -> float | None:
    """Requests in flight by Little's law at a measured load, requests/s x (TTFT + (output - 1) x TPOT); None where a
    time is missing. In a closed loop it must be the planned streams."""
    if not row.ttft_s or (not row.gap_s and curve.output_tokens > 1):
        return None
    return in_flight(row.cell["requests_per_s"], row.ttft_s, row.gap_s, curve.output_tokens)


def doubts(curves: Iterable[Curve]) -> list[str]:
    """The loads whose numbers do not agree with each other by Little's law."""
    lines = []
    for curve in curves:
        for row in curve.rows:
            found = little(curve, row) if row.kind == STREAMS and row.point.success == 1 else None
            paused = (row.cell.get("mean_in_flight") or row.point.load) < (1 - ALLOWED) * row.point.load
            if found is None or paused or abs(found / row.point.load - 1) <= ALLOWED:
                continue
            lines.append(
                f"{tier_name(curve.tier_tokens)} x {row.point.load:g}: Little's law gives {found:.3g} requests in "
                f"flight and not {row.point.load:g}: its rate and its times do not belong together."
            )
    return lines


def onsets(curves: Iterable[Curve]) -> list[str]:
    """Where TTFT of each tier begins to grow faster than the streams."""
    lines = []
    for curve in curves:
        rows = [row for row in curve.rows if row.kind == STREAMS and row.ttft_s]
        if len(rows) < 3:
            continue
        found = onset([row.point.load for row in rows], [row.ttft_s for row in rows])
        cold = " (the first load was slower than the second, a cold start, and is left out)" if found.cold_start else ""
        until = f"up to {found.last_good:g} streams TTFT grows no faster than the load"
        beyond = f"; from there to {found.first_bad:g} it grows faster: requests wait" if found.first_bad else ""
        enough, top = saturation([row.point.load for row in rows], [row.point.requests_per_s for row in rows])
        most = f"; {SATURATED:.0%} of the most requests/s (at {top:g} streams) are reached at {enough:g}"
        lines.append(f"{tier_name(curve.tier_tokens)}: {until}{beyond}{cold}{most}.")
    return lines


def figures(core: Core, question: Question, streams: float | None) -> list[Figure]:
    """Utilisation, requests in flight, and the bounds on waiting; none without a number of replicas."""
    if core.fleet is None or question.rate is None or streams is None:
        return []
    count = core.fleet.recommended
    service = _service_s(core.served)
    alone = waiting(question.rate / count, service, int(streams))
    pool = waiting(question.rate, service, int(streams) * count)
    return [
        *_use(core, question),
        Figure(
            "queue.in_flight",
            "requests in flight in one replica, on average",
            question.rate / count * service,
            "requests",
            "requests/s of one replica x time in the system (Little's law)",
            {"requests/s of one replica": said(question.rate / count), "time in the system": said(service, "s")},
        ),
        _wait("queue.wait_pool", f"wait in {QUANTILE:.0%} of requests, a router that knows every free place", pool),
        _wait("queue.wait_alone", f"wait in {QUANTILE:.0%} of requests, a router that picks at random", alone),
        _share(alone),
    ]


def sentences(core: Core, question: Question, streams: float | None) -> list[str]:
    """Whether the bound on waiting leaves the TTFT objective standing."""
    limits = [item.limit / 1000 for item in question.objectives() if item.metric == "ttft"]
    if core.fleet is None or question.rate is None or streams is None or not limits:
        return []
    wait = waiting(question.rate / core.fleet.recommended, _service_s(core.served), int(streams)).quantile_s(QUANTILE)
    room = min(limits) - max(entry.best.ttft_s for entry in core.served if entry.best)
    fits = wait <= room
    verdict = "leaves the TTFT objective standing" if fits else "does not leave the TTFT objective standing"
    advice = "" if fits else "; route by free places, or add a replica, and check with `loadkit run --rate`"
    bound = "wait without end" if wait == inf else f"wait up to {wait:.3g} s" if wait else "do not wait"
    return [
        f"{QUANTILE:.0%} of arrivals at random {bound} (Erlang-C, an upper bound because requests are served as slowly "
        f"as at full load); {max(room, 0):.3g} s are left below the objective: this {verdict}{advice}."
    ]


def _service_s(served: Sequence[Served]) -> float:
    """Mean time in the system of the mix at each tier's goodput."""
    return fsum(entry.share.share * entry.residence_s(entry.best) for entry in served if entry.best)


def _use(core: Core, question: Question) -> list[Figure]:
    fleet = core.fleet
    assert fleet is not None
    work = {"work": said(fleet.work, "replicas")}
    found = [
        Figure(
            "queue.utilisation",
            "share of the replicas' goodput that is used",
            fleet.utilisation(),
            "",
            "work / replicas",
            {**work, "replicas": said(fleet.recommended)},
        )
    ]
    if fleet.recommended > 1:
        found.append(
            Figure(
                "queue.utilisation_one_lost",
                "the same when one replica is lost",
                fleet.utilisation(fleet.recommended - 1),
                "",
                "work / (replicas - 1)",
                {**work, "replicas": said(fleet.recommended)},
            )
        )
    return found


def _inputs(wait: Wait) -> dict[str, str]:
    return {
        "offered load": said(wait.offered, "requests in service"),
        "places": said(wait.servers),
        "time in the system": said(wait.service_s, "s"),
    }


def _wait(key: str, label: str, wait: Wait) -> Figure:
    formula = "S / (c - a) x ln(P(wait) / 0.05), Erlang-C; a bound, because S is the time at full load"
    found = wait.quantile_s(QUANTILE)
    return Figure(
        key,
        label,
        None if found == inf else found,
        "s",
        formula,
        {**_inputs(wait), "P(wait)": said(wait.p_wait)},
        note="the queue grows without end" if found == inf else "upper bound",
    )


def _share(wait: Wait) -> Figure:
    return Figure(
        "queue.p_wait",
        "share of requests that wait at all, a router that picks at random",
        wait.p_wait,
        "",
        "Erlang-C of offered load a and places c",
        _inputs(wait),
        note="upper bound",
    )
