"""Start, watch and stop a target that runs as its own process on this machine.

The process runs at nice 19, so that its arithmetic never takes the processor from the clock that measures it. It says
on its first line of standard output, as JSON, where it listens; it ends when its standard input closes, so that a
client that was killed leaves nothing behind.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from loadkit.plan.errors import TargetError
from loadkit.record.names import Outcome

NICE = 19
STOP_S = 5.0


@dataclass(slots=True)
class Running:
    """A started target: where it listens, what it says of itself, and how to end it."""

    url: str
    facts: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    log: list[str] = field(default_factory=list)

    def alive(self) -> bool:
        """True while the process runs; a target that is not ours to start counts as alive."""
        return self.process is None or self.process.poll() is None

    def stop(self) -> None:
        """End the process: TERM, then KILL after STOP_S seconds. A second call does nothing."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _be_nice() -> None:
    """Nice 19 and, where the system knows it, the idle class: a waking client then preempts at once, not at a tick."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _first_line(process: subprocess.Popen[bytes], until: float, now: Callable[[], float]) -> bytes:
    """The ready line, or what came of it before the process ended or the time was over."""
    assert process.stdout is not None
    line = b""
    descriptor = process.stdout.fileno()
    while not line.endswith(b"\n") and now() < until:
        ready, _, _ = select.select([descriptor], [], [], min(0.2, max(0.0, until - now())))
        if ready:
            byte = os.read(descriptor, 4096)
            if not byte:
                break
            line += byte
    return line


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
    log = _log_file()
    process = subprocess.Popen(
        [sys.executable, "-m", module, "serve", *arguments, "--stdin-guard"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        bufsize=0,
        # A Ctrl-C in the terminal reaches the whole foreground group, and the target must outlive the drain. Not a
        # session of its own: schedulers that group by session would then weigh the nice value inside it only.
        process_group=0,
        preexec_fn=_be_nice if background else None,
    )
    line = _first_line(process, now() + timeout_s, now)
    try:
        ready = json.loads(line)
        return Running(url=ready["url"], facts=ready, process=process)
    except (ValueError, KeyError, TypeError):
        process.kill()
        process.wait()
        log.seek(0)
        said = log.read().decode("utf-8", "replace").strip().splitlines()
        reason = said[-1] if said else f"no ready line within {timeout_s:.0f} s"
        raise TargetError(f"{module} did not start: {reason}", Outcome.CONNECT_ERROR) from None
    finally:
        log.close()


def _log_file() -> Any:
    """Where the target's standard error goes: an unnamed file, read only when it fails to start."""
    import tempfile

    return tempfile.TemporaryFile()
