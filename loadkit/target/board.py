"""A server on an edge board: what the board is, how it stands before the run, and what its numbers are held against.

The board is the device under test and the URL the way to it: two things, given apart. Reading the board is optional (a
server in another network may be all there is), the quantisation is not.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loadkit.board import probe, quantisation
from loadkit.board.access import LOCAL, Access, connect
from loadkit.board.description import Board, load
from loadkit.board.facts import Findings
from loadkit.board.held import held, targets
from loadkit.board.telemetry import Sampler
from loadkit.capacity import sizes
from loadkit.capacity.errors import CardError
from loadkit.capacity.given import card_given
from loadkit.capacity.roofline import dram_bandwidth
from loadkit.plan.edge import Edge
from loadkit.plan.endpoint import Endpoint
from loadkit.plan.errors import ConfigError

MEASURE = "measure"
IDLE_S = 1.0  # the board is watched for so long before anything is sent
REST = ("frequency_hz", "temperature_c", "cooling", "load", "memory", "power_w", "throttled_bits")


def facts(edge: Edge, endpoint: Endpoint, cwd: Path, *, sleep: Callable[[float], Any] = time.sleep) -> dict[str, Any]:
    """What the manifest says of the board. Raises ConfigError for what cannot be measured, BoardLost where it is gone.

    `host` is None where the board is not read: its clocks, temperatures and memory are then not in the run.
    """
    board = load(str(cwd / edge.board) if edge.board.endswith(".toml") else edge.board)
    if edge.quant is None:
        raise quantisation.missing(board)
    quant = quantisation.parse(edge.quant)
    runs_on = quantisation.check(quant, board)
    host = edge.host or (LOCAL if endpoint.loopback else None)
    known = {
        "board": board.name,
        "title": board.title,
        "asked": edge.to_json(),
        "host": host,
        "quantisation": quant.to_json(),
        "runs_on": runs_on,
        **_card(edge, cwd),
    }
    if host is None:
        return known | _bandwidth(edge, board, None)
    with connect(host, edge.root) as access:
        found = probe.look(access, board, bandwidth=edge.bandwidth == MEASURE)
        return known | _bandwidth(edge, board, found) | _before(access, board, found, sleep)


def _card(edge: Edge, cwd: Path) -> dict[str, Any]:
    """The model card that was named; without one the catalogue is asked by the model's name when the run is over."""
    if edge.card is None:
        return {}
    try:
        card = card_given(edge.card, cwd)
        return {"card": card.name, "dimensions": asdict(card.need())}
    except CardError as error:
        raise ConfigError(f"--card: {error}") from None


def _before(access: Access, board: Board, found: Findings, sleep: Callable[[float], Any]) -> dict[str, Any]:
    """Who the board is, which of its clocks are held, and a sample of it over a second in which nothing was sent."""
    sampler = Sampler(access, board)
    sampler.sample()
    sleep(IDLE_S)
    row = sampler.sample()
    clocks = held(access, sampler.sensors)
    return {
        "device": found.value("machine", "model"),
        "before": {name: row[name] for name in REST if name in row},
        "lock": {"targets_hz": targets(clocks), "not_held": [name for name, value in clocks.items() if value is None]},
        "probe": found.as_json(),
    }


def _bandwidth(edge: Edge, board: Board, found: Findings | None) -> dict[str, Any]:
    """The bandwidth that decode rates are held against: given, measured, or theoretical; {} where none is known."""
    if edge.bandwidth == MEASURE:
        if found is None:
            raise ConfigError("--bandwidth measure needs the board itself: add --board-host HOST")
        return _measured(found)
    if edge.bandwidth is not None:
        try:
            return {"bandwidth": {"bytes_per_s": sizes.size(edge.bandwidth), "source": "given"}}
        except CardError as error:
            raise ConfigError(f"--bandwidth: {error}; or `measure`") from None
    return _theoretical(board, found)


def _measured(found: Findings) -> dict[str, Any]:
    """The fastest of the readers. A core's view: what an NPU can pull is more."""
    readings = [fact for fact in found.facts if fact.group == "memory" and fact.name.startswith("measured bandwidth")]
    best = max(readings, key=lambda fact: float(str(fact.value)), default=None)
    if best is None:
        raise ConfigError("--bandwidth measure: the board gave no reading; give a figure instead")
    source = f"measured by {best.name.removeprefix('measured bandwidth, ')}"
    return {"bandwidth": {"bytes_per_s": best.value, "source": source}}


def _theoretical(board: Board, found: Findings | None) -> dict[str, Any]:
    """Clock x 2 x bits / 8: of what the board says of itself, else of its description."""
    if found is not None:
        clock, bits = found.value("memory", "clock"), found.value("memory", "width")
    else:
        memory = board.memory_of(None)
        clock, bits = (memory.clock_hz, memory.bus_bits) if memory else (None, None)
    if not clock or not bits:
        return {}
    source = f"theoretical, {clock / 1e6:g} MHz x 2 x {bits} bit"
    return {
        "bandwidth": {"bytes_per_s": dram_bandwidth(clock, bits), "source": source, "bus_bits": bits, "clock_hz": clock}
    }
