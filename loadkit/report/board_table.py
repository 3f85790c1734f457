"""The board of a run: the articles' names in one table, the engine's clocks beside them, what stands behind them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loadkit.board.perf import NOTE
from loadkit.record.names import Flag
from loadkit.report import words
from loadkit.report.numbers import ABSENT, count, number, percent

Board = Mapping[str, Any]

HEADERS = (
    "cell", "n", "TTFT_P50", "TTFT_P99", "ITL_P50", "ITL_P99", "Decode_TPS_P50", "of the bound", "engine prefill ms",
    "tokenize ms",
)  # fmt: skip
SOAK_HEADERS = ("minute", "decode tokens/s", "answers", "hottest °C", "cooling", "W")
MOST_SENSORS = 10  # of a kind, in a sentence
MOST_MINUTES = 20  # rows of a curve in a report; the whole of it is in summary.json
STEP_NOTE = "1000 / ITL_P50; p99 below 100 answers is the largest and marked *"


def rows(summary: Mapping[str, Any]) -> list[Sequence[str]]:
    """One row per cell, times in ms; empty without a board."""
    board = summary.get("board")
    names = {cell["cell"]: words.name(cell) for cell in summary["cells"]}
    return [_row(cell, names) for cell in board["cells"]] if board else []


def _row(cell: Board, names: Mapping[str, str]) -> Sequence[str]:
    few = "*" if cell["low_n"] else ""
    bound, tokenize = cell["bound"], cell["tokenize_ms"]
    share = f" ({percent(cell['tokenize_share'])} of TTFT)" if cell["tokenize_share"] is not None else ""
    return (
        names.get(cell["cell"], cell["cell"]),
        count(cell["n"]),
        number(cell["TTFT_P50"]),
        number(cell["TTFT_P99"]) + few,
        number(cell["ITL_P50"]),
        number(cell["ITL_P99"]) + (few if cell["ITL_P99"] is not None else ""),
        number(cell["Decode_TPS_P50"]),
        percent(bound["share"]) if bound else ABSENT,
        number(cell["engine_prefill_ms"]),
        number(tokenize) + (share if tokenize is not None else ""),
    )


def sentences(summary: Mapping[str, Any]) -> Iterable[str]:
    """What the run was on, what its rates come to against the memory, and what the board did meanwhile."""
    board = summary.get("board")
    if not board:
        return
    names = {cell["cell"]: words.name(cell) for cell in summary["cells"]}
    yield _what(board)
    yield f"Decode_TPS_P50 is {STEP_NOTE}. TTFT is the client's, over HTTP: it holds the server's tokenizer."
    yield from _bounds(board, names)
    yield from _state(board, summary["cells"])
    yield from _soak(board, names)
    for each in board["energy"]:
        yield (
            f"{names.get(each['cell'], each['cell'])}: {number(each['joules_per_output_token'])} J per output token at "
            f"{number(each['power_w'])} W ({each['sensor']}), prefill and the board at rest included."
        )
    if board["ranges"].get("counters_per_s"):
        yield NOTE
    yield from (f"{line}." for line in board["counted_in_part"])


def curves(summary: Mapping[str, Any]) -> Iterable[tuple[str, list[Sequence[str]]]]:
    """(cell, rows) of every throttling curve, thinned to what a page holds."""
    board = summary.get("board")
    for each in board["soak"] if board else ():
        minutes = each["minutes"]
        step = -(-len(minutes) // MOST_MINUTES)
        yield (
            each["cell"],
            [
                (
                    count(minute["minute"]),
                    number(minute["decode_tokens_per_s"]),
                    count(minute["n"]),
                    number(minute["temperature_c"]),
                    number(minute["cooling"]),
                    number(minute["power_w"]),
                )
                for minute in minutes[::step]
            ],
        )


def _what(board: Board) -> str:
    quant = board["quantisation"] or {}
    bits = quant.get("stored_bits") or quant.get("weight_bits")
    parts = [f"{bits:g} bit weights" if isinstance(bits, int | float) else "weights of unknown width"]
    if quant.get("act_bits"):
        parts.append(f"{quant['act_bits']} bit activations")
    if quant.get("group_size"):
        parts.append(f"groups of {quant['group_size']}")
    elif quant.get("per_channel"):
        parts.append("one scale per channel")
    device = f" ({board['device']})" if board["device"] else ""
    bandwidth = board["bandwidth"]
    memory = f" Memory: {number(bandwidth['bytes_per_s'] / 1e9)} GB/s, {bandwidth['source']}." if bandwidth else ""
    return (
        f"Board: {board['title']}{device}, {quant.get('name')} ({', '.join(parts)}), on the {board['runs_on']}.{memory}"
    )


def _bounds(board: Board, names: Mapping[str, str]) -> Iterable[str]:
    """Each rate against the memory's bound, or why there is none."""
    alike: dict[tuple[float, str], list[Board]] = {}
    for cell in board["cells"]:
        if cell["bound"]:
            alike.setdefault((cell["bound"]["tokens_per_s"], cell["bound"]["sentence"]), []).append(cell)
    for cells in alike.values():
        where = ", ".join(names.get(cell["cell"], cell["cell"]) for cell in cells)
        rates = sorted(cell["decode_tokens_per_s"] for cell in cells)
        yield from _bound(where, _between(rates[0], rates[-1]), cells[0]["bound"])
    if reasons := list(dict.fromkeys(cell["no_bound"] for cell in board["cells"] if cell["no_bound"])):
        yield f"No bound for decode: {'; '.join(reasons)}."
    for reason in dict.fromkeys(cell["no_decode"] for cell in board["cells"] if cell["no_decode"]):
        without = [names.get(cell["cell"], cell["cell"]) for cell in board["cells"] if cell["no_decode"] == reason]
        yield f"No Decode_TPS_P50 in {', '.join(without)}: {reason}."


def _between(low: float, high: float) -> str:
    """Two numbers as a range, or one where they are printed alike."""
    return number(low) if number(low) == number(high) else f"{number(low)} to {number(high)}"


def _bound(name: str, rate: str, bound: Board) -> Iterable[str]:
    """Cells with one verdict: the bound, where it comes from, the verdict, and the causes of what cannot be."""
    bandwidth, size = number(bound["bandwidth_bytes_per_s"] / 1e9), number(bound["bytes_per_token"] / 1e9)
    yield (
        f"{name}: decode {rate} tokens/s of at most {number(bound['tokens_per_s'])} ({bandwidth} GB/s, "
        f"{bound['bandwidth_from']}; {size} GB per token, {bound['bytes_from']}): {bound['sentence']}"
    )
    others = "; ".join(("or " if cause["holds"] else "not: ") + cause["text"] for cause in bound["causes"][1:])
    if others:
        yield f"Its other causes: {others}."


def _state(board: Board, cells: Iterable[dict[str, Any]]) -> Iterable[str]:
    """What the samples say of clocks and heat, or that there are none."""
    if not board["samples"]:
        yield "The board was not read: nothing is known of its clocks and temperatures (--board-host reads them)."
        return
    heat, clocks = _span(board, "temperature_c", 1.0), _span(board, "frequency_hz", 1e-6)
    yield f"{board['samples']} samples of the board, °C: {heat or 'no zone'}; MHz: {clocks or 'no clock'}."
    marked = {
        flag: [words.name(c) for c in cells if flag in c["cell_flags"]] for flag in (Flag.THROTTLED, Flag.UNLOCKED)
    }
    if not any(marked.values()):
        yield "In no cell did a clock move by more than 1 % or the board throttle."
    for flag, where in marked.items():
        if where:
            yield f"{flag.value.capitalize()}: {', '.join(where)}."
    if loose := (board.get("lock") or {}).get("not_held"):
        yield f"Not held before the run: {', '.join(loose)}. `loadkit board lock` holds clocks."
    yield from (f"{line[0].upper()}{line[1:]}." for line in board["busy_before"])


def _span(board: Board, part: str, unit: float) -> str:
    """Lowest and highest of each sensor of a kind; one figure where it never changed."""
    shown = []
    for name, (low, high) in list(board["ranges"].get(part, {}).items())[:MOST_SENSORS]:
        shown.append(f"{name} {_between(low * unit, high * unit)}")
    return ", ".join(shown)


def _soak(board: Board, names: Mapping[str, str]) -> Iterable[str]:
    """What each throttling curve comes to."""
    for each in board["soak"]:
        name, cold, warm = names.get(each["cell"], each["cell"]), each["cold_tokens_per_s"], each["warm_tokens_per_s"]
        if each["onset_min"] is None:
            yield f"{name}: decode held {number(warm)} tokens/s to the end of {len(each['minutes'])} minutes."
            continue
        hot = "" if each["onset_c"] is None else f" at {number(each['onset_c'])} °C"
        yield (
            f"{name}: from minute {each['onset_min']}{hot} decode fell from {number(cold)} to {number(warm)} tokens/s "
            f"({percent(warm / cold)}) and stayed there."
        )
