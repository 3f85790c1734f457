"""Files of a board below a root folder, opened one component at a time and never through a symlink that was planted.

sysfs itself needs symlinks: sys/class/SUBSYSTEM/NAME and sys/bus/BUS/devices/NAME point into sys/devices. Only there is
one followed, only into sys/devices, and only to a folder of the same NAME (and SUBSYSTEM). What may be written is the
closed list WRITABLE: a path that is not on it is refused before anything is opened.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat

MAX_BYTES = 65536
PART = re.compile(r"[A-Za-z0-9_*?][A-Za-z0-9_.:@,+*?-]*")  # never begins with a dot
TOPS = ("sys", "proc")
_FREE = r"[A-Za-z0-9_][A-Za-z0-9_.:-]*"
WRITABLE = tuple(
    re.compile(pattern)
    for pattern in (
        rf"sys/class/devfreq/{_FREE}/(?:governor|min_freq|max_freq|userspace/set_freq)",
        r"sys/devices/system/cpu/cpufreq/policy[0-9]{1,4}/scaling_(?:governor|min_freq|max_freq|setspeed)",
        r"sys/devices/system/cpu/cpu[0-9]{1,4}/cpuidle/state[0-9]{1,2}/disable",
    )
)
VALUE = re.compile(r"[A-Za-z0-9_-]{1,32}")  # a governor's name or a number


class Refused(Exception):
    """The path or value is not one that may be touched; nothing was opened for it."""


class Tree:
    """The files below `root`. Paths are relative to it, without a leading slash."""

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def read(self, path: str) -> str | None:
        """The text of a file without its last newline or NUL, at most 64 KiB of it; None where it cannot be read."""
        try:
            opened = self._open(_parts(path), os.O_RDONLY)
        except (OSError, Refused):
            return None
        try:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                return None
            data = b""
            while len(data) < MAX_BYTES:
                piece = os.read(opened, MAX_BYTES - len(data))
                if not piece:
                    break
                data += piece
        except OSError:  # a disabled zone or a sleeping device answers with an error
            return None
        finally:
            os.close(opened)
        return data.decode("utf-8", "replace").rstrip("\n\0")

    def paths(self, pattern: str) -> list[str]:
        """Existing paths of a pattern with * and ? inside components, numbers in order (zone2 before zone10)."""
        try:
            parts = _parts(pattern)
        except Refused:
            return []
        found: list[tuple[str, ...]] = [()]
        for part in parts:
            found = [(*head, name) for head in found for name in self._names(head, part)]
        return ["/".join(path) for path in sorted(found, key=_natural)]

    def write(self, path: str, value: str) -> None:
        """Write a value to a file that exists and is on the list. Raises Refused, or OSError as the kernel answers."""
        if not writable(path):
            raise Refused(f"{path[:100]!r} is not a file that a lock may write")
        if not VALUE.fullmatch(value):
            raise Refused(f"{value[:40]!r} is neither a governor's name nor a number")
        try:
            opened = self._open(_parts(path), os.O_WRONLY | os.O_TRUNC)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise Refused(f"{path}: leads through a symlink, which is not followed") from None
            raise OSError(error.errno, error.strerror, path) from None
        try:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise Refused(f"{path}: is not a plain file")
            os.write(opened, f"{value}\n".encode())
        except OSError as error:
            raise OSError(error.errno, f"the kernel refused {value} ({error.strerror})", path) from None
        finally:
            os.close(opened)

    def _names(self, head: tuple[str, ...], part: str) -> list[str]:
        if "*" not in part and "?" not in part:
            return [part] if self._exists((*head, part)) else []
        if not head:
            return [top for top in TOPS if fnmatch.fnmatchcase(top, part) and self._exists((top,))]
        try:
            folder = self._open(head, os.O_RDONLY | os.O_DIRECTORY)
        except (OSError, Refused):
            return []
        try:
            return [name for name in os.listdir(folder) if fnmatch.fnmatchcase(name, part) and PART.fullmatch(name)]
        except OSError:
            return []
        finally:
            os.close(folder)

    def _exists(self, parts: tuple[str, ...]) -> bool:
        try:
            os.close(self._open(parts, os.O_PATH))
        except (OSError, Refused):
            return False
        return True

    def _open(self, parts: tuple[str, ...], flags: int) -> int:
        """A file descriptor of the path; its folders are walked from the root without following links."""
        return self._walk(parts, flags, _link_place(parts))

    def _walk(self, parts: tuple[str, ...], flags: int, link: int | None) -> int:
        folder = os.open(self.root, os.O_PATH | os.O_DIRECTORY)
        try:
            for index, part in enumerate(parts):
                last = index == len(parts) - 1
                if index == link and _is_link(part, folder):
                    target = _followed(parts[:index], os.readlink(part, dir_fd=folder), part)
                    return self._walk(target + parts[index + 1 :], flags, None)
                if last:
                    plain = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
                    if flags & os.O_PATH and _is_link(part, folder):
                        raise OSError(errno.ELOOP, "is a symlink")
                    return os.open(part, flags | plain, dir_fd=folder)
                inner = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = inner
        finally:
            os.close(folder)
        raise Refused("an empty path")


def writable(path: str) -> bool:
    """Whether the path is on the list of what a lock may write."""
    return ".." not in path and any(pattern.fullmatch(path) for pattern in WRITABLE)


def _parts(path: str) -> tuple[str, ...]:
    parts = tuple(path.split("/"))
    if len(path) > 400 or parts[0] not in TOPS or not all(PART.fullmatch(part) for part in parts):
        raise Refused(f"{path[:100]!r} is not a plain path below sys/ or proc/")
    return parts


def _link_place(parts: tuple[str, ...]) -> int | None:
    """The index of the component that sysfs makes a symlink, if the path has one."""
    if parts[:2] == ("sys", "class"):
        return 3
    return 4 if parts[:2] == ("sys", "bus") and parts[3:4] == ("devices",) else None


def _is_link(part: str, folder: int) -> bool:
    return stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)


def _followed(head: tuple[str, ...], target: str, name: str) -> tuple[str, ...]:
    """The components a class or bus link leads to. Refused where it is not what sysfs makes."""
    path = tuple(os.path.normpath("/".join((*head, target))).split("/"))
    inside = not target.startswith("/") and path[:2] == ("sys", "devices") and path[-1] == name
    if not inside or (head[1] == "class" and path[-2] != head[2]):
        raise Refused(f"{'/'.join((*head, name))} leads to {target[:100]!r}, which is not its device")
    return path


def _natural(path: tuple[str, ...]) -> list[list[tuple[int, str]]]:
    split = re.compile(r"([0-9]+)")
    return [[(int(piece), "") if piece.isdigit() else (-1, piece) for piece in split.split(part)] for part in path]
