"""A program on a board and the lines of JSON between it and us.

One socket pair is its standard input and output, so that waiting yields under gevent and blocks without it. When this
process dies, however, the pair closes, the program reads end of input, and a lock is restored.
"""

import json
import os
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from typing import Any

from loadkit.board.errors import BoardLost

MAX_LINE = 32 << 20
PATIENCE_S = 5.0  # for a program to end after its input has


class Talk:
    """A started program. `where` names the board in errors."""

    def __init__(self, argv: list[str], first: bytes, where: str) -> None:
        self.where = where
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the program
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C is for us: the program hears of it as the end of its input
            )
        except OSError as error:
            ours.close()
            self._errors.close()
            raise BoardLost(f"{where}: {argv[0]} cannot be started ({error.strerror})") from None
        finally:
            theirs.close()
        self._socket = ours
        self._rest = b""
        ours.settimeout(PATIENCE_S)
        with suppress(OSError):  # one that ends at once is found out by the first receive
            ours.sendall(first)

    def send(self, message: dict[str, Any]) -> None:
        """One line to the program. Raises BoardLost."""
        try:
            self._socket.settimeout(PATIENCE_S)
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise self._lost(str(error)) from None

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """The next line; None after timeout_s seconds without one. Raises BoardLost when the program is gone."""
        until = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0:
                return None
            self._socket.settimeout(left)
            try:
                piece = self._socket.recv(1 << 16)
            except TimeoutError:
                return None
            except OSError as error:
                raise self._lost(str(error)) from None
            if not piece or len(self._rest) > MAX_LINE:
                raise self._lost("the connection ended")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            raise self._lost(f"said {line[:80].decode('utf-8', 'replace')!r}") from None
        if not isinstance(message, dict):
            raise self._lost("said something that is no answer")
        return message

    def end_input(self) -> None:
        """Tell the program that nothing more comes; it may still say its last words."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def stop(self) -> None:
        """End the program: by its input's end, and by force where that is not enough."""
        self.end_input()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End the program and forget it; nobody may be waiting in `receive`."""
        self.stop()
        self._socket.close()
        self._errors.close()

    def _lost(self, reason: str) -> BoardLost:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)  # its last words are its reason
        said = self._last_words()
        return BoardLost(f"{self.where}: {said or reason}")

    def _last_words(self) -> str:
        size = os.fstat(self._errors.fileno()).st_size
        text = os.pread(self._errors.fileno(), 4096, max(0, size - 4096)).decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if any("python3" in line and "not found" in line for line in lines):
            return "has no python3, which reads and guards the board"
        return lines[-1] if lines else ""
