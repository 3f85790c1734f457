"""One table of what can be loaded, and how each is started. A new target is one function and one line in TARGETS."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadkit.plan.endpoint import Endpoint
from loadkit.plan.errors import ConfigError
from loadkit.plan.options import RunRequest
from loadkit.target import board, process, weights
from loadkit.target.process import Running


@dataclass(slots=True)
class Target:
    """What is loaded: the endpoint to send to, what is known of it, and the process behind it when it is ours."""

    kind: str
    endpoint: Endpoint
    facts: dict[str, Any] = field(default_factory=dict)
    running: Running | None = None

    def stop(self) -> None:
        """End the process, if it is ours."""
        if self.running is not None:
            self.running.stop()


def start(request: RunRequest, environ: Mapping[str, str], cwd: Path) -> Target:
    """Start what was asked for. Raises ConfigError or TargetError with one line."""
    if request.target not in TARGETS:
        raise ConfigError(f"--target {request.target}: this version can load {', '.join(TARGETS)}")
    return TARGETS[request.target](request, environ, cwd)


def _endpoint(request: RunRequest, environ: Mapping[str, str], cwd: Path) -> Target:
    assert request.endpoint is not None
    return Target("endpoint", request.endpoint)


def _engine(request: RunRequest, environ: Mapping[str, str], cwd: Path) -> Target:
    """The NumPy engine with real weights where they are, else its seeded built-in model; its facts say which."""
    model = _named(request.weights, cwd) if request.weights else weights.find(environ, cwd)
    streams = max(cell.concurrency for cell in request.plan.cells)
    # Its threads do not spin and run in the idle class, so it may use every core and still yield one to the client.
    arguments = ["--model", str(model or "builtin"), "--threads", str(os.cpu_count() or 1)]
    arguments += ["--slots", str(streams), "--queue", str(2 * streams), *request.engine]
    return _own(request, "engine", process.start("loadkit.engine", arguments))


def _named(given: str, cwd: Path) -> str | Path:
    """The weights asked for: those that the engine makes itself have no file."""
    if given == "builtin" or given.startswith("random:"):
        return given
    if not (cwd / given).exists():
        raise ConfigError(f"--weights {given}: no such file or folder")
    return cwd / given


def _sim(request: RunRequest, environ: Mapping[str, str], cwd: Path) -> Target:
    """The simulator with a straight law: TTFT = 50 ms + 0.05 ms per token, a token each 20 ms."""
    arguments = ["--ttft-ms", "50", "--per-token-ms", "0.05", "--itl-ms", "20"]
    return _own(request, "sim", process.start("loadkit.sim", arguments))


def _board(request: RunRequest, environ: Mapping[str, str], cwd: Path) -> Target:
    """A server that runs on an edge board already; nothing on the board is started, stopped or changed."""
    if request.endpoint is None:
        raise ConfigError("--target board: give the URL of the server on the board, such as http://rock-5b:8080")
    assert request.edge is not None
    return Target("board", request.endpoint, board.facts(request.edge, request.endpoint, cwd))


def _own(request: RunRequest, kind: str, running: Running) -> Target:
    plan = request.plan
    window = running.facts.get("context")
    endpoint = Endpoint(
        name=kind,
        base_url=running.url,
        model=running.facts["model"],
        window=window if isinstance(window, int) else None,
        timeouts=plan.timeouts,
        headers=plan.headers,
        extra_body=plan.extra_body,
    )
    return Target(kind, endpoint, dict(running.facts), running)


TARGETS: dict[str, Callable[[RunRequest, Mapping[str, str], Path], Target]] = {
    "endpoint": _endpoint,
    "engine": _engine,
    "sim": _sim,
    "board": _board,
}
