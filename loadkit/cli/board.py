"""Look at an edge board, hold its clocks still, let them go: `loadkit board probe HOST`.

HOST is what ssh takes (an alias, user@host, ssh://user@host:port), or `local` for this machine.
"""

import argparse
import json
import math
import signal
from pathlib import Path
from types import FrameType

from loadkit.board import clocks, lock
from loadkit.board.access import Access, connect
from loadkit.board.description import Board, load, recognise, shipped
from loadkit.board.probe import compatible, look
from loadkit.cli.streams import say
from loadkit.plan.errors import ConfigError
from loadkit.plan.shown import shown
from loadkit.record.names import ExitCode

ACTIONS = {
    "probe": "print what the board is, who says so, and what is missing for a clean run",
    "lock": "hold the clocks until Ctrl-C; the board restores them by itself when it loses us",
    "unlock": "restore the clocks that a killed guard left locked",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One set of options for each action."""
    actions = parser.add_subparsers(dest="action", metavar="|".join(ACTIONS), required=True)
    made = {name: actions.add_parser(name, help=text, description=text) for name, text in ACTIONS.items()}
    for action in made.values():
        _place_arguments(action)
    probe, locking = made["probe"], made["lock"]
    probe.add_argument("--bandwidth", action="store_true", help="measure memory bandwidth on the board, about 2 s")
    probe.add_argument("--json", action="store_true", help="print JSON instead of lines")
    locking.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="chosen",
        help="a clock's value: Hz for ddr, npu, gpu, kHz for cores; default: each at its highest",
    )  # fmt: skip
    locking.add_argument("--dry-run", action="store_true", help="print what would be written, and write nothing")
    locking.add_argument(
        "--ttl", type=_seconds, default=lock.TTL_S, metavar="S",
        help=f"seconds without us after which the board restores; default {lock.TTL_S:g}",
    )  # fmt: skip
    locking.add_argument(
        "--limit",
        type=_celsius,
        metavar="C",
        help="temperature at which it restores; default: the board's, 90 or lower",
    )


def _place_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("host", metavar="HOST", help="what ssh takes as a host, or local")
    parser.add_argument("--board", metavar="NAME", help=f"{', '.join(shipped())} or a .toml file; default: by itself")
    parser.add_argument(
        "--sysfs-root", default="/", metavar="DIR", help="where sys/ and proc/ are on the board; default /"
    )
    parser.add_argument("--ssh-config", type=Path, metavar="FILE", help="configuration file for ssh (its -F)")


def _seconds(text: str) -> float:
    return _between(text, 0.5, 3600, "seconds")


def _celsius(text: str) -> float:
    return _between(text, 40, 120, "degrees Celsius")


def _between(text: str, low: float, high: float, unit: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: must be {unit} from {low:g} to {high:g}")
    return value


def main(args: argparse.Namespace) -> int:
    """Do one action."""
    with connect(args.host, args.sysfs_root, args.ssh_config) as access:
        board = load(args.board) if args.board else recognise(compatible(access))
        if args.action == "probe":
            return _probe(access, board, args)
        # Root is needed for a board's own files only; a copied tree belongs to whoever made it.
        sudo = args.sysfs_root == "/" and access.who()["uid"] != 0
        place = lock.Place(args.host, args.sysfs_root, args.ssh_config, sudo)
        if args.action == "unlock":
            return _told(lock.unlock(place))
        plan = clocks.plan(access, board, _chosen(args.chosen))
    limit_c = board.limit_c if args.limit is None else args.limit
    if not plan.settings:
        raise ConfigError(f"{args.host}: there is nothing to lock: {'; '.join(plan.notes)}")
    if args.dry_run:
        print("\n".join(_plan_lines(plan, limit_c, args.ttl)))
        return ExitCode.COMPLETE
    return _hold(lock.Lock.take(place, list(plan.settings), ttl_s=args.ttl, limit_c=limit_c), plan)


def _probe(access: Access, board: Board, args: argparse.Namespace) -> int:
    found = look(access, board, bandwidth=args.bandwidth)
    print(json.dumps(found.as_json(), indent=2) if args.json else "\n".join(map(shown, found.lines())))
    return ExitCode.COMPLETE


def _chosen(words: list[str]) -> dict[str, int]:
    chosen: dict[str, int] = {}
    for word in words:
        name, _, value = word.partition("=")
        if not name or not value.isascii() or not value.isdigit() or len(value) > 12 or name in chosen:
            raise ConfigError(f"--set {word[:60]!r}: must be NAME=VALUE with a whole number, each name once")
        chosen[name] = int(value)
    return chosen


def _plan_lines(plan: clocks.Plan, limit_c: float, ttl_s: float) -> list[str]:
    lines = [
        f"{path}: {'(not there yet)' if before is None else before} -> {value}" for path, before, value in plan.writes
    ]
    end = f"Restored at the end, after {ttl_s:g} s without us, and above {limit_c:g} C. Nothing has been written."
    return [shown(line) for line in (*lines, *plan.notes, end)]


def _hold(held: lock.Lock, plan: clocks.Plan) -> int:
    """Hold until Ctrl-C or TERM, or until the guard lets go by itself."""
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        for line in (*(f"{path} = {value}" for path, value in held.clocks.items()), *plan.notes):
            print(shown(line))
        print("Locked. Ctrl-C restores.", flush=True)
        held.wait()
    except KeyboardInterrupt:
        pass
    finally:
        early = held.ended
        ended = held.release()
        signal.signal(signal.SIGTERM, previous)
    code = _told(ended)
    return ExitCode.INCOMPLETE if early and code == ExitCode.COMPLETE else code


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _told(ended: lock.Ended) -> int:
    if ended.restored:
        say(shown(f"Restored ({ended.why})."))
        return ExitCode.COMPLETE
    files = f": {', '.join(ended.failed)} did not go back" if ended.failed else ""
    say(shown(f"Not restored{files} ({ended.why})."))
    return ExitCode.INCOMPLETE
