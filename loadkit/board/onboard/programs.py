"""Programs of a board, by their bare names and from its system folders only, with no shell in between."""

from __future__ import annotations

import os
import re
import subprocess
import threading

FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin", "opt/vc/bin")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
MAX_CHARS = 262144
DRAIN_S = 1.0  # for what an ended program has written; a child of its own may hold the pipe open for longer


class Programs:
    """Runs programs found below `root`: those of the board, or those a copied tree brings along."""

    def __init__(self, root: str = "/") -> None:
        self.root = root
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._unread: dict[int, list[bytes]] = {}
        self._drains: dict[int, threading.Thread] = {}

    def run(self, argv: list[str], timeout_s: float) -> dict[str, object]:
        """{"code", "out", "error"}; code is None where the program is missing or took too long."""
        try:
            done = subprocess.run(
                self._command(argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                env=self._environment(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"code": None, "out": "", "error": f"{argv[0]} did not end within {timeout_s:g} s"}
        except OSError as error:
            return {"code": None, "out": "", "error": f"{argv[0]}: {error.strerror}"}
        return {"code": done.returncode, "out": _text(done.stdout), "error": _text(done.stderr)}

    def start(self, argv: list[str]) -> int:
        """Begin a program that goes on; returns its number. Raises OSError where it cannot be begun."""
        process = subprocess.Popen(
            self._command(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment(),
        )
        self._running[process.pid] = process
        self._unread[process.pid] = []
        self._drains[process.pid] = threading.Thread(target=self._drain, args=(process,), daemon=True)
        self._drains[process.pid].start()
        return process.pid

    def output(self, number: int) -> dict[str, object]:
        """What the program wrote (both streams) since the last call, and its exit code once it has ended."""
        process = self._running[number]
        code = process.poll()
        if code is not None:
            self._drains[number].join(DRAIN_S)  # its last words, which say why it ended
        pieces, self._unread[number] = self._unread[number], []
        return {"out": _text(b"".join(pieces)), "code": code}

    def stop(self, number: int) -> None:
        """End a program that was started; one that does not go on TERM within 2 s is killed."""
        process = self._running.pop(number)
        process.terminate()
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._unread.pop(number, None)
        self._drains.pop(number, None)

    def close(self) -> None:
        """End everything that was started."""
        for number in list(self._running):
            self.stop(number)

    def _drain(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            for line in iter(stream.readline, b""):
                self._unread.get(process.pid, []).append(line)

    def _command(self, argv: list[str]) -> list[str]:
        if not argv or not NAME.fullmatch(argv[0]):
            raise FileNotFoundError(2, "is not a program's bare name")
        for folder in FOLDERS:
            path = os.path.join(self.root, folder, argv[0])
            if os.access(path, os.X_OK) and os.path.isfile(path):
                return [path, *argv[1:]]
        raise FileNotFoundError(2, "is not installed on the board")

    def _environment(self) -> dict[str, str]:
        return {"PATH": ":".join(f"/{folder}" for folder in FOLDERS), "LC_ALL": "C"}


def _text(data: bytes) -> str:
    return data[:MAX_CHARS].decode("utf-8", "replace")
