"""Tokens, time and money before a run: of a plan, or of one prompt from the unit prices of an earlier run."""

import argparse
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loadkit.analysis.forecast.lengths import lengths
from loadkit.analysis.forecast.plans import forecast
from loadkit.analysis.forecast.speeds import Assumed, FromCard, FromRun, Speed
from loadkit.analysis.offline.analyse import analyse
from loadkit.analysis.saved import summary_of
from loadkit.capacity.cost import listed_request
from loadkit.capacity.errors import CardError
from loadkit.capacity.given import card_given
from loadkit.capacity.inputs import InputError
from loadkit.capacity.quant import bits
from loadkit.capacity.sizes import size
from loadkit.cli.capacity import number, whole
from loadkit.plan.endpoint import Endpoint
from loadkit.plan.errors import ConfigError
from loadkit.plan.options import add_options, resolve
from loadkit.plan.text import ASSUMED, ASSUMED_ELSEWHERE
from loadkit.plan.tiers import parse_tier
from loadkit.record.folder import RunFolder
from loadkit.record.names import ExitCode
from loadkit.report import estimate_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run, whose plan is estimated, and where the speed comes from."""
    add_options(parser, positional_url=True)
    parser.add_argument("--from", dest="earlier", type=Path, metavar="RUN", help="an earlier run, or a file of results")
    parser.add_argument("--tokens", metavar="N", help="estimate one prompt of so many tokens instead of a plan")
    parser.add_argument("--bos", metavar="N", help="BOS tokens inside the counts of a file that does not say")
    parser.add_argument("--predict", metavar="CARD", help="predict from a model card; needs both of the next two")
    parser.add_argument("--gpu-flops", metavar="F", help="FLOP/s of all GPUs of the server, such as 990e12")
    parser.add_argument("--gpu-bandwidth", metavar="SIZE", help="memory bandwidth of all of them, such as 3.35TB")
    parser.add_argument("--weight-bits", metavar="BITS", default="16", help="bits of a weight, or fp8, ...; default 16")
    parser.add_argument("--price-input", metavar="PRICE", help="per million prompt tokens; default the endpoint's")
    parser.add_argument("--price-output", metavar="PRICE", help="per million output tokens; default the endpoint's")
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(args: argparse.Namespace) -> int:
    """Nothing is sent and nothing is written."""
    try:
        found = _one_prompt(args) if args.tokens is not None else _plan(args)
    except (CardError, InputError) as error:
        raise ConfigError(str(error)) from None
    print(json.dumps(found, indent=2, allow_nan=False) if args.json else "\n".join(estimate_text.lines(found)))
    return ExitCode.COMPLETE


def _one_prompt(args: argparse.Namespace) -> dict[str, Any]:
    """TTFT of one prompt from each summary that the source holds, and of its answer where a length is asked for."""
    if args.predict is not None:
        raise ConfigError("--tokens is answered from a run's unit prices (--from): leave --predict out")
    tokens = parse_tier(args.tokens)
    output = whole("--max-tokens", args.loadkit_max_tokens)
    prices = _prices(args, None)
    groups = _summaries(args.earlier or Path("runs/latest"), args.bos)
    found = [_of_summary(name, summary, tokens, output, prices) for name, summary in groups]
    return {"schema": "loadkit-estimate/1", "kind": "prompt", "tokens": tokens, "groups": found}


def _of_summary(
    name: str, summary: Mapping[str, Any], tokens: int, output: int | None, prices: tuple[float, float] | None
) -> dict[str, Any]:
    speed = FromRun(summary, name)
    ttft = speed.ttft(tokens)
    gap = speed.gap(tokens, 1)
    after = gap.times(output - 1) if output else None
    total = ttft.plus(after) if after else None
    return {
        "source": name,
        "ttft_ms": asdict(ttft),
        "by_price_ms": asdict(speed.lengths.by_price(tokens)),
        "by_fit_ms": None if (fit := speed.lengths.by_fit(tokens)) is None else asdict(fit),
        "output_tokens": output,
        "total_ms": asdict(total) if total else None,
        "prefill_share": ttft.middle / total.middle if total and total.middle else None,
        "cost": None if prices is None else listed_request(tokens, output or 0, *prices),
    }


def _summaries(path: Path, bos: str | None) -> list[tuple[str, Mapping[str, Any]]]:
    """(name, summary) of the run in a folder, or of each model and machine of a file."""
    if path.is_dir() or not path.exists():
        run = RunFolder.open(path)
        return [(run.path.name, summary_of(run))]
    if bos is not None and not (bos.isascii() and bos.isdigit() and len(bos) < 4):
        raise ConfigError(f"--bos {bos[:20]!r}: a count of tokens such as 0 or 1")
    found = analyse(path, bos=None if bos is None else int(bos), mapping=(), explain=False)
    groups = found["groups"]
    names = [", ".join(str(value) for value in group["group"].values() if value) or found["file"] for group in groups]
    return [(name[:200], group["summary"]) for name, group in zip(names, groups, strict=True)]


def _plan(args: argparse.Namespace) -> dict[str, Any]:
    args.loadkit_dry_run = True  # a key that is not set stops nothing, because nothing is sent
    request = resolve(args, os.environ, Path.cwd())
    speed = _speed(args, request.target)
    found = forecast(request.plan, speed)
    prices = _prices(args, request.endpoint)
    cost = None
    if prices is not None:
        cost = (found.prompt_tokens * prices[0] + found.output_tokens * prices[1]) / 1e6
    return {
        "schema": "loadkit-estimate/1",
        "kind": "plan",
        "plan": request.plan.name,
        "speed": speed.source,
        "requests": request.plan.requests()._asdict(),
        "prompt_tokens": found.prompt_tokens,
        "output_tokens": found.output_tokens,
        "seconds": asdict(found.seconds),
        "cells": [{"cell": cell.id, **asdict(span)} for cell, span in found.cells],
        "cost": cost,
        "currency": request.endpoint.currency if request.endpoint else "USD",
        "local": request.endpoint is None,
    }


def _speed(args: argparse.Namespace, target: str) -> Speed:
    """The earlier run, the card, or the assumption of --dry-run."""
    if args.predict is not None:
        if args.earlier is not None:
            raise ConfigError("--from and --predict are both given: keep one")
        if args.gpu_flops is None or args.gpu_bandwidth is None:
            raise ConfigError("--predict needs --gpu-flops and --gpu-bandwidth")
        card = card_given(args.predict, Path.cwd())
        flops = number("--gpu-flops", args.gpu_flops) or 0.0
        return FromCard(card, flops, size(args.gpu_bandwidth), bits(args.weight_bits))
    if args.earlier is None:
        return Assumed(ASSUMED.get(target, ASSUMED_ELSEWHERE))
    groups = _summaries(args.earlier, args.bos)
    if len(groups) > 1:
        names = "; ".join(name for name, _ in groups)[:200]
        raise ConfigError(f"{args.earlier} holds several models or machines ({names}): a plan needs the speed of one")
    lengths(groups[0][1])
    return FromRun(groups[0][1], groups[0][0])


def _prices(args: argparse.Namespace, endpoint: Endpoint | None) -> tuple[float, float] | None:
    """(input, output) per million tokens; None where one is not known."""
    given = [number(f"--price-{name}", getattr(args, f"price_{name}")) for name in ("input", "output")]
    if any(value is not None and value < 0 for value in given):
        raise ConfigError("a price is 0 or more per million tokens")
    known = (endpoint.price_input, endpoint.price_output) if endpoint else (None, None)
    first, second = (mine if mine is not None else listed for mine, listed in zip(given, known, strict=True))
    if (first is None) != (second is None):
        raise ConfigError("--price-input and --price-output go together")
    return None if first is None or second is None else (first, second)
