"""How wrong the client is: its records held against a server that knows when it really wrote each token.

A truth server answers `GET /sim/truth` as the simulator does, or `GET /requests.jsonl?times=1` with one line per
request: `rid` (our X-Request-Id), `t_recv` (last byte of the request read) and `ts` (every token event's write), all in
ns of one clock.
"""

import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from loadkit.measure.quantile import nearest_rank
from loadkit.measure.timing import itl_ms, ms
from loadkit.record.names import Outcome, Phase

GOOD_MS = 1.0  # the error below which a load counts as measured well


@dataclass(frozen=True, slots=True)
class Truth:
    """What the server did for one request: true TTFT and gaps between token events, ms."""

    ttft_ms: float
    gaps_ms: list[float]


@dataclass(frozen=True, slots=True)
class ErrorBars:
    """Client minus truth at one load, ms; percentiles of the absolute error, nearest-rank, over `requests` and `gaps`.

    cpu_s_per_million: CPU seconds of the measuring process per million token events. server_late_p99_ms: how late the
    server itself was against its own schedule, None where it does not say.
    """

    streams: int
    requests: int
    gaps: int
    events_per_s: float | None
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    cpu_s_per_million: float | None
    server_late_p99_ms: float | None

    @property
    def good(self) -> bool:
        """TTFT and ITL errors stay under GOOD_MS at p99."""
        worst = [self.ttft_p99_ms, self.itl_p99_ms]
        return all(value is not None and value < GOOD_MS for value in worst)


def fetch_truth(client: httpx.Client, root: str) -> dict[str, Truth]:
    """The truth by request id. Raises ValueError with one line when the server at root is no truth server."""
    return {
        request_id: Truth(ms(received, times[0]), itl_ms([at / 1e6 for at in times]))
        for request_id, received, times in fetch_rows(client, root)
        if request_id and times
    }


Row = tuple[str, int, list[int]]
"""Request id, receipt and event times, ns."""


def fetch_rows(client: httpx.Client, root: str) -> list[Row]:
    """What the server stamped, one row per request. Raises ValueError with one line when it is no truth server."""
    for path, rows_of in _TRUTHS.items():
        answer = client.get(root + path)
        try:
            rows = list(rows_of(answer.text)) if answer.status_code == 200 else []
        except (ValueError, KeyError, TypeError):
            continue
        if rows:
            return rows
    raise ValueError(f"{root} is no truth server: it tells no request at {' or '.join(_TRUTHS)}")


def _of_simulator(text: str) -> Iterable[Row]:
    rows = json.loads(text)["requests"]
    return ((row["request_id"], int(row["received_ns"]), [int(at) for at in row["event_ns"]]) for row in rows)


def _of_lines(text: str) -> Iterable[Row]:
    rows = (json.loads(line) for line in text.splitlines() if line.strip())
    return ((row["rid"], int(row["t_recv"]), [int(at) for at in row.get("ts") or []]) for row in rows)


_TRUTHS: dict[str, Callable[[str], Iterable[Row]]] = {
    "/sim/truth": _of_simulator,
    "/requests.jsonl?times=1": _of_lines,
}


def error_bars(
    records: Iterable[Mapping[str, Any]],
    truth: Mapping[str, Truth],
    *,
    streams: int,
    cpu_s: float | None = None,
    events: int | None = None,
    seconds: float | None = None,
    server_late_p99_ms: float | None = None,
) -> ErrorBars:
    """Hold the measured, answered records against the truth; a request the truth does not know is left out.

    cpu_s, events and seconds describe the whole stretch in which they were measured: CPU of this process, token events.
    """
    ttft, gaps = [], []
    for record in records:
        true = truth.get(record["request_id"])
        if true is None or record["phase"] != Phase.MEASURE or record["outcome"] != Outcome.OK:
            continue
        ttft.append(abs(record["ttft_ms"] - true.ttft_ms))
        gaps += [abs(ours - theirs) for ours, theirs in zip(record["itl_ms"], true.gaps_ms, strict=False)]
    return ErrorBars(
        streams=streams,
        requests=len(ttft),
        gaps=len(gaps),
        events_per_s=events / seconds if events and seconds else None,
        ttft_p50_ms=nearest_rank(ttft, 0.50),
        ttft_p99_ms=nearest_rank(ttft, 0.99),
        itl_p50_ms=nearest_rank(gaps, 0.50),
        itl_p99_ms=nearest_rank(gaps, 0.99),
        cpu_s_per_million=cpu_s / events * 1e6 if cpu_s is not None and events else None,
        server_late_p99_ms=server_late_p99_ms,
    )


def keep(bars: Iterable[ErrorBars], environ: Mapping[str, str]) -> None:
    """Remember the error bars of this machine for later runs. A folder that cannot be written is not an error."""
    path = _kept(environ)
    rows = {bar["streams"]: bar for bar in [*_read(path), *map(asdict, bars)]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({"host": platform.node(), "bars": list(rows.values())}, indent=2))
        part.replace(path)
    except OSError:
        return


def known(streams: int, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """The error bars that apply to a load of so many streams: those of the smallest load measured that is not below it.

    None where `loadkit selftest` has not measured so many streams on this machine.
    """
    fitting = [bar for bar in _read(_kept(environ)) if bar["streams"] >= streams]
    return min(fitting, key=lambda bar: bar["streams"], default=None)


def _kept(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".cache")
    return Path(base) / "loadkit" / "selftest.json"


def _read(path: Path) -> list[dict[str, Any]]:
    """What was kept, if it was kept on this machine and can be read."""
    try:
        kept = json.loads(path.read_text())
        bars = kept["bars"] if kept["host"] == platform.node() else []
        return [bar for bar in bars if isinstance(bar["streams"], int)]
    except (OSError, ValueError, KeyError, TypeError):
        return []
