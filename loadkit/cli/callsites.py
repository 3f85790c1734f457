"""Find out what a prompt log spends: calls by template, the prefix they share, and the wait for their first token."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from loadkit.capacity.callsites import Call, Counter, call, common, sites
from loadkit.capacity.errors import CardError
from loadkit.capacity.given import card_given
from loadkit.plan.errors import ConfigError
from loadkit.prompt.counters import EstimateCounter, tokenizer_counter
from loadkit.record.names import ExitCode
from loadkit.report import callsites_text
from loadkit.report.prices import prices_given
from loadkit.target.counting import GUESSED_TOKENS_PER_WORD

TOP = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The log, and what prices its tokens."""
    parser.add_argument("log", type=Path, help="JSON lines with `prompt` or `messages`; prompt texts are never printed")
    parser.add_argument("--unit-price", metavar="MS[@TOKENS]", help="ms of TTFT per prompt token, and where measured")
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="a run folder, for its unit prices by length")
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="counts where the log states no tokens")
    parser.add_argument("--model", metavar="CARD", help="carries a price to other lengths by the model's operations")
    parser.add_argument("--top", type=int, default=TOP, metavar="N", help=f"templates to print; default {TOP}")
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(args: argparse.Namespace) -> int:
    """Nothing is measured or written."""
    if args.top < 1:
        raise ConfigError(f"--top {args.top}: at least 1")
    counter = Counter(EstimateCounter(GUESSED_TOKENS_PER_WORD).count, "estimate")
    if args.tokenizer:
        counter = Counter(tokenizer_counter(args.tokenizer).count, "local_tokenizer")
    calls, unread = _read(args.log)
    try:
        card = card_given(args.model, Path.cwd()) if args.model else None
        prices = prices_given(args.unit_price, args.run)
        found = sites(calls, counter, prices=prices, card=card)
        whole = common(calls, counter, prices=prices, card=card)
    except CardError as error:
        raise ConfigError(str(error)) from None
    if args.json:
        answer = {
            "calls": len(calls),
            "unread_lines": unread,
            "common": asdict(whole),
            "sites": [asdict(s) for s in found],
        }
        print(json.dumps({"schema": "loadkit-callsites/1", **answer}, indent=2))
    else:
        callsites_text.show(found[: args.top], whole, left=max(0, len(found) - args.top), unread=unread)
    return ExitCode.COMPLETE


def _read(path: Path) -> tuple[list[Call], int]:
    """The calls of a log, and how many lines held none."""
    calls, unread = [], 0
    for line in _lines(path):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise CardError("not an object")
            calls.append(call(row))
        except (ValueError, RecursionError):
            unread += 1
    if not calls:
        raise ConfigError(f"{path} holds no prompt: JSON lines with `prompt` or `messages` are needed")
    return calls, unread


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from (line for line in file if line.strip())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
