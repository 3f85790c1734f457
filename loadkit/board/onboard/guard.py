"""Holds a board's clocks and puts them back, whatever becomes of the one who asked.

The client sends a line as a heartbeat. End of input, no line for `ttl_s`, `bye`, TERM, HUP, INT or heat end the lock.
Each line on standard output is a JSON object: {"refused"}, {"locked"}, or {"restored", "why", "failed"}.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time
from contextlib import suppress
from datetime import datetime, timezone
from typing import IO, Any

from loadkit.board.onboard import steps
from loadkit.board.onboard.state import State
from loadkit.board.onboard.tree import Refused, Tree, writable

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
READS, READ_GAP_S, PATIENCE_S = 3, 0.1, 2.0  # a clock must read right three times in a row
BROKEN_C = 200.0  # a sensor that says more is not one
LOOK_S = 1.0  # between two looks at the thermometers
ZONES = "sys/class/thermal/thermal_zone*/temp"
COOLERS = "sys/class/thermal/cooling_device*/cur_state"


class Guard:
    """One lock on the tree of one board."""

    def __init__(self, tree: Tree, state: State, limit_c: float) -> None:
        self._tree = tree
        self._state = state
        self._limit_c = limit_c
        self._saved: list[tuple[str, str]] = []
        self._wake, self._woken = os.pipe()
        self.ended = ""

    def listen(self) -> None:
        """From now on a signal ends the lock instead of this process."""
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(self._woken)
        for number in SIGNALS:
            signal.signal(number, self._signalled)

    def lock(self, settings: list[dict[str, Any]], owner: str) -> dict[str, str]:
        """Save, set and read back; the clocks as they read then. Raises Refused or OSError, after restoring."""
        plan = [(setting, steps.writes(self._tree.read, setting)) for setting in settings]
        stray = [path for _, planned in plan for path, _ in planned if not writable(path)]
        if stray:
            raise Refused(f"{stray[0][:100]!r} is not a file that a lock may write")
        hot = too_hot(self._tree, self._limit_c)
        if hot:
            raise Refused(f"{hot}: let it cool before it is locked")
        self._saved = _to_restore(self._tree, plan)
        self._state.save(self._saved, owner, datetime.now(timezone.utc).isoformat(timespec="seconds"))  # noqa: UP017
        wanted: list[tuple[str, str]] = []
        try:
            for setting, planned in plan:
                for path, value in planned:
                    self._set(path, value)
                wanted += steps.expected(setting, planned)
            self._verify(wanted)
        except BaseException:
            self.restore()
            raise
        return {path: self._tree.read(path) or "" for path, _ in wanted}

    def stay(self, stdin: IO[bytes], ttl_s: float) -> str:
        """Hold on until something ends it; says what."""
        heard = looked = time.monotonic()
        while not self.ended:
            wait = min(heard + ttl_s, looked + LOOK_S) - time.monotonic()
            ready, _, _ = select.select([stdin.fileno(), self._wake], [], [], max(0.0, wait))
            now = time.monotonic()
            if stdin.fileno() in ready:
                line = os.read(stdin.fileno(), 4096)
                heard = now
                if not line or b"bye" in line:
                    return "bye" if line else "end of input"
            if now - heard >= ttl_s:
                return f"no heartbeat for {ttl_s:g} s"
            if now - looked >= LOOK_S:
                looked = now
                hot = too_hot(self._tree, self._limit_c)
                if hot:
                    return hot
        return self.ended

    def restore(self) -> list[str]:
        """Put every saved value back and read it; the paths that do not read as before. The state is kept for those."""
        failed = put_back(self._tree, self._saved)
        if not failed:
            self._state.discard()
        return failed

    def _set(self, path: str, value: str) -> None:
        if self.ended:
            raise Refused(f"ended by {self.ended} while locking")
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._tree.write(path, value)
            except FileNotFoundError:  # set_freq comes with its governor
                if time.monotonic() > until:
                    raise Refused(f"{path}: is not there") from None
                time.sleep(0.01)

    def _verify(self, wanted: list[tuple[str, str]]) -> None:
        """Wait for READS right readings in a row. Raises Refused with the first file that reads otherwise."""
        right, until = 0, time.monotonic() + PATIENCE_S
        while right < READS:
            wrong = [(path, value) for path, value in wanted if not steps.holds(value, self._tree.read(path))]
            right = 0 if wrong else right + 1
            if self.ended or (wrong and time.monotonic() > until):
                path, value = wrong[0] if wrong else ("", "")
                raise Refused(self.ended or f"{path}: {value} was written, {self._tree.read(path)} is read")
            if right < READS:
                time.sleep(READ_GAP_S)

    def _signalled(self, number: int, frame: object) -> None:
        self.ended = signal.Signals(number).name


def too_hot(tree: Tree, limit_c: float) -> str:
    """Why the board is too hot: a zone above the limit, or a cooler other than a fan that can do no more. Else ""."""
    for path in tree.paths(ZONES):
        text = tree.read(path) or ""
        if text.isdigit() and limit_c < int(text) / 1000 < BROKEN_C:
            return f"{_kind(tree, path)} is at {int(text) / 1000:g} C, above {limit_c:g} C"
    for path in tree.paths(COOLERS):
        kind, most, now = _kind(tree, path), tree.read(path.replace("cur_state", "max_state")), tree.read(path)
        if "fan" not in kind and now and now == most and now != "0":
            return f"{kind} throttles as far as it can ({now} of {most})"
    return ""


def put_back(tree: Tree, saved: list[tuple[str, str]]) -> list[str]:
    """Write saved values in order; twice more where one had to wait for another (a limit below the other limit)."""
    wrong = saved
    for attempt in range(3):
        for path, value in wrong:
            try:
                tree.write(path, value)
            except (OSError, Refused):
                continue
        wrong = _differing(tree, saved)
        if not wrong:
            return []
        if attempt < 2:
            time.sleep(READ_GAP_S)
    return [path for path, _ in wrong]


def main(arguments: dict[str, Any], stdin: IO[bytes]) -> None:
    """Lock and hold, or (arguments["do"] == "unlock") restore what a killed guard left."""
    tree = Tree(arguments["root"])
    try:
        state = State(tree)
        if not state.hold():
            raise Refused("another lock is held on this board: end it first" + _holder(state))
        left = state.load()
        if left and left["stale"]:
            state.discard()
        if arguments["do"] == "unlock":
            _say(_unlock(tree, state, left))
        elif left and not left["stale"]:
            raise Refused(
                f"a guard was killed and left this board locked{_who(left)}: run `loadkit board unlock` first"
            )
        else:
            _hold(Guard(tree, state, arguments["limit_c"]), arguments, stdin)
    except Refused as error:
        _say({"refused": str(error)})
    except OSError as error:
        hint = "; it takes root" if error.errno in (errno.EACCES, errno.EPERM) else ""
        _say({"refused": f"{error.filename}: {error.strerror}{hint}"})


def _hold(guard: Guard, arguments: dict[str, Any], stdin: IO[bytes]) -> None:
    guard.listen()
    clocks = guard.lock(arguments["settings"], arguments["owner"])
    why = "a bug of the guard"
    try:
        _say({"locked": clocks})
        why = guard.stay(stdin, arguments["ttl_s"])
    finally:
        failed = guard.restore()
    _say({"restored": not failed, "why": why, "failed": failed})


def _unlock(tree: Tree, state: State, left: dict[str, Any] | None) -> dict[str, Any]:
    if left is None:
        return {"restored": True, "why": "nothing was locked", "failed": []}
    if left["stale"]:
        return {"restored": True, "why": "the board has booted since, which undid the lock", "failed": []}
    failed = put_back(tree, left["saved"])
    if not failed:
        state.discard()
    return {"restored": not failed, "why": f"left by a killed guard{_who(left)}", "failed": failed}


def _to_restore(tree: Tree, plan: list[tuple[dict[str, Any], list[tuple[str, str]]]]) -> list[tuple[str, str]]:
    """(path, value) as they are now, in restoring order: frequencies and limits first, governors last."""
    saved: dict[str, str] = {}
    for _, planned in plan:
        for path, _ in reversed(planned):
            value = tree.read(path)
            # Under another governor the frequency to set reads <unsupported> or undefined: nothing to go back to.
            if value is not None and (value.isdigit() or "governor" in path):
                saved.setdefault(path, value)
    return sorted(saved.items(), key=lambda item: "governor" in item[0])


def _differing(tree: Tree, saved: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What does not read as saved. A set_freq whose governor is back to another is gone, and rightly so."""
    return [(path, value) for path, value in saved if (tree.read(path) or "").strip() != value.strip()]


def _kind(tree: Tree, path: str) -> str:
    return tree.read(path.rpartition("/")[0] + "/type") or path


def _holder(state: State) -> str:
    try:
        return _who(state.load() or {})
    except (OSError, Refused):
        return ""


def _who(left: dict[str, Any]) -> str:
    return f" (guard {left['pid']} for {left['owner']} since {left['since']})" if left else ""


def _say(message: dict[str, Any]) -> None:
    with suppress(OSError):  # the client may be gone, which is why we are here
        os.write(1, (json.dumps(message) + "\n").encode())
