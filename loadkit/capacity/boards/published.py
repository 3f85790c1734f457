"""Published decode rates of boards, and the band of efficiency they make: what a plausible measurement looks like.

Efficiency = tokens/s x bytes read per token / theoretical bandwidth of the memory.
"""

import re
import statistics
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from loadkit.capacity.errors import CardError

FEW = 3  # rows below which a band is that of the board's other quantisations, or the default
GROUPED = re.compile(r"_g\d+$")


@dataclass(frozen=True, slots=True)
class Row:
    """One published measurement. `prefill` in tokens/s, None where it was not published."""

    board: str
    model: str
    quant: str
    bytes: int
    tokens_per_s: float
    prefill: float | None
    source: str

    @property
    def grouped(self) -> bool:
        """Weights quantised in groups, each with a scale of its own."""
        return GROUPED.search(self.quant) is not None


@dataclass(frozen=True, slots=True)
class Board:
    """A board's memory: bytes per second in theory, width in bits and clock steps in Hz where they are known."""

    key: str
    name: str
    family: str
    bandwidth: float
    bus_bits: int | None
    clocks: tuple[float, ...]
    min_bits: float | None  # narrowest weight its NPU computes with
    rows: tuple[Row, ...]
    swapping: tuple[Row, ...]  # models that did not fit


@dataclass(frozen=True, slots=True)
class Band:
    """Efficiencies, lowest to highest, of `rows` published rows; `of` says which."""

    low: float
    median: float
    high: float
    rows: int
    of: str

    def holds(self, share: float) -> bool:
        """Whether an efficiency lies within the band."""
        return self.low <= share <= self.high


DEFAULT_BAND = Band(0.5, 0.7, 0.85, 0, "boards in general")


@cache
def boards() -> dict[str, Board]:
    """Every board by its key."""
    text = resources.files("loadkit.capacity.boards").joinpath("published.toml").read_text("utf-8")
    table = tomllib.loads(text)
    return {key: _board(key, raw, table["sources"]) for key, raw in table["board"].items()}


def board(name: str) -> Board:
    """The board of a name such as `rk3588` or `Raspberry Pi 5`; CardError lists the names there are."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.strip().casefold()).strip("-")
    if plain not in boards():
        raise CardError(f"no published rates for board {name[:40]!r}, only for {', '.join(boards())}")
    return boards()[plain]


def rows() -> list[Row]:
    """Every row of a model that fitted."""
    return [row for each in boards().values() for row in each.rows]


def efficiency(row: Row) -> float:
    """Share of the theoretical bandwidth that a row used for weights."""
    return row.tokens_per_s * row.bytes / boards()[row.board].bandwidth


def band(of: Board | None, quant: str | None = None) -> Band:
    """The band of a board and a quantisation; of the board's ungrouped rows, or the default, where rows are few."""
    if of is None:
        return DEFAULT_BAND
    family = [row for each in boards().values() if each.family == of.family for row in each.rows]
    same = [row for row in family if quant is not None and row.quant.casefold() == quant.casefold()]
    plain = [row for row in family if not row.grouped]
    if len(same) >= FEW:
        return _band(same, f"{of.key} {quant}")
    return _band(plain, of.key) if len(plain) >= FEW else DEFAULT_BAND


def group_ratios(of: Board) -> dict[str, float]:
    """Decode rate with grouped over ungrouped weights, by model, where a board published both."""
    plain = {(row.model, row.quant): row.tokens_per_s for row in of.rows if not row.grouped}
    found = {}
    for row in of.rows:
        base = plain.get((row.model, GROUPED.sub("", row.quant)))
        if row.grouped and base:
            found[row.model] = row.tokens_per_s / base
    return found


def _band(chosen: list[Row], of: str) -> Band:
    shares = sorted(efficiency(row) for row in chosen)
    return Band(shares[0], statistics.median(shares), shares[-1], len(shares), of)


def _board(key: str, raw: dict[str, Any], sources: dict[str, str]) -> Board:
    def made(values: list[Any]) -> Row:
        model, quant, size, rate, prefill, source = values
        return Row(key, model, quant, size, rate, prefill or None, sources[source])

    return Board(
        key=key,
        name=raw["name"],
        family=raw["family"],
        bandwidth=raw["bandwidth"],
        bus_bits=raw.get("bus_bits"),
        clocks=tuple(raw.get("clocks", ())),
        min_bits=raw.get("min_bits"),
        rows=tuple(map(made, raw["rows"])),
        swapping=tuple(map(made, raw.get("swapping", ()))),
    )
