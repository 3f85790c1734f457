"""What `loadkit card` prints: a page about a model, every size in GB and GiB."""

import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from loadkit.capacity.memory import both_units
from loadkit.report.escape import plain
from loadkit.report.grid import grid, unbounded
from loadkit.report.numbers import number, percent, tier
from loadkit.report.terminal import encodable, say

FORMULAS = (
    "KV per token = 2 x layers x KV heads x head size x bytes; latent: layers x (latent + rope) x bytes",
    "a sequence takes whole blocks of 16 tokens",
    "sliding layers hold their window at most, linear ones a state that does not grow",
    "most sequences = floor((GPUs x memory x use - weights - overhead) / cache of one)",
    "prefill = 2 P n + 2 L H h n^2 (causal); crossover n* = P / (L H h); growth = prefill(n2) / prefill(n1)",
    "left with a prefix = 1 - prefill(hit x n) / prefill(n): more than 1 - hit, the rest attends to what is cached",
    "decode step = max((weights touched + batch x cache) / bandwidth, 2 x active x batch / FLOP/s)",
    "experts touched = E (1 - (1 - k / E)^batch); ridge point = FLOP/s / bandwidth",
)


def show(found: Mapping[str, Any], *, explain: bool = False, stream: IO[str] | None = None) -> None:
    """Print the page of `capacity.sheet`."""
    stream = stream or sys.stdout
    console, width = unbounded(stream), Console(file=stream).width
    say(console, f"{found['model']} ({found['source']})", width)
    _accounts(console, found)
    if found["cache"]:
        _tiers(console, found, width)
    if found["prefill"]:
        _prefill(console, found["prefill"], width)
    if found["decode"]:
        _decode(console, found["decode"])
    if found["ridge_flop_per_byte"]:
        say(
            console,
            f"Ridge point: {number(found['ridge_flop_per_byte'])} FLOP per byte; below it memory is the bound.",
            width,
        )
    if explain:
        for row in found["fit"] or ():
            _title(console, f"Calculation for {tier(row['tokens'])}")
            console.print(Text("\n".join(row["calculation"])))
        _title(console, "Formulas")
        console.print(Text("\n".join(FORMULAS)))


def _accounts(console: Console, found: Mapping[str, Any]) -> None:
    """Four accounts that are never mixed, each with its unit."""
    four, counts = found["accounts"], found["parameters"]
    stated = f" ({number_of(counts['stated'])} stated)" if counts["stated"] else ""
    rows = [
        ["parameters", f"{number_of(counts['total'])}{stated}"],
        ["weights", both_units(four["weight_bytes"])],
        ["active in prefill", number_of(four["active_prefill"])],
        ["active in decode", number_of(four["active_decode"])],
        ["KV per token", "-" if four["kv_bytes_per_token"] is None else f"{four['kv_bytes_per_token']:,.0f} B"],
    ]
    console.print(grid(("account", ""), rows, left=2))
    console.print()


def _tiers(console: Console, found: Mapping[str, Any], width: int) -> None:
    fits = {row["tokens"]: row for row in found["fit"] or ()}
    asked = next((row["sequences"] for row in fits.values()), 1)
    headers = ["tier", "cache of one"] + (["cache / weights", "most at once", f"{asked} at once"] if fits else [])
    rows = []
    for each in found["cache"]:
        row = [tier(each["tokens"]), size_of(each["bytes"])]
        if fits:
            one = fits[each["tokens"]]
            row += [f"{one['cache_over_weights']:.2f}", str(one["max_sequences"]), _fits(one)]
        rows.append(row)
    console.print(grid(headers, rows))
    console.print()
    lacking = next((row for row in fits.values() if row["lacks"] == "weights"), None)
    if lacking:
        text = "The weights alone do not fit; engines that keep some of them in the CPU's memory: "
        say(console, f"{text}{', '.join(lacking['offload'])}.", width)


def _fits(row: Mapping[str, Any]) -> str:
    return "fits" if row["fits"] else f"lacks {row['lacks']}"


def _prefill(console: Console, found: Mapping[str, Any], width: int) -> None:
    rows = [
        [
            tier(each["tokens"]), f"{each['operations'] / 1e12:.4g}", percent(each["attention_share"]),
            f"{each['exponent']:.2f}", percent(each["left_with_prefix"]),
        ]
        for each in found["tiers"]
    ]  # fmt: skip
    headers = ("tier", "prefill TFLOP", "attention", "exponent", f"left at {found['hit']:.0%} cached")
    console.print(grid(headers, rows))
    console.print()
    grown = found["growth"]
    if grown["attention"] is not None:
        say(
            console,
            f"From {tier(grown['from'])} to {tier(grown['to'])} the work grows {number(grown['all'])} times: the "
            f"linear layers {number(grown['linear'])} times, only attention {number(grown['attention'])} times.",
            width,
        )
    if found["crossover_tokens"]:
        say(console, f"Attention costs as much as the linear layers at {found['crossover_tokens']:,.0f} tokens.", width)


def _decode(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        [
            str(each["batch"]), tier(each["context"]), number(1000 * each["seconds"]), number(each["tokens_per_s"]),
            each["bound"], number(each.get("experts_touched")),
        ]
        for each in found
    ]  # fmt: skip
    console.print()
    console.print(grid(("batch", "context", "step ms", "tokens/s at most", "bound", "experts touched"), rows))
    console.print()


def number_of(parameters: float | None) -> str:
    """A count of parameters: 8.03B, 494M; - for None."""
    if parameters is None:
        return "-"
    return f"{parameters / 1e9:.2f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"


def size_of(size: float) -> str:
    """Bytes in both units, in MB and MiB below 1 GB."""
    return both_units(size) if size >= 1e9 else f"{size / 1e6:.2f} MB ({size / 2**20:.2f} MiB)"


def _title(console: Console, text: str) -> None:
    console.print()
    console.print(Text(encodable(plain(text), console.file), style="bold"))
