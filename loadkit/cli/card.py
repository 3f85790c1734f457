"""Print what a model card says before anything is measured: size, cache, what fits, growth of prefill, bounds."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from loadkit.capacity import quant, sizes
from loadkit.capacity.card import ModelCard
from loadkit.capacity.errors import CardError
from loadkit.capacity.given import card_given
from loadkit.capacity.kv import BYTES
from loadkit.capacity.memory import USE, Memory
from loadkit.capacity.params import check
from loadkit.capacity.sheet import Machine, sheet
from loadkit.plan.errors import ConfigError
from loadkit.plan.tiers import parse_tiers
from loadkit.record.names import ExitCode
from loadkit.report import card_text

TIERS = "4K,32K,128K"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A model, and what it is to run on."""
    parser.add_argument("model", metavar="CARD", help="a model name, a config.json, a model folder or a GGUF file")
    parser.add_argument("--quant", metavar="NAME", help="of the weights, such as q4_k_m, fp8 or bits per weight")
    parser.add_argument("--kv", metavar="TYPE", default="bf16", help=f"type of the cache: {', '.join(BYTES)}")
    parser.add_argument(
        "--kv-bytes-per-token", type=float, metavar="B", help="stated growth, instead of the arithmetic"
    )
    parser.add_argument(
        "--params", type=float, metavar="N", help="a published parameter count to hold the card against"
    )
    parser.add_argument("--tiers", default=TIERS, metavar="LIST", help=f"lengths of a sequence; default {TIERS}")
    parser.add_argument("--sequences", type=int, default=1, metavar="N", help="sequences that are to fit at once")
    parser.add_argument("--memory", metavar="SIZE", help="of one accelerator, such as 80GB or 80GiB")
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="accelerators that share the model")
    parser.add_argument("--use", type=float, default=USE, metavar="SHARE", help=f"of the memory; default {USE}")
    parser.add_argument("--bandwidth", metavar="SIZE", help="of the memory per second, such as 3.35TB")
    parser.add_argument("--tflops", type=float, metavar="N", help="peak of the accelerator, in 10^12 FLOP/s")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--explain", action="store_true", help="print the formulas and the calculation of every tier")


def main(args: argparse.Namespace) -> int:
    """Nothing is measured or written."""
    try:
        card = _card(args)
        memory = Memory(sizes.size(args.memory), args.gpus, args.use) if args.memory else None
        machine = Machine(
            memory,
            sizes.size(args.bandwidth) if args.bandwidth else None,
            args.tflops * 1e12 if args.tflops is not None else None,
        )
        bits = quant.bits(args.quant) if args.quant else None
        found = sheet(card, machine, parse_tiers(args.tiers), sequences=args.sequences, bits=bits, kv=args.kv)
    except CardError as error:
        raise ConfigError(str(error)) from None
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        card_text.show(found, explain=args.explain)
    return ExitCode.COMPLETE


def _card(args: argparse.Namespace) -> ModelCard:
    """The card with what was stated beside it; CardError where both disagree by more than 2 %."""
    card = card_given(args.model, Path.cwd())
    if args.kv_bytes_per_token is not None:
        card = replace(card, kv_bytes_per_token=args.kv_bytes_per_token)
    if args.params is not None:
        if not 0 < args.params < 1e15:
            raise ConfigError(f"--params {args.params:g}: a count of parameters, such as 8.03e9")
        card = check(replace(card, params=round(args.params)))
    return card
