"""Start and stop a target that runs as its own process on this machine.

The process runs at nice 19, so that its arithmetic never takes the processor from the clock that measures it. It says
on its first line of standard output, as JSON, where it listens; it ends when its standard input closes, so that a
client that was killed leaves nothing behind.
"""

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from loadkit.plan.errors import TargetError
from loadkit.prompt.child import python_module, without_keys
from loadkit.record.names import Outcome
from loadkit.target.control import one_line

NICE = 19
STOP_S = 5.0


@dataclass(slots=True)
class Running:
    """A started target: where it listens, what it says of itself, and how to end it."""

    url: str
    facts: dict[str, Any]
    process: subprocess.Popen[bytes]

    def alive(self) -> bool:
        """False when it has ended by itself."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End the process: TERM, then KILL after STOP_S seconds. A second call does nothing."""
        if self.alive():
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S)
        _end(self.process)


def start(
    module: str,
    arguments: list[str],
    *,
    background: bool = True,
    timeout_s: float = 120.0,
    now: Callable[[], float] = time.monotonic,
) -> Running:
    """Run `python -m module serve arguments` and wait for its ready line. `background` False keeps its priority.

    Raises TargetError with the last line of its standard error when it does not come up in timeout_s seconds.
    """
    # Its standard error goes to an unnamed file, which is read only when it fails to start.
    with tempfile.TemporaryFile() as log:
        process = _spawn(module, arguments, background, log)
        line, ready = b"", None
        try:
            line = _first_line(process, now() + timeout_s, now)
            ready = _ready(line)
        finally:  # also when Ctrl-C comes while we wait
            if ready is None:
                ended = process.poll()
                _end(process)
        if ready is None:
            reason = _last_line(log) or _silent(line, ended, timeout_s)
            raise TargetError(f"{module} did not start: {reason}", Outcome.CONNECT_ERROR)
        return Running(ready["url"], ready, process)


def _spawn(module: str, arguments: list[str], background: bool, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*python_module(module), "serve", *arguments, "--stdin-guard"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        bufsize=0,
        env=without_keys(os.environ),
        # A Ctrl-C in the terminal reaches the whole foreground group, and the target must outlive the drain. Not a
        # session of its own: schedulers that group by session would then weigh the nice value inside it only.
        process_group=0,
        preexec_fn=_be_nice if background else None,
    )


def _be_nice() -> None:
    """Nice 19 and, where the system knows it, the idle class: a waking client then preempts at once, not at a tick."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _first_line(process: subprocess.Popen[bytes], until: float, now: Callable[[], float]) -> bytes:
    """The ready line, or what came of it before the process ended or the time was over."""
    assert process.stdout is not None
    text = b""
    descriptor = process.stdout.fileno()
    while b"\n" not in text and now() < until:
        readable, _, _ = select.select([descriptor], [], [], min(0.2, max(0.0, until - now())))
        if readable:
            piece = os.read(descriptor, 4096)
            if not piece:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_S)
                break
            text += piece
    return text.partition(b"\n")[0]


def _ready(line: bytes) -> dict[str, Any] | None:
    """The facts of a ready line: at least where it listens and the model it serves."""
    try:
        facts = json.loads(line)
    except ValueError:
        return None
    known = isinstance(facts, dict) and all(isinstance(facts.get(name), str) for name in ("url", "model"))
    return facts if known else None


def _silent(line: bytes, exit_code: int | None, timeout_s: float) -> str:
    """What can be said of a process that gave no reason."""
    if line:
        return f"no ready line but {one_line(line.decode('utf-8', 'replace'), 80)!r}"
    return f"no ready line within {timeout_s:.0f} s" if exit_code is None else f"exit code {exit_code}"


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").strip().splitlines()
    return one_line(lines[-1]) if lines else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill it if it still runs, and close our ends of its pipes."""
    if process.poll() is None:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
