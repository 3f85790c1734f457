"""Cases for `promtool test rules`: each alert once where it has to fire and at least once where it must not."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from loadkit.live.labels import RUN
from loadkit.live.rules import alerts
from loadkit.live.table import BY_NAME

PLACE = 'endpoint="e",tier="4096",concurrency="2"'


@dataclass(frozen=True, slots=True)
class Case:
    """Series (name and labels -> values, 5 s apart) and the labels `alert` fires with at `at`; none: it must not."""

    alert: str
    why: str
    series: dict[str, str]
    at: str = "2m"
    fires: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Series and what an expression then answers at `at`."""

    expr: str
    series: dict[str, str]
    labels: str
    value: float
    at: str = "2m"


def _requests(rates: dict[str, int]) -> dict[str, str]:
    """Measured requests per 5 s and outcome."""
    return {
        f'loadkit_requests_total{{{RUN}="r",{PLACE},phase="measure",outcome="{outcome}",code="200"}}': f"0+{rate}x40"
        for outcome, rate in rates.items()
    }


ENDPOINT = {RUN: "r", "endpoint": "e"}
CELL = {RUN: "r", "endpoint": "e", "tier": "4096", "concurrency": "2"}
WORKER = {RUN: "r", "worker": "w"}


def _series(name: str, values: str, labels: str = "") -> dict[str, str]:
    return {f'{name}{{{RUN}="r"{"," if labels else ""}{labels}}}': values}


def _lag(values: str) -> dict[str, str]:
    return _series("loadkit_worker_loop_lag_seconds", values, 'worker="w",q="0.99"')


def _gaps(bound: str) -> dict[str, str]:
    """Gaps that all lie just under a bound of the ITL histogram (s)."""
    bounds = [str(edge) for edge in BY_NAME["loadkit_itl_seconds"].bounds]
    return {
        f'loadkit_itl_seconds_bucket{{{RUN}="r",{PLACE},le="{edge}"}}': "0+100x40"
        if at >= bounds.index(bound)
        else "0x40"
        for at, edge in enumerate([*bounds, "+Inf"])
    }


def cases() -> Iterator[Case]:
    """All of them."""
    yield Case("LoadkitErrorRatioHigh", "a tenth fails", _requests({"ok": 9, "reset": 1}), fires=(ENDPOINT,))
    yield Case("LoadkitErrorRatioHigh", "one in fifty fails", _requests({"ok": 49, "reset": 1}))
    yield Case("LoadkitErrorRatioHigh", "rate limits are another alert", _requests({"ok": 5, "rate_limited": 5}))
    yield Case("LoadkitErrorRatioHigh", "nothing is sent", _requests({"ok": 0, "reset": 0}))
    yield Case("LoadkitUnauthorised", "the key is refused", _requests({"ok": 0, "auth": 1}), fires=(ENDPOINT,))
    yield Case("LoadkitUnauthorised", "no key is refused", _requests({"ok": 9, "auth": 0, "reset": 1}))
    yield Case("LoadkitRateLimited", "half is refused", _requests({"ok": 5, "rate_limited": 5}), fires=(ENDPOINT,))
    yield Case("LoadkitRateLimited", "other failures", _requests({"ok": 5, "rate_limited": 0, "reset": 5}))
    lost = "loadkit_worker_lost_total"
    yield Case("LoadkitWorkerLost", "one is lost", _series(lost, "0x10 1x40"), fires=({RUN: "r"},))
    yield Case("LoadkitWorkerLost", "none is lost", _series(lost, "0x40"))
    yield Case("LoadkitWorkerLost", "one was lost long ago", _series(lost, "0x5 1x150"), at="10m")
    busy = "loadkit_worker_cpu_ratio"
    saturated = "LoadkitGeneratorSaturated"
    yield Case(saturated, "a core is full", _series(busy, "0.95x40", 'worker="w"'), fires=(WORKER,))
    yield Case(saturated, "a core is busy", _series(busy, "0.7x40", 'worker="w"'))
    yield Case(saturated, "one sample only", _series(busy, "0.1x22 0.95 0.1x20", 'worker="w"'), at="1m55s")
    late = {**WORKER, "q": "0.99"}
    yield Case(saturated, "the loop is late and there are no gaps", _lag("0.02x40"), fires=(late,))
    yield Case(saturated, "late against short gaps", {**_lag("0.02x40"), **_gaps("0.02")}, fires=(late,))
    yield Case(saturated, "late by little of long gaps", {**_lag("0.02x40"), **_gaps("0.2")})
    yield Case(saturated, "the loop is on time", _lag("0.001x40"))
    inflight = _series("loadkit_inflight", "2x300", 'worker="w"')
    done = _series("loadkit_requests_total", "0x300", f'{PLACE},phase="measure",outcome="ok",code="200"')
    going = _series("loadkit_requests_total", "0+1x300", f'{PLACE},phase="measure",outcome="ok",code="200"')
    idle = _series("loadkit_inflight", "0x300", 'worker="w"')
    nothing = "LoadkitNothingFinishes"
    yield Case(nothing, "two hang", {**inflight, **done}, at="21m", fires=({RUN: "r"},))
    yield Case(nothing, "requests end", {**inflight, **going}, at="21m")
    yield Case(nothing, "nothing is in flight", {**idle, **done}, at="21m")
    yield from _overflows()
    users, fewer = _series("loadkit_target_users", "4x40"), _series("loadkit_users", "3x40")
    missing = "LoadkitTargetConcurrencyNotReached"
    yield Case(missing, "three of four", {**users, **fewer}, fires=({RUN: "r"},))
    yield Case(missing, "all four", {**users, **_series("loadkit_users", "4x40")})
    yield Case(missing, "they come a moment later", {**users, **_series("loadkit_users", "3x2 4x40")}, at="15s")
    silent = "loadkit_worker_report_age_seconds"
    yield Case("LoadkitWorkerSilent", "for 30 s", _series(silent, "30x40", 'worker="w"'), fires=(WORKER,))
    yield Case("LoadkitWorkerSilent", "for 1 s", _series(silent, "1x40", 'worker="w"'))
    heat = "loadkit_board_temperature_celsius"
    hot = {RUN: "r", "sensor": "soc"}
    yield Case("LoadkitBoardHot", "90 degrees", _series(heat, "90x40", 'sensor="soc"'), fires=(hot,))
    yield Case("LoadkitBoardHot", "60 degrees", _series(heat, "60x40", 'sensor="soc"'))


def _overflows() -> Iterator[Case]:
    for alert in alerts():
        short = alert.name.removeprefix("LoadkitHistogramOverflow")
        if short == alert.name:
            continue
        name = f"loadkit_{short.lower()}_seconds"
        top = float(BY_NAME[name].bounds[-1])

        def counted(below: int, name: str = name, top: float = top) -> dict[str, str]:
            bucket = _series(f"{name}_bucket", f"{below}x40", f'{PLACE},le="{top}"')
            return {**bucket, **_series(f"{name}_count", "100x40", PLACE)}

        yield Case(alert.name, "five of a hundred above", counted(95), fires=(CELL,))
        yield Case(alert.name, "all below", counted(100))
        yield Case(alert.name, "nothing counted", dict.fromkeys(counted(0), "0x40"))


def answers() -> Iterator[Answer]:
    """What the recording rules work out."""
    failing = _requests({"ok": 9, "reset": 1})
    endpoint = f'{RUN}="r", endpoint="e"'
    yield Answer("endpoint:loadkit_error:ratio1m", failing, f"endpoint:loadkit_error:ratio1m{{{endpoint}}}", 0.1)
    yield Answer("endpoint:loadkit_requests:rate1m", failing, f"endpoint:loadkit_requests:rate1m{{{endpoint}}}", 2)
    clean = _requests({"ok": 9, "reset": 0})
    yield Answer("endpoint:loadkit_error:ratio1m", clean, f"endpoint:loadkit_error:ratio1m{{{endpoint}}}", 0)
    gap = "run:loadkit_itl_seconds:p50_1m"
    yield Answer(gap, _gaps("0.02"), f'{gap}{{{RUN}="r"}}', 0.016 + (0.02 - 0.016) * 0.5)
    tokens = _series("loadkit_tokens_total", "0+500x40", f'{PLACE},phase="measure",direction="output"')
    rate = "endpoint:loadkit_output_tokens:rate1m"
    yield Answer(rate, tokens, f"{rate}{{{endpoint}}}", 100)


def tests_yaml() -> str:
    """grafana/rules/loadkit.test.yaml."""
    told = {alert.name: alert for alert in alerts()}
    lines = [
        "# Made by `python -m loadkit.live`; change loadkit/live/rule_tests.py.",
        "rule_files: [loadkit.rules.yaml]",
    ]
    lines += ["evaluation_interval: 5s", "tests:"]
    for case in cases():
        alert = told[case.alert]
        lines += [f"  # {case.why}", *_input(case.series), "    alert_rule_test:"]
        lines += [f"      - eval_time: {case.at}", f"        alertname: {case.alert}"]
        if not case.fires:
            lines += ["        exp_alerts: []"]
            continue
        lines += ["        exp_alerts:"]
        for labels in case.fires:
            both = {**labels, "severity": alert.severity}
            lines += [f"          - exp_labels: {json.dumps(both)}"]
            lines += [f"            exp_annotations: {json.dumps({'summary': alert.summary}, ensure_ascii=False)}"]
    for answer in answers():
        lines += [*_input(answer.series), "    promql_expr_test:", f"      - expr: {json.dumps(answer.expr)}"]
        lines += [f"        eval_time: {answer.at}", "        exp_samples:"]
        lines += [f"          - labels: {json.dumps(answer.labels)}", f"            value: {answer.value}"]
    return "\n".join(lines) + "\n"


def _input(series: dict[str, str]) -> list[str]:
    lines = ["  - interval: 5s", "    input_series:"]
    for name, values in series.items():
        lines += [f"      - series: {json.dumps(name)}", f"        values: {json.dumps(values)}"]
    return lines
