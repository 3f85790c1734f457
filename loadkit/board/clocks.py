"""What a lock would hold on a board: its settings, and the plan of writes that a dry run shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadkit.board.access import Access
from loadkit.board.description import Board
from loadkit.board.errors import BoardError
from loadkit.board.onboard import steps
from loadkit.board.onboard.tree import Refused

Setting = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """`settings` for the guard, `writes` = (path, as it reads now, value) in order, `notes` on what is not held."""

    settings: tuple[Setting, ...]
    writes: tuple[tuple[str, str | None, str], ...]
    notes: tuple[str, ...]


def plan(access: Access, board: Board, chosen: Mapping[str, int]) -> Plan:
    """Every clock of the board at the value chosen for its name (Hz; kHz for cores), else at its highest.

    Raises BoardError for a name that the board does not have and a value that its kernel does not list.
    """
    found, notes = _present(access, board)
    for name in chosen:
        if name not in found:
            raise BoardError(f"no clock {name[:40]!r} to lock; there are: {', '.join(found) or 'none on this board'}")
    wanted = [path for setting, _ in found.values() for path in steps.files(setting).values()]
    idle = access.list(board.idle) if board.idle else []
    texts = access.read_many([*wanted, *idle])
    settings: list[Setting] = []
    for name, (setting, preferred) in found.items():
        offered = steps.frequencies(texts.get, setting)
        if not offered and name not in chosen:
            notes.append(f"{name}: the kernel lists no frequencies, so it is not held")
            continue
        value = chosen.get(name, preferred if preferred in offered else max(offered, default=0))
        settings.append({**setting, "value": value})
    settings += [{"name": path.split("/")[-4], "kind": "idle", "path": path, "value": 1} for path in idle]
    return Plan(tuple(settings), _writes(texts, settings), tuple(notes))


def _present(access: Access, board: Board) -> tuple[dict[str, tuple[Setting, int | None]], list[str]]:
    """Name -> (setting without its value, preferred value) of what the board has, and notes on what it lacks."""
    found: dict[str, tuple[Setting, int | None]] = {}
    notes: list[str] = []
    for device in board.devices:
        path = next((path for path in device.paths if access.list(f"{path}/governor")), None)
        if path is None:
            notes.append(f"{device.name}: {device.paths[0]} is not there, so its clock cannot be held")
        else:
            found[device.name] = ({"name": device.name, "kind": "devfreq", "path": path}, device.lock_hz)
    for cluster in board.clusters:
        policies = access.list(cluster.policy)
        for policy in policies:
            name = cluster.name if "*" not in cluster.policy else policy.rpartition("/")[2]
            found[name] = ({"name": name, "kind": "cpufreq", "path": policy}, None)
        if not policies:
            notes.append(f"{cluster.name}: {cluster.policy} is not there, so its clock cannot be held")
    return found, notes


def _writes(texts: Mapping[str, str | None], settings: list[Setting]) -> tuple[tuple[str, str | None, str], ...]:
    try:
        planned = [write for setting in settings for write in steps.writes(texts.get, setting)]
    except Refused as error:
        raise BoardError(str(error)) from None
    return tuple((path, texts.get(path), value) for path, value in planned)
