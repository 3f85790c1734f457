"""What a person is told when the run folder cannot be used."""

import errno
import stat
from pathlib import Path


class FolderError(Exception):
    """The run folder or a file in it cannot be made, written or read. The message is one line that says what to do."""


def reason(error: OSError) -> str:
    """The operating system's words for the error, without the number and the path."""
    return error.strerror or str(error)


def regular(path: Path) -> Path:
    """The path of a file that has an end. OSError for a pipe, a socket or a device: reading one may wait for ever."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # a folder says so itself when it is opened
        return path
    raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, not a file", str(path))
