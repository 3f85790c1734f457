"""`python -m loadkit.board.sampler`: one JSON line a second about a board, until standard input ends.

A process of its own, so that a slow sensor or a slow network holds up nobody who takes stamps. Its clock is the
monotonic one of this machine, which is that of the run's other telemetry.
"""

import argparse
import json
import os
import select
import sys
import time
from typing import Any

from loadkit.board import perf
from loadkit.board.access import Access, connect
from loadkit.board.description import Board, load
from loadkit.board.errors import BoardError, BoardLost
from loadkit.board.telemetry import Sampler
from loadkit.plan.errors import ConfigError

PERIOD_S = 1.0
CLIP = 200


class Counters:
    """`perf stat` on the board; `take()` gives its last whole interval. Raises BoardError where nothing counts."""

    def __init__(self, access: Access, board: Board) -> None:
        wanted = perf.events(access, board)
        if not wanted:
            raise BoardError("the board's kernel lists none of the counters")
        self._access = access
        self._number: int | None = access.start(perf.argv(wanted))
        self._rest = ""

    def take(self) -> dict[str, Any]:
        """Rates per second under the keys of a row; {} where no interval has ended. Its end is told once."""
        if self._number is None:
            return {}
        told = self._access.output(self._number)
        whole, _, self._rest = (self._rest + told.out).rpartition("\n")
        counts = perf.last_interval(perf.parse(whole))
        if told.code is not None:
            self._number = None
            _say({"warning": f"perf ended with code {told.code}: {' '.join(told.out.split())[-CLIP:]}"})
        return perf.row(counts) if counts else {}


def main() -> int:
    """Sample until nobody wants it; what cannot be done is one line {"error": …} and exit code 1."""
    parser = argparse.ArgumentParser(prog="loadkit.board.sampler")
    for name in ("board", "host", "root"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--perf", action="store_true")
    args = parser.parse_args()
    try:
        board = load(args.board)
        with connect(args.host, args.root) as access:
            sampler = Sampler(access, board)
            _go_on(sampler, _counters(access, board) if args.perf else None)
    except (ConfigError, BoardLost) as error:
        _say({"error": error.message})
        return 1
    except BrokenPipeError:
        pass
    return 0


def _counters(access: Access, board: Board) -> Counters | None:
    """The counters; where there are none a warning, and the samples go on without."""
    try:
        return Counters(access, board)
    except BoardError as error:
        _say({"warning": f"no counters: {error.message}"})
        return None


def _go_on(sampler: Sampler, counters: Counters | None) -> None:
    """A row each second on an absolute schedule, so that a slow one does not shift those after it."""
    due = time.monotonic()
    while True:
        _say(sampler.sample() | (counters.take() if counters else {}))
        due = max(due + PERIOD_S, time.monotonic())
        if _ended(due):
            return


def _ended(until: float) -> bool:
    """Wait; True when standard input has ended."""
    while (left := until - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0] and not os.read(sys.stdin.fileno(), 4096):
            return True
    return False


def _say(row: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(row, allow_nan=False) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
