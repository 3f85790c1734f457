"""Clocks held still while this object lives: a guard on the board restores them when it hears of us no more."""

import getpass
import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadkit.board.access import LOCAL
from loadkit.board.bundle import bundle
from loadkit.board.clocks import Setting
from loadkit.board.errors import BoardError, BoardLost
from loadkit.board.ssh import LOGIN_S, checked_host, checked_root, local_argv, ssh_argv
from loadkit.board.talk import Talk

GUARD = ("tree", "steps", "state", "guard")
TTL_S = 15.0  # without a heartbeat for so long the guard restores
BEATS = 3  # heartbeats in that time


@dataclass(frozen=True, slots=True)
class Ended:
    """How a lock ended. `restored`: everything reads as before; `failed`: the files that do not."""

    restored: bool
    why: str
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a guard runs: host and root as in loadkit.board.access.connect. `sudo`: the login is not root."""

    host: str
    root: str = "/"
    ssh_config: Path | None = None
    sudo: bool = False


class Lock:
    """A held lock. Heartbeats go out on a thread of its own (a greenlet under gevent) until `release`."""

    def __init__(self, talk: Talk, clocks: dict[str, str], ttl_s: float) -> None:
        self.clocks = clocks  # path -> what was read back when it was set
        self._talk = talk
        self._ttl_s = ttl_s
        self._ended: Ended | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="board-lock", daemon=True)
        self._thread.start()

    @classmethod
    def take(cls, place: Place, settings: list[Setting], *, ttl_s: float = TTL_S, limit_c: float = 90.0) -> "Lock":
        """Lock. `ttl_s`: seconds without a heartbeat, `limit_c`: degrees Celsius, after which the guard restores.

        Raises BoardError where the guard refuses (nothing is changed then), BoardLost where the board is not reached.
        """
        asked = {"do": "lock", "settings": settings, "ttl_s": ttl_s, "limit_c": limit_c, "owner": _owner()}
        talk, answer = _asked(place, asked)
        if "locked" not in answer:
            talk.close()
            raise BoardError(f"{place.host}: not locked: {answer.get('refused') or answer}")
        return cls(talk, answer["locked"], ttl_s)

    @property
    def ended(self) -> Ended | None:
        """How the lock ended before it was released: heat, a killed guard, a lost connection. None while it holds."""
        return self._ended

    def wait(self, timeout_s: float | None = None) -> Ended | None:
        """Wait until the lock ends by itself, at most timeout_s seconds."""
        self._over.wait(timeout_s)
        return self._ended

    def release(self) -> Ended:
        """Restore the clocks; says whether they read as before."""
        try:
            self._talk.send({"bye": True})
        except BoardLost as error:
            self._finish(Ended(False, str(error)))
        if not self._over.wait(LOGIN_S):
            self._finish(Ended(False, "the guard did not say that it restored"))
        self._talk.stop()
        self._thread.join()
        self._talk.close()
        assert self._ended is not None
        return self._ended

    def _beat(self) -> None:
        while self._ended is None:
            try:
                message = self._talk.receive(self._ttl_s / BEATS)
                if message is None:
                    self._talk.send({"beat": True})
                else:
                    self._finish(_ended(message))
            except BoardLost as error:
                self._finish(Ended(False, f"{error}: the guard was lost; `loadkit board unlock` tells how it ended"))

    def _finish(self, ended: Ended) -> None:
        if self._ended is None:
            self._ended = ended
        self._over.set()


def unlock(place: Place) -> Ended:
    """Restore what a killed guard left. Raises BoardError while a living guard holds the board."""
    talk, answer = _asked(place, {"do": "unlock"})
    talk.close()
    if "refused" in answer:
        raise BoardError(f"{place.host}: {answer['refused']}")
    return _ended(answer)


def _asked(place: Place, arguments: dict[str, Any]) -> tuple[Talk, dict[str, Any]]:
    """A guard that was started, and its first words."""
    here = place.host == LOCAL
    root = checked_root(place.root, here=here)
    if here:
        argv = local_argv(sudo=place.sudo)
    else:
        argv = ssh_argv(checked_host(place.host), place.ssh_config, sudo=place.sudo)
    talk = Talk(argv, bundle(GUARD, {**arguments, "root": root}), place.host)
    try:
        answer = talk.receive(LOGIN_S)
        if answer is None:
            raise BoardLost(f"{place.host}: no guard answered within {LOGIN_S:g} s")
    except BaseException:
        talk.close()
        raise
    return talk, answer


def _ended(message: dict[str, Any]) -> Ended:
    failed = tuple(str(path) for path in message.get("failed", ()))
    return Ended(bool(message.get("restored")), str(message.get("why", message)), failed)


def _owner() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.geteuid())
    return f"{user}@{socket.gethostname()} process {os.getpid()}"[:100]
