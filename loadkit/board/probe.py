"""Look at a board and change nothing: what it is, who says so, and what stands in the way of a clean run."""

from collections.abc import Iterable

from loadkit.board import dram
from loadkit.board.access import Access
from loadkit.board.description import Board
from loadkit.board.facts import Fact, Findings, clipped
from loadkit.board.hindrances import hindrances

TREE = "sys/firmware/devicetree/base"
DMI = "sys/class/dmi/id/product_name"
PMUS = "sys/bus/event_source/devices"
THERMAL = "sys/class/thermal"
PARANOID = "proc/sys/kernel/perf_event_paranoid"
MOST = 200  # of anything that is listed
WANTED_EVENTS = ("bus_access", "l1d_cache_refill", "l2d_cache_refill")


def compatible(access: Access) -> list[str]:
    """The device tree's names of the machine, the most special first; empty where there is no device tree."""
    return [name for name in (access.read(f"{TREE}/compatible") or "").split("\0") if name]


def look(access: Access, board: Board, *, bandwidth: bool = False) -> Findings:
    """Everything at once; `bandwidth` also measures memory on the board, about two seconds."""
    model = access.read(f"{TREE}/model")
    facts = [
        *_machine(access, board, model),
        *dram.memory(access, board, model, measure=bandwidth),
        *_clocks(access, board),
        *_heat(access),
        *_counters(access, board),
        *_accelerator(access, board),
    ]
    return Findings(
        access.name, board.name, board.title, tuple(facts), tuple(hindrances(access, board, facts)), board.notes
    )


def _machine(access: Access, board: Board, model: str | None) -> Iterable[Fact]:
    named = {f"{TREE}/model": model, DMI: None if model else access.read(DMI)}
    for source, text in named.items():
        if text:
            yield Fact("machine", "model", clipped(text), source)
    names = compatible(access)
    if names:
        yield Fact("machine", "SoC", clipped(names[-1]), f"{TREE}/compatible")
    yield Fact("machine", "description", board.title, f"loadkit's {board.name}.toml")
    kernel = access.read("proc/sys/kernel/osrelease")
    if kernel:
        yield Fact("machine", "kernel", clipped(kernel), "proc/sys/kernel/osrelease")
    who = access.who()
    yield Fact("machine", "cores", int(who["cores"]), "Python on the board")
    yield Fact("machine", "user id", int(who["uid"]), "Python on the board", note="0 is root")


def _clocks(access: Access, board: Board) -> Iterable[Fact]:
    """Governor, steps and limits of each part that has a clock, whether the description names it or not."""
    known = {path: device.name for device in board.devices for path in device.paths}
    known |= {cluster.policy: cluster.name for cluster in board.clusters}
    for prefix, pattern, scale in (
        ("", "sys/class/devfreq/*", 1),
        ("scaling_", "sys/devices/system/cpu/cpufreq/policy*", 1000),
    ):
        for folder in access.list(pattern)[:MOST]:
            yield from _clock(access, folder, prefix, scale, known.get(folder, folder.rpartition("/")[2]))
    idle = access.read_many(access.list(board.idle)) if board.idle else {}
    if idle:
        off = sum(text == "1" for text in idle.values())
        yield Fact("clocks", "deep idle states turned off", f"{off} of {len(idle)}", board.idle)


def _clock(access: Access, folder: str, prefix: str, scale: int, name: str) -> Iterable[Fact]:
    current = "cur_freq"
    wanted = {
        "governor": f"{prefix}governor",
        "governors": f"{prefix}available_governors",
        "steps": f"{prefix}available_frequencies",
        "current": f"{prefix}{current}",
        "lowest": f"{prefix}min_freq",
        "highest": f"{prefix}max_freq",
    }
    texts = access.read_many(f"{folder}/{file}" for file in wanted.values())
    for what, file in wanted.items():
        text, source = texts[f"{folder}/{file}"], f"{folder}/{file}"
        if not text:
            continue
        if what in ("governor", "governors"):
            words = tuple(clipped(word) for word in text.split()[:MOST])
            yield Fact("clocks", f"{name} {what}", words[0] if what == "governor" else words, source)
            continue
        numbers = tuple(int(word) * scale for word in text.split()[:MOST] if word.isdigit() and len(word) < 16)
        if numbers:
            yield Fact("clocks", f"{name} {what}", numbers if what == "steps" else numbers[0], source, "Hz")


def _heat(access: Access) -> Iterable[Fact]:
    zones = access.list(f"{THERMAL}/thermal_zone*")[:MOST]
    coolers = access.list(f"{THERMAL}/cooling_device*")[:MOST]
    files = [f"{zone}/{file}" for zone in zones for file in ("type", "temp")]
    files += [f"{cooler}/{file}" for cooler in coolers for file in ("type", "cur_state", "max_state")]
    texts = access.read_many(files)
    for zone in zones:
        degrees = (texts[f"{zone}/temp"] or "").strip()
        if degrees.lstrip("-").isdigit():
            kind = clipped(texts[f"{zone}/type"] or zone.rpartition("/")[2])
            yield Fact("heat", kind, int(degrees) / 1000, f"{zone}/temp", "C")
    for cooler in coolers:
        state, most = texts[f"{cooler}/cur_state"], texts[f"{cooler}/max_state"]
        if state is not None and most is not None:
            kind = clipped(texts[f"{cooler}/type"] or cooler.rpartition("/")[2])
            yield Fact("heat", f"cooling {kind}", clipped(f"{state} of {most}"), f"{cooler}/cur_state")


def _counters(access: Access, board: Board) -> Iterable[Fact]:
    """PMU events that exist: those of the clusters and of the memory controller."""
    for name in _pmus(access, board):
        events = tuple(path.rpartition("/")[2] for path in access.list(f"{PMUS}/{name}/events/*")[:MOST])
        cores = access.read(f"{PMUS}/{name}/cpus")
        note = f"cores {clipped(cores)}" if cores else ""
        yield Fact("counters", f"{name} events", events, f"{PMUS}/{name}/events", note=note)
    done = access.run(["perf", "--version"])
    if done.code == 0:
        yield Fact("counters", "perf", clipped(done.out), "perf --version")
    paranoid = access.read(PARANOID)
    if paranoid is not None:
        yield Fact("counters", "perf_event_paranoid", clipped(paranoid), PARANOID)


def _pmus(access: Access, board: Board) -> list[str]:
    there = {path.rpartition("/")[2] for path in access.list(f"{PMUS}/*")}
    wanted = [name for cluster in board.clusters for name in cluster.pmus] + list(board.ddr_pmus)
    return [name for name in dict.fromkeys(wanted) if name in there]


def _accelerator(access: Access, board: Board) -> Iterable[Fact]:
    for name, label in (("npu_version", "NPU driver"), ("npu_load", "NPU load")):
        path = board.facts.get(name)
        text = access.read(path) if path else None
        if path and text:
            yield Fact("accelerator", label, clipped(text), path)
    for tool, arguments in (("vcgencmd", ["get_throttled"]), ("nvpmodel", ["-q"])):
        if tool in board.tools:
            done = access.run([tool, *arguments])
            if done.code == 0 and done.out.strip():
                yield Fact("accelerator", f"{tool} {arguments[0]}", clipped(done.out), tool)
