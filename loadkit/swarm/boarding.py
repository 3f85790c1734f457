"""The board's samples while a run goes on: a process of its own takes them, here they become rows of telemetry."""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import gevent

from loadkit.plan.shown import shown
from loadkit.prompt.child import python_module, without_keys
from loadkit.swarm.session import Session

STOP_S = 2.0
CLIP = 200


class Boarding:
    """Samples the session's board, where it has one within reach. One that is lost ends the samples, not the run."""

    def __init__(self, session: Session, say: Callable[[str], None]) -> None:
        self._session = session
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: gevent.Greenlet | None = None
        self._closing = False
        target = session.target
        if target.kind == "board" and target.facts.get("host"):
            self._start(target.facts["asked"], target.facts["host"])

    def _start(self, asked: dict[str, Any], host: str) -> None:
        command = [*python_module("loadkit.board.sampler"), "--board", asked["board"], "--host", host]
        command += ["--root", asked["root"], *(["--perf"] if asked["perf"] else [])]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,  # a Ctrl-C drains, and what drains is sampled
            env=without_keys(os.environ) | _agent(),
        )
        self._reader = gevent.spawn(self._read, self._process)

    def close(self) -> None:
        """No more samples; a row that was on its way is kept."""
        if self._process is None or self._reader is None:
            return
        self._closing = True
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._reader.join(STOP_S)
        self._reader.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                row = _row(line)
                if row.get("kind") == "board":
                    self._session.sample(row)
                elif said := row.get("warning") or row.get("error"):
                    self._say(f"board: {shown(str(said))[:CLIP]}")
        if not self._closing:
            self._say("board: its samples have ended; the run goes on without them")


def _agent() -> dict[str, str]:
    """The variable by which ssh finds its agent; it names a socket and is no key."""
    return {name: os.environ[name] for name in ("SSH_AUTH_SOCK",) if name in os.environ}


def _row(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}
