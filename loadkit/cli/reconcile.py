"""Settle claims about a board: hold tokens/s against the memory's bound and rank what each figure can be."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loadkit.capacity import sizes
from loadkit.capacity.boards import published
from loadkit.capacity.boards.bench import bench
from loadkit.capacity.boards.bound_check import Bench
from loadkit.capacity.boards.reconcile import Answer, parse, reconcile
from loadkit.capacity.errors import CardError
from loadkit.capacity.given import card_given
from loadkit.capacity.roofline import dram_bandwidth
from loadkit.plan.errors import ConfigError
from loadkit.record.names import ExitCode
from loadkit.report import reconcile_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Claims, and what is known of board and model; less is enough, more decides."""
    parser.add_argument(
        "--claim", action="append", required=True, metavar="RATE[:IN/OUT[:COUNTED]]",
        help="tokens/s, its prompt and output tokens, and what was counted (decode, output, all); repeatable",
    )  # fmt: skip
    parser.add_argument("--model", metavar="CARD", help="a model name, a config.json, a model folder or a GGUF file")
    parser.add_argument("--quant", metavar="NAME", help="such as w8a8, w4a16_g128, q4_k_m or fp16")
    parser.add_argument("--board", metavar="NAME", help=f"one of {', '.join(published.boards())}")
    parser.add_argument("--bandwidth", metavar="SIZE", help="of the memory per second, such as 33.8GB")
    parser.add_argument("--measured-by", metavar="READER", help="who measured --bandwidth, such as 'CPU, 4 threads'")
    parser.add_argument("--clock-mhz", type=float, metavar="MHZ", help="clock of the memory, with --bus-bits")
    parser.add_argument("--bus-bits", type=float, metavar="N", help="width of the memory, with --clock-mhz")
    parser.add_argument("--bytes-per-token", metavar="SIZE", help="weights read per token, such as 1.1GB")
    parser.add_argument("--decode", type=float, metavar="RATE", help="decode tokens/s known of this model and board")
    parser.add_argument("--prefill", type=float, metavar="RATE", help="prefill tokens/s known of this model and board")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--explain", action="store_true", help="print the formulas as well")


def main(args: argparse.Namespace) -> int:
    """Nothing is measured or written."""
    try:
        known = _bench(args)
        answers = reconcile([parse(text) for text in args.claim], known)
    except CardError as error:
        raise ConfigError(str(error)) from None
    if args.json:
        print(
            json.dumps(
                {"schema": "loadkit-reconcile/1", **_facts(known), "claims": [_plain(a) for a in answers]}, indent=2
            )
        )
    else:
        reconcile_text.show(known, answers, explain=args.explain)
    return ExitCode.COMPLETE


def _bench(args: argparse.Namespace) -> Bench:
    bandwidth, source = (sizes.size(args.bandwidth) if args.bandwidth else None), "given"
    if args.bandwidth and args.measured_by:
        source = f"measured by {args.measured_by[:80]}"
    if (args.clock_mhz is None) != (args.bus_bits is None):
        raise ConfigError("--clock-mhz and --bus-bits go together")
    if args.clock_mhz is not None:
        if bandwidth is not None:
            raise ConfigError("give --bandwidth, or --clock-mhz and --bus-bits, not both")
        bandwidth, source = dram_bandwidth(args.clock_mhz * 1e6, args.bus_bits), "theoretical, clock x 2 x bits / 8"
    return bench(
        card_given(args.model, Path.cwd()) if args.model else None,
        args.quant,
        published.board(args.board) if args.board else None,
        bytes_per_token=sizes.size(args.bytes_per_token) if args.bytes_per_token else None,
        bandwidth=bandwidth,
        bandwidth_from=source,
        decode=args.decode,
        prefill=args.prefill,
    )


def _facts(known: Bench) -> dict[str, Any]:
    """What the answers rest on, bytes and bytes/s, each with its source."""
    return {
        "model": known.model,
        "quant": known.quant,
        "board": known.board.key if known.board else None,
        "bytes_per_token": known.bytes_per_token,
        "bytes_from": known.bytes_from,
        "bandwidth": known.bandwidth,
        "bandwidth_from": known.bandwidth_from,
        "bound_tokens_per_s": known.bound,
        "decode_tokens_per_s": known.decode,
        "prefill_tokens_per_s": known.prefill,
        "rates_from": known.other.source if known.other else None,
    }


def _plain(answer: Answer) -> dict[str, Any]:
    explanations = [{**asdict(each), "fits": each.fits} for each in answer.explanations]
    return {
        "claim": asdict(answer.claim),
        "check": asdict(answer.check) if answer.check else None,
        "explanations": explanations,
        "sentence": answer.sentence,
    }
