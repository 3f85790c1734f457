"""What a guard has to put back, on disk: it outlives a guard that is killed, and dies with the boot it belongs to.

run/loadkit-lock.json holds the saved values and the boot id; run/loadkit-lock is held by flock for as long as a guard
lives, so that a second one is refused and a dead one is known to be dead.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from contextlib import suppress
from typing import Any

from loadkit.board.onboard.tree import Refused, Tree

FOLDER, FILE, HELD = "run", "loadkit-lock.json", "loadkit-lock"
BOOT_ID = "proc/sys/kernel/random/boot_id"
MAX_BYTES = 262144


class State:
    """The state file below a root. Raises OSError where run/ cannot be used, Refused where the file is not ours."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        root = os.open(tree.root, os.O_PATH | os.O_DIRECTORY)
        try:
            self._folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
        finally:
            os.close(root)
        self._held = -1

    def hold(self) -> bool:
        """Take the board until this process ends. False where a living guard has it."""
        opened = os.open(HELD, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=self._folder)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(opened)
            return False
        self._held = opened
        return True

    def load(self) -> dict[str, Any] | None:
        """What a guard saved; None where nothing is. {"stale": True} is added where it belongs to an earlier boot."""
        try:
            opened = os.open(FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._folder)
        except FileNotFoundError:
            return None
        with os.fdopen(opened, "rb") as file:
            facts = os.fstat(opened)
            mine = stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o022
            if not mine:
                raise Refused(f"{FOLDER}/{FILE} was not made by a guard of this user: look at it, then remove it")
            text = file.read(MAX_BYTES)
        try:
            saved: dict[str, Any] = json.loads(text)
            saved["stale"] = saved["boot_id"] != self._tree.read(BOOT_ID)
            saved["saved"] = [(str(path), str(value)) for path, value in saved["saved"]]
        except (ValueError, KeyError, TypeError):
            raise Refused(f"{FOLDER}/{FILE} cannot be understood: look at it, then remove it") from None
        return saved

    def save(self, saved: list[tuple[str, str]], owner: str, since: str) -> None:
        """Keep (path, value) in restoring order, before anything is changed."""
        content = {
            "boot_id": self._tree.read(BOOT_ID),
            "pid": os.getpid(),
            "owner": owner,
            "since": since,
            "saved": saved,
        }
        part = f"{FILE}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with suppress(FileNotFoundError):  # of a guard that died half-way, under the same number
            os.unlink(part, dir_fd=self._folder)
        with os.fdopen(os.open(part, flags, 0o600, dir_fd=self._folder), "wb") as file:
            file.write(json.dumps(content).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(part, FILE, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.fsync(self._folder)

    def discard(self) -> None:
        """Forget what was saved: it has been put back, or the boot it belongs to is over."""
        os.unlink(FILE, dir_fd=self._folder)
