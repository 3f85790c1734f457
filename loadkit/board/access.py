"""One contract to reach a board: this machine, or another one through the system's ssh.

Paths are relative to the root of the board ("sys/class/thermal/thermal_zone0/temp"), so that a copied tree
(--sysfs-root) answers like a board. What a board says is data: clip and escape it before showing it.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from loadkit.board.errors import BoardError
from loadkit.board.onboard.reader import Reader
from loadkit.board.ssh import Remote, checked_host, checked_root, local_argv, ssh_argv

LOCAL = "local"
Paths = list[str]
Readings = list[dict[str, Any]]
ANSWER_S = 10.0  # a board that does not answer for so long is lost


@dataclass(frozen=True, slots=True)
class Result:
    """What a program printed. `code` is None where it is not installed or did not end in time; `error` says which."""

    code: int | None
    out: str
    error: str


class Channel(Protocol):
    """Carries one request to loadkit.board.onboard.reader and its answer back."""

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer. Raises BoardLost where the board does not answer within timeout_s seconds."""

    def close(self) -> None:
        """End the connection; nothing that was started on the board outlives it."""


class Access:
    """A board within reach. Every call is one round trip; one thread (or greenlet) at a time may call.

    All calls raise BoardLost when the connection is gone: open a new one. Nothing here ever writes to the board.
    """

    def __init__(self, name: str, channel: Channel) -> None:
        self.name = name
        self._channel = channel

    def read(self, path: str) -> str | None:
        """A file's text without its last newline, at most 64 KiB; None where it is not there or not readable."""
        return self.read_many([path])[path]

    def read_many(self, paths: Iterable[str]) -> dict[str, str | None]:
        """Many files in one round trip: what a poll once a second uses."""
        wanted = list(paths)
        texts = self._ask({"do": "read", "paths": wanted})["texts"]
        return {path: texts[index] for index, path in enumerate(wanted)}

    def list(self, pattern: str) -> Paths:
        """Existing paths of a pattern such as sys/class/thermal/thermal_zone*/type, in order of their numbers."""
        return list(self._ask({"do": "list", "pattern": pattern})["paths"])

    def run(self, argv: Sequence[str], timeout_s: float = 10.0) -> Result:
        """Run a program of the board by its bare name, without a shell, under LC_ALL=C, and wait for its end."""
        answer = self._ask({"do": "run", "argv": list(argv), "timeout_s": timeout_s}, timeout_s + ANSWER_S)
        return Result(answer["code"], answer["out"], answer["error"])

    def start(self, argv: Sequence[str]) -> int:
        """Begin a program that goes on (perf stat -I, tegrastats); returns its number. It ends with the connection.

        Raises BoardError where the program is not there.
        """
        return int(self._ask({"do": "start", "argv": list(argv)})["number"])

    def output(self, number: int) -> Result:
        """What a started program printed on both streams since the last call; `code` is None while it runs."""
        answer = self._ask({"do": "output", "number": number})
        return Result(answer["code"], answer["out"], "")

    def stop(self, number: int) -> None:
        """End a started program."""
        self._ask({"do": "stop", "number": number})

    def who(self) -> dict[str, Any]:
        """{"uid": effective user id on the board, "cores": how many}."""
        return self._ask({"do": "who"})

    def bandwidth(self, seconds: float = 0.5) -> Readings:
        """Measure memory bandwidth on the board's cores, about `seconds` each: [{"reader", "bytes_per_s"}]."""
        return list(self._ask({"do": "bandwidth", "seconds": seconds}, 10 * seconds + 30)["readings"])

    def close(self) -> None:
        """Leave the board."""
        self._channel.close()

    def __enter__(self) -> "Access":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _ask(self, request: dict[str, Any], timeout_s: float = ANSWER_S) -> dict[str, Any]:
        answer = self._channel.ask(request, timeout_s)
        if "error" in answer and "code" not in answer:
            raise BoardError(f"{self.name}: {answer['error']}")
        return answer


class _Here:
    """This machine: the same reader, in this process."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._reader = Reader(root)

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        if request["do"] != "bandwidth":
            return self._reader.answer(request)
        # Several threads at once are not to be had in a process that gevent has patched.
        with closing(Remote(local_argv(), self._root, LOCAL)) as apart:
            return apart.ask(request, timeout_s)

    def close(self) -> None:
        with suppress(OSError):
            self._reader.close()


def connect(host: str, root: str = "/", ssh_config: Path | None = None) -> Access:
    """Reach a board: "local", or what ssh takes as a host (an alias, user@host, ssh://user@host:port).

    `root`: where the board's files begin, on the board. `ssh_config`: a file for ssh's -F.
    Raises ConfigError for a host that is not one and a root that is not there, BoardLost where ssh cannot log in.
    """
    if host == LOCAL:
        return Access(LOCAL, _Here(checked_root(root, here=True)))
    argv = ssh_argv(checked_host(host), ssh_config)
    return Access(host, Remote(argv, checked_root(root, here=False), host))
