"""A board's description: a TOML file that says where a board keeps its facts. Shipped ones are in boards/.

A description is data and may come from anybody, so it is held to its form: unknown keys, and paths that are not plain
ones below sys/ or proc/, are refused. It cannot widen what is ever written: see loadkit.board.onboard.tree.WRITABLE.

Paths are relative to the root of the board (or of a copied tree, --sysfs-root) and have no leading slash.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from loadkit.plan.errors import ConfigError

FOLDER = Path(__file__).parent / "boards"
GENERIC = "generic-linux"
PATH = re.compile(r"(?:sys|proc)(?:/[A-Za-z0-9_*][A-Za-z0-9_.:@,+*-]*)+")  # a component never begins with a dot
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
TEXT = re.compile(r"[^\x00-\x1f\x7f]{1,400}")

Read = Callable[[str, Any], Any]


@dataclass(frozen=True, slots=True)
class Memory:
    """The DRAM of one make of the board. A theoretical bandwidth is clock x 2 x bits / 8.

    `models`: words of the device tree's model this entry is for; none means every model.
    `bus_bits`: bits moved at once by all channels. `clock_hz`: the memory clock at its highest, half the transfer rate;
    a frequency the board itself lists goes before it. `source` says whose figures these are.
    """

    types: tuple[str, ...]
    source: str
    bus_bits: int | None = None
    clock_hz: int | None = None
    models: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cores of one kind: their cpufreq policy folder and the names their PMU may have, the likeliest first."""

    name: str
    core: str
    cpus: tuple[int, ...]
    policy: str
    pmus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Device:
    """A part with a clock of its own (devfreq): "ddr", "npu", "gpu". `paths`: its folder, by the names kernels give it.

    `lock_hz`: what the maker's own script sets, else the highest of available_frequencies.
    """

    name: str
    paths: tuple[str, ...]
    lock_hz: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """An inference server met on this board. `protocol`: a name of loadkit.protocol. `quant`: what it can run here.

    `runs_on`: "npu", "gpu" or "cpu". An empty `quant` means any.
    """

    name: str
    protocol: str
    port: int
    runs_on: str
    quant: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """One description. `facts` names single files, by what they tell (npu_load, npu_version, emc_rate, ...).

    `ddr_pmus`: PMUs that count DRAM traffic. `efficiency`: published decode rates over the bound, lowest and highest.
    `power`: patterns of power sensors (hwmon, microwatts). `tools`: programs that tell more where they are installed.
    """

    name: str
    title: str
    compatible: tuple[str, ...] = ()
    memory: tuple[Memory, ...] = ()
    clusters: tuple[Cluster, ...] = ()
    devices: tuple[Device, ...] = ()
    engines: tuple[Engine, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    ddr_pmus: tuple[str, ...] = ()
    power: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    idle: str = ""  # pattern of the `disable` files of idle states that a lock turns off
    limit_c: float = 90.0  # degrees Celsius at which a lock lets go
    efficiency: tuple[float, ...] = ()
    efficiency_source: str = ""
    notes: tuple[str, ...] = ()

    def memory_of(self, model: str | None) -> Memory | None:
        """The memory of the make with this device tree model; None where the description knows none."""
        for memory in self.memory:
            if not memory.models or any(word in (model or "") for word in memory.models):
                return memory
        return None


def shipped() -> list[str]:
    """The names of the descriptions that come with loadkit."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Board:
    """A shipped description by name, or one's own by the path of a .toml file. ConfigError says what is wrong."""
    own = name.endswith(".toml")
    if not own and name not in shipped():
        raise ConfigError(f"no board {name[:40]!r}; there are: {', '.join(shipped())}, or the path of a .toml file")
    path = Path(name) if own else FOLDER / f"{name}.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise ConfigError(f"{name}: is not UTF-8 text") from None
    return parse(text, name)


def recognise(compatible: Iterable[str]) -> Board:
    """The shipped board whose device tree names are among these; generic-linux where none is."""
    names = set(compatible)
    boards = (load(name) for name in shipped())
    return next((board for board in boards if names & set(board.compatible)), None) or load(GENERIC)


def parse(text: str, where: str) -> Board:
    """The description in a TOML text. `where` names it in errors."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: {error}") from None
    try:
        return _made(Board, table, "")
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _made(kind: Any, table: Any, where: str) -> Any:
    """One dataclass of a TOML table. ValueError on unknown or missing keys and on values out of form."""
    if not isinstance(table, dict):
        raise ValueError(f"{where or 'the file'} must be a table")
    known = {item.name: item for item in fields(kind)}
    for key in table:
        if key not in known:
            raise ValueError(f"{where}{key[:40]!r} is not known; there are: {', '.join(known)}")
    values = {key: READERS[key](f"{where}{key}", value) for key, value in table.items()}
    try:
        return kind(**values)
    except TypeError as error:  # Python names what is missing
        raise ValueError(f"{where or 'the file'}: {str(error).partition(') ')[2] or error}") from None


def _matching(pattern: re.Pattern[str], what: str) -> Read:
    def read(where: str, value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value) or ".." in value:
            raise ValueError(f"{where} = {str(value)[:60]!r}: must be {what}")
        return value

    return read


def _number(kind: type, low: float, high: float) -> Read:
    def read(where: str, value: Any) -> Any:
        number = isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
        if not number or not low <= value <= high:
            raise ValueError(f"{where} = {str(value)[:60]}: must be a number from {low:g} to {high:g}")
        return value

    return read


def _each(read: Read) -> Read:
    def every(where: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > 100:
            raise ValueError(f"{where} must be a list")
        return tuple(read(f"{where}[{index}]", item) for index, item in enumerate(value))

    return every


def _tables(kind: Any) -> Read:
    return _each(lambda where, value: _made(kind, value, f"{where}."))


def _paths_by_name(where: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a table of paths")
    return {_name(where, key): _path(f"{where}.{key}", path) for key, path in value.items()}


_path = _matching(PATH, "a path such as sys/class/thermal, without a leading slash or ..")
_name = _matching(NAME, "a plain name")
_text = _matching(TEXT, "one line of text")
READERS: dict[str, Read] = {
    "name": _name,
    "title": _text,
    "compatible": _each(_text),
    "memory": _tables(Memory),
    "clusters": _tables(Cluster),
    "devices": _tables(Device),
    "engines": _tables(Engine),
    "facts": _paths_by_name,
    "ddr_pmus": _each(_name),
    "power": _each(_path),
    "tools": _each(_name),
    "idle": _path,
    "limit_c": _number(float, 40, 120),
    "efficiency": _each(_number(float, 0, 1)),
    "efficiency_source": _text,
    "notes": _each(_text),
    "types": _each(_name),
    "source": _text,
    "bus_bits": _number(int, 8, 4096),
    "clock_hz": _number(int, 1_000_000, 20_000_000_000),
    "models": _each(_text),
    "note": _text,
    "core": _text,
    "cpus": _each(_number(int, 0, 1023)),
    "policy": _path,
    "pmus": _each(_name),
    "paths": _each(_path),
    "lock_hz": _number(int, 1_000_000, 20_000_000_000),
    "protocol": _name,
    "port": _number(int, 1, 65535),
    "runs_on": _name,
    "quant": _each(_name),
}
