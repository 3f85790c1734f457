"""Compare from a measured unit price: a whole document against the chunks that matter, one model against another."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loadkit.capacity.errors import CardError
from loadkit.capacity.given import card_given
from loadkit.capacity.whatif import Prices, nearest, price_ratios, stuffing
from loadkit.plan.errors import ConfigError
from loadkit.plan.tiers import parse_tier
from loadkit.record.names import ExitCode
from loadkit.report.numbers import duration, number
from loadkit.report.prices import prices_given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A unit price, and two prompts or a second price."""
    parser.add_argument("--unit-price", metavar="MS[@TOKENS]", help="ms of TTFT per prompt token, and where measured")
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="a run folder, for its unit prices by length")
    parser.add_argument("--model", metavar="CARD", help="carries a price to other lengths by the model's operations")
    parser.add_argument("--tokens", metavar="N", help="prompt tokens of the whole document, such as 12000 or 32K")
    parser.add_argument("--instead", metavar="N", help="prompt tokens of what is retrieved instead")
    parser.add_argument("--against-price", metavar="MS[@TOKENS]", help="the unit price of another model")
    parser.add_argument("--against-run", type=Path, metavar="FOLDER", help="a run of another model")
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(args: argparse.Namespace) -> int:
    """Nothing is measured or written."""
    prices = prices_given(args.unit_price, args.run)
    if prices is None:
        raise ConfigError("a unit price is needed: --unit-price 71.3, or --run runs/latest")
    if (args.tokens is None) != (args.instead is None):
        raise ConfigError("--tokens and --instead go together")
    other = prices_given(args.against_price, args.against_run)
    if args.tokens is None and other is None:
        raise ConfigError("nothing to compare: give --tokens and --instead, or --against-price or --against-run")
    try:
        found = _compare(args, prices, other)
    except CardError as error:
        raise ConfigError(str(error)) from None
    print(json.dumps(found, indent=2) if args.json else "\n".join(_sentences(found)))
    return ExitCode.COMPLETE


def _compare(args: argparse.Namespace, prices: Prices, other: Prices | None) -> dict[str, Any]:
    found: dict[str, Any] = {"schema": "loadkit-whatif/1", "retrieval": None, "ratios": []}
    if args.tokens is not None:
        tokens, instead = parse_tier(args.tokens), parse_tier(args.instead)
        card = card_given(args.model, Path.cwd()) if args.model else None
        price = nearest(prices, tokens)
        saving = stuffing(tokens, instead, price, card)
        found["retrieval"] = {
            **asdict(saving),
            "price": asdict(price),
            "saved_s": saving.saved_s,
            "share": saving.share,
        }
    if other is not None:
        found["ratios"] = [{**asdict(each), "ratio": each.ratio} for each in price_ratios(prices, other)]
    return found


def _sentences(found: dict[str, Any]) -> list[str]:
    lines = []
    saving = found["retrieval"]
    if saving:
        lines.append(
            f"{saving['tokens']} prompt tokens wait {_s(saving['ttft_s'])} for the first token and "
            f"{saving['instead']} wait {_s(saving['instead_s'])}: {_s(saving['saved_s'])} saved "
            f"({saving['share']:.0%}), from {number(saving['price']['ms'])} ms per token and {saving['how']}."
        )
    for each in found["ratios"]:
        at = "" if each["tokens"] is None else f" at {each['tokens']} tokens"
        lines.append(
            f"The first costs {each['ratio']:.2f} times the second{at}: {number(each['first_ms'])} against "
            f"{number(each['second_ms'])} ms per token."
        )
    return lines


def _s(seconds: float) -> str:
    return f"{number(seconds)} s" if seconds < 3600 else duration(1000 * seconds)
