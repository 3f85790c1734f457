"""Standard output and standard error as a shell may leave them: closed, full, or with nobody at the other end."""

import contextlib
import os
import sys


def reopen() -> None:
    """Give a closed standard stream a file, or the next file that is opened would take its place.

    What is written to standard output then fails, as on a full disk; what goes to standard error is lost.
    """
    for fd, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, flags)  # the lowest number that is free, which is fd
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def say(line: str) -> None:
    """One line for the person who watches; that nobody does any more is no reason to stop."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def silence() -> None:
    """Point standard output nowhere, so that what is left in its buffer is no fault at exit."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
