"""What stands in the way of a clean run on a board, as a probe found it: one line each, with what to do."""

import re
from collections.abc import Iterable, Sequence

from loadkit.board.access import Access
from loadkit.board.description import Board
from loadkit.board.facts import Fact

HELD = ("userspace", "performance")
WARM_C = 70.0  # a board that starts warm throttles early
BUSY = 0.5  # load average over one minute


def hindrances(access: Access, board: Board, facts: Sequence[Fact]) -> Iterable[str]:
    """Each hindrance once. Reads a few files more; changes nothing."""
    by_name = {(fact.group, fact.name): fact for fact in facts}
    yield from _clocks(board, facts, by_name)
    yield from _rights(access, board, by_name)
    yield from _counters(board, by_name)
    yield from _state(access, facts)
    if ("memory", "theoretical bandwidth") not in by_name:
        yield "width or clock of the memory is unknown: no theoretical bandwidth; give --bandwidth and your own figure"


def _clocks(board: Board, facts: Sequence[Fact], by_name: dict[tuple[str, str], Fact]) -> Iterable[str]:
    free = []
    for fact in facts:
        name, _, what = fact.name.rpartition(" ")
        if fact.group != "clocks" or what != "governor":
            continue
        ends = [by_name.get(("clocks", f"{name} {end}")) for end in ("lowest", "highest")]
        pinned = all(ends) and ends[0].value == ends[1].value  # type: ignore[union-attr]
        if fact.value not in HELD and not pinned:
            free.append(f"{name} ({fact.value})")
    if free:
        yield f"clocks are free to move: {', '.join(free)}; `loadkit board lock` holds them"
    for device in board.devices:
        if ("clocks", f"{device.name} governor") not in by_name:
            yield f"{device.name} has no {device.paths[0]}: its clock can be neither read nor held"


def _rights(access: Access, board: Board, by_name: dict[tuple[str, str], Fact]) -> Iterable[str]:
    user = by_name.get(("machine", "user id"))
    if user is not None and user.value != 0 and access.run(["sudo", "-n", "true"]).code != 0:
        yield "not root, and `sudo -n` asks for a password: clocks cannot be held, debugfs cannot be read"
    if "npu_load" in board.facts and ("accelerator", "NPU load") not in by_name:
        yield f"{board.facts['npu_load']} cannot be read (it takes root and the vendor's driver): no NPU load"


def _counters(board: Board, by_name: dict[tuple[str, str], Fact]) -> Iterable[str]:
    for cluster in board.clusters:
        if cluster.pmus and not any(("counters", f"{name} events") in by_name for name in cluster.pmus):
            yield f"no PMU for the cores {cluster.name} (looked for {', '.join(cluster.pmus)})"
    if board.ddr_pmus and not any(("counters", f"{name} events") in by_name for name in board.ddr_pmus):
        yield f"no PMU counts memory traffic (looked for {', '.join(board.ddr_pmus)})"
    if ("counters", "perf") not in by_name:
        yield "perf is not installed: no counters"
    paranoid = by_name.get(("counters", "perf_event_paranoid"))
    root = by_name.get(("machine", "user id"))
    if paranoid and root and root.value != 0 and str(paranoid.value).isdigit() and int(str(paranoid.value)) > 1:
        yield f"perf_event_paranoid is {paranoid.value}: counting on all cores takes 1 or less, or root"


def _state(access: Access, facts: Sequence[Fact]) -> Iterable[str]:
    warm = [f"{fact.name} {fact.value:g} C" for fact in facts
            if fact.group == "heat" and fact.unit == "C" and isinstance(fact.value, float)
            and WARM_C <= fact.value < 200]  # fmt: skip
    if warm:
        yield f"the board is warm already: {', '.join(warm)}"
    for fact in facts:
        throttling = fact.group == "heat" and fact.name.startswith("cooling ") and not str(fact.value).startswith("0 ")
        if throttling and "fan" not in fact.name:
            yield f"{fact.name.removeprefix('cooling ')} is throttling: {fact.value}"
        if fact.name == "vcgencmd get_throttled" and str(fact.value) != "throttled=0x0":
            yield f"{fact.value}: under-voltage or throttling now or since boot"
    average = re.match(r"([0-9]+\.[0-9]+)", access.read("proc/loadavg") or "")
    if average and float(average[1]) > BUSY:
        yield f"the board is busy: load average {average[1]}"
    used = [line.split() for line in (access.read("proc/swaps") or "").splitlines()[1:]]
    if any(len(words) > 3 and words[3] != "0" for words in used):
        yield "swap is in use: a model that does not fit is read from disk"
