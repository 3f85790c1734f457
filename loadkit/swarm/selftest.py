"""One load of the selftest: the client as it always is, against a truth server, with its CPU taken along."""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from loadkit.plan.options import RunRequest, add_options, resolve
from loadkit.record import jsonl
from loadkit.swarm import events
from loadkit.swarm.local import run_local
from loadkit.swarm.prepare import prepare
from loadkit.swarm.progress import Progress
from loadkit.target.selftest import ErrorBars, error_bars, fetch_truth

ROUNDS, OUTPUT_TOKENS = 3, 128


@dataclass(slots=True)
class _Meter:
    """CPU and wall time of the visits, and the token events in them, warm-up and drain included."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    events: int = 0

    def on_stage(self, *, state: str, **_: object) -> None:
        """Stamps where a visit opens, sums where it closes."""
        sign = -1 if state == "open" else 1
        self.cpu_s += sign * time.process_time()
        self.wall_s += sign * time.perf_counter()

    def on_record(self, *, record: dict, **_: object) -> None:
        """A request ended."""
        self.events += record["token_events"] or 0


def measure(
    url: str,
    streams: int,
    out: Path,
    environ: Mapping[str, str],
    *,
    progress: Callable[[RunRequest], Progress],
    rounds: int = ROUNDS,
    output_tokens: int = OUTPUT_TOKENS,
) -> ErrorBars:
    """Run `streams` streams against the truth server at url and hold the records against its truth.

    Raises ConfigError or TargetError as a run does, ValueError when the server tells no truth.
    """
    request = _request(url, streams, out, environ, rounds, output_tokens)
    session = prepare(request, environ, Path.cwd())
    meter = _Meter()
    events.stage.add_listener(meter.on_stage)
    events.record.add_listener(meter.on_record)
    try:
        run_local(session, progress(request), say=lambda line: None)
    finally:
        events.stage.remove_listener(meter.on_stage)
        events.record.remove_listener(meter.on_record)
    root = session.target.endpoint.base_url.removesuffix("/v1")
    with httpx.Client(trust_env=False, timeout=60) as client:
        truth = fetch_truth(client, root)
        late = _server_late(client, root)
    records = jsonl.read(session.folder.records_path).records
    return error_bars(
        records,
        truth,
        streams=streams,
        cpu_s=meter.cpu_s,
        events=meter.events,
        seconds=meter.wall_s,
        server_late_p99_ms=late,
    )


def _request(
    url: str, streams: int, out: Path, environ: Mapping[str, str], rounds: int, output_tokens: int
) -> RunRequest:
    parser = argparse.ArgumentParser()
    add_options(parser, positional_url=True)
    words = [url, "--tiers", "128", "--concurrency", str(streams), "--rounds", str(rounds), "--no-retry"]
    words += ["--max-tokens", str(output_tokens), "--out", str(out)]
    return resolve(parser.parse_args(words), environ, Path.cwd())


def _server_late(client: httpx.Client, root: str) -> float | None:
    """How late the server was against its own schedule (p99, ms), where it says so."""
    answer = client.get(f"{root}/sim/stats")
    try:
        return answer.json()["late_ms"]["p99"] if answer.status_code == 200 else None
    except (ValueError, KeyError, TypeError):
        return None
