"""Where progress is shown: lines that stay, and below them, on a terminal only, a block that is written over."""

import contextlib
import os
from collections.abc import Sequence
from typing import IO

FROM_HERE = "\x1b[J"  # clears from the cursor to the end of the screen
NARROWEST = (80, 24)


class Screen:
    """A stream, mostly standard error. A reader that has gone must not end the measurement: nothing raises."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._above = 0  # lines of the block above the cursor
        self._shown = False
        self.live = bool(getattr(stream, "isatty", lambda: False)())

    def keep(self, text: str) -> None:
        """A line that stays; a block that is shown goes, and comes back with the next `renew`."""
        self._write(self._wiped() + text + "\n")

    def renew(self, lines: Sequence[str]) -> None:
        """Write the block over with these lines, clipped to the terminal: one that wraps could not be written over."""
        if not self.live:
            return
        columns, rows = self._size()
        shown = [line[: columns - 1] for line in lines[-max(rows - 1, 1) :]]
        text = self._wiped() + "\n".join(shown)
        self._above, self._shown = len(shown) - 1, True
        self._write(text)

    def _wiped(self) -> str:
        if not self._shown:
            return ""
        up = f"\x1b[{self._above}A" if self._above else ""
        self._above, self._shown = 0, False
        return f"\r{up}{FROM_HERE}"

    def _size(self) -> tuple[int, int]:
        try:
            columns, rows = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return NARROWEST
        return columns or NARROWEST[0], rows or NARROWEST[1]

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
