"""From measured curves and objectives to goodput, replicas, queues and cost, with every number explained."""

import argparse
import json
import math
import sys
from pathlib import Path

from loadkit.analysis.sizing.answer import answer
from loadkit.analysis.sizing.mix import parse_mix
from loadkit.analysis.sizing.question import WHAT_IF, Hardware, Prices, Question
from loadkit.analysis.sizing.source import Source, load
from loadkit.capacity.errors import CardError
from loadkit.capacity.given import card_given
from loadkit.capacity.inputs import InputError
from loadkit.capacity.kv import BYTES
from loadkit.capacity.memory import USE, Memory
from loadkit.capacity.quant import bits
from loadkit.capacity.sizes import size
from loadkit.cli.streams import say
from loadkit.plan.errors import ConfigError
from loadkit.record.names import ExitCode
from loadkit.report.sizing import terminal
from loadkit.report.sizing.finish import finish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The curves, what is asked of them, and prices."""
    add = parser.add_argument
    add("run", nargs="?", type=Path, default=Path("runs/latest"), help="run folder, or a CSV or JSON table of averages")
    add("--slo", metavar="TEXT", help="objectives such as ttft=2s,itl=50ms; default: those of the run")
    add("--rate", metavar="R", help="requests/s that arrive; without it only the goodput of a replica is told")
    add("--mix", metavar="LIST", help="TIER:SHARE or TIER/OUTPUT:SHARE, such as 4K:0.7,32K:0.25,128K/2000:0.05")
    add("--headroom", metavar="X", default="1.2", help="factor on the load; default 1.2")
    add("--gpu-hour", metavar="PRICE", help="price of a GPU per hour")
    add("--gpus", metavar="N", default="1", help="GPUs of one replica; default 1")
    add("--currency", metavar="NAME", help="of all prices; default the endpoint's, or USD")
    add("--price-input", metavar="PRICE", help="listed price per million prompt tokens; default the endpoint's")
    add("--price-output", metavar="PRICE", help="listed price per million output tokens; default the endpoint's")
    add("--price-cached", metavar="PRICE", help="listed price per million cached prompt tokens")
    add("--target-cost", metavar="PRICE", help="per million output tokens: which loads meet it; needs --gpu-hour")
    add("--what-if", metavar="K=V", action="append", default=[], help=f"compare with {WHAT_IF}; repeatable")
    add("--card", metavar="CARD", help="model name, config.json, model folder or GGUF file, for the cache formula")
    add("--memory", metavar="SIZE", help="memory of one GPU, such as 80GiB; with --card")
    add("--memory-use", metavar="SHARE", default=str(USE), help=f"share of it a server takes; default {USE:g}")
    add("--bits", metavar="BITS", help="bits of a weight, or fp8, q4_k_m, ...; default the card's, or 16")
    add("--kv", metavar="TYPE", default="bf16", help=f"cache type: {', '.join(BYTES)}; default bf16")
    add("--prompt-tokens", metavar="N", help="of a table without such a column")
    add("--output-tokens", metavar="N", help="of a table without such a column")
    add("--map", metavar="FIELD=COLUMN", action="append", default=[], help="what a column of a table means")
    add("--out", type=Path, metavar="DIR", help="where the four files go; default the run folder, for a table nowhere")
    add("--explain", action="store_true", help="print formula and inputs of every number")
    add("--json", action="store_true", help="print JSON")


def main(args: argparse.Namespace) -> int:
    """Nothing is measured. capacity.json, .csv, .md and .html are written."""
    try:
        source = load(
            args.run,
            mapping=args.map,
            prompt=whole("--prompt-tokens", args.prompt_tokens),
            output=whole("--output-tokens", args.output_tokens),
        )
        question = _question(args, source)
        found = answer(source.cells, question, source=source.name, model=source.model, samples=source.samples)
    except (CardError, InputError) as error:
        raise ConfigError(str(error)) from None
    if args.json:
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        terminal.show(found, explain=args.explain, stream=sys.stdout)
    folder = args.out or (source.folder.path if source.folder else None)
    if folder is not None:
        files = finish(found, folder)
        say(f"written: {', '.join(path.name for path in files)} in {folder}")
    return ExitCode.COMPLETE


def _question(args: argparse.Namespace, source: Source) -> Question:
    gpus = whole("--gpus", args.gpus) or 1
    return Question(
        slo=args.slo if args.slo is not None else source.slo,
        rate=number("--rate", args.rate),
        mix=parse_mix(args.mix) if args.mix is not None else (),
        headroom=number("--headroom", args.headroom) or 0.0,
        gpu_hour=number("--gpu-hour", args.gpu_hour),
        gpus=gpus,
        target_cost=number("--target-cost", args.target_cost),
        prices=_prices(args, source),
        hardware=_hardware(args, gpus),
        what_if=tuple(args.what_if),
    )


def _prices(args: argparse.Namespace, source: Source) -> Prices:
    listed = source.prices
    given = {name: number(f"--price-{name}", getattr(args, f"price_{name}")) for name in ("input", "output", "cached")}
    if any(value is not None and value < 0 for value in given.values()):
        raise ConfigError("a listed price is 0 or more per million tokens")
    found = {name: getattr(listed, name) if value is None else value for name, value in given.items()}
    if (found["input"] is None) != (found["output"] is None):
        raise ConfigError("--price-input and --price-output go together")
    if args.currency is not None and not (args.currency.isalpha() and len(args.currency) <= 8):
        raise ConfigError(f"--currency {args.currency[:20]!r}: a short name such as USD")
    return Prices(args.currency or listed.currency, **found)


def _hardware(args: argparse.Namespace, gpus: int) -> Hardware | None:
    if (args.card is None) != (args.memory is None):
        raise ConfigError("--card and --memory go together: the cache formula needs both")
    if args.card is None:
        if args.bits is not None:
            raise ConfigError("--bits goes with --card")
        return None
    if args.kv not in BYTES:
        raise ConfigError(f"--kv {args.kv[:40]!r}: one of {', '.join(BYTES)}")
    memory = Memory(size(args.memory), gpus, number("--memory-use", args.memory_use) or 0.0)
    weights = bits(args.bits) if args.bits is not None else None
    return Hardware(card_given(args.card, Path.cwd()), memory, weights, args.kv)


def number(name: str, text: str | None) -> float | None:
    """A finite number, None where it was not given. Its range is checked where it is used."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{name} {text[:40]!r}: must be a number")
    return value


def whole(name: str, text: str | None) -> int | None:
    """A whole number above 0, None where it was not given."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) > 0):
        raise ConfigError(f"{name} {text[:40]!r}: must be a whole number above 0")
    return int(text)
