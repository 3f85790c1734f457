"""The system's ssh, with a command line of our own making only: no shell, no password prompt, nobody's text in it.

What it starts on the board, and `local_argv` on this machine, is Python that reads its program from standard input.
"""

import re
import sys
from pathlib import Path
from typing import Any

from loadkit.board.bundle import BOOT, PYTHON, bundle
from loadkit.board.errors import BoardError, BoardLost
from loadkit.board.talk import Talk

# user@host, an alias of ssh's configuration, an address (brackets for IPv6), or ssh://user@host:port. Never an option.
HOST = re.compile(r"(?:ssh://)?[A-Za-z0-9_\[][A-Za-z0-9_.@:%\[\]-]{0,254}")
ROOT = re.compile(r"/[^\x00-\x1f\x7f]{0,1000}")
OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RequestTTY=no",
    "LogLevel=ERROR",
)
READER = ("tree", "programs", "bandwidth", "reader")
LOGIN_S = 30.0


def checked_host(host: str) -> str:
    """The host as given. BoardError where ssh could take it for anything but a host."""
    if not HOST.fullmatch(host):
        raise BoardError(f"{host[:60]!r} is not a host: use an ssh alias, user@host, ssh://user@host:port, or local")
    return host


def checked_root(root: str, *, here: bool) -> str:
    """An absolute root folder. BoardError where it is none; `here`: it must exist on this machine."""
    path = str(Path(root).absolute()) if here else root
    if not ROOT.fullmatch(path) or (here and not Path(path).is_dir()):
        raise BoardError(f"--sysfs-root {root[:60]!r}: {'no such folder' if here else 'must be an absolute path'}")
    return path


def local_argv(*, sudo: bool = False) -> list[str]:
    """The same on this machine, by this Python."""
    return [*(("sudo", "-n") if sudo else ()), sys.executable, *PYTHON[1:], BOOT]


def ssh_argv(host: str, config: Path | None, *, sudo: bool = False) -> list[str]:
    """The whole command. What runs on the board is a constant: Python reading its program from standard input."""
    options = [word for option in OPTIONS for word in ("-o", option)]
    files = ["-F", str(config)] if config else []
    python = " ".join(PYTHON)
    remote = f"exec {'sudo -n ' if sudo else ''}{python} '{BOOT}'"
    return ["ssh", "-T", *files, *options, "--", host, remote]


class Remote:
    """A channel of loadkit.board.access to a reader in a process of its own, which `argv` starts and keeps open."""

    def __init__(self, argv: list[str], root: str, host: str) -> None:
        self._host = host
        self._talk = Talk(argv, bundle(READER, {"root": root}), host)
        try:
            if self._talk.receive(LOGIN_S) != {"ready": True}:
                raise BoardLost(f"{host}: {argv[0]} did not get there within {LOGIN_S:g} s")
        except BaseException:
            self._talk.close()
            raise

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer to one request. After a BoardLost the connection must not be used again."""
        self._talk.send(request)
        answer = self._talk.receive(timeout_s)
        if answer is None:
            self._talk.close()
            raise BoardLost(f"{self._host}: no answer within {timeout_s:g} s")
        return answer

    def close(self) -> None:
        """End the connection."""
        self._talk.close()
