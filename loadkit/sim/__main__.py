"""`python -m loadkit.sim serve`: start the simulated server; one JSON ready line on stdout, the log on stderr."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

from loadkit.sim.law import Law, kind_of
from loadkit.sim.serve import new_loop, raise_file_limit, serve
from loadkit.sim.server import Settings

PROGRAM = "LOADKIT_PROGRAM"  # what a caller that became this program was called, for the usage


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 after a clean end, 2 for anything the user must change."""
    parser = _parser()
    args = parser.parse_args(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    try:
        settings = _settings(args, os.environ.get(args.key_env or ""))
    except ValueError as error:
        parser.error(str(error))
    raise_file_limit()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            runner.run(serve(settings, args.host, args.port, args.stdin_guard))
        except (OSError, OverflowError) as error:
            print(f"loadkit.sim: cannot listen on {args.host}:{args.port}: {error}", file=sys.stderr)
            return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    program = os.environ.get(PROGRAM) or "python -m loadkit.sim"
    parser = argparse.ArgumentParser(prog=program, description="a server whose latency law is known")
    verb = parser.add_subparsers(dest="verb", required=True).add_parser("serve", help="serve until SIGTERM")
    verb.add_argument("--host", default="127.0.0.1")
    verb.add_argument("--port", type=int, default=0, help="0 = any free port")
    verb.add_argument("--model", default="sim", help="the one model that is served")
    verb.add_argument("--slots", type=_count, default=0, help="requests served at once; 0 = no limit")
    verb.add_argument("--queue", type=_count, help="requests that may wait for a slot; beyond: 429; absent = no limit")
    verb.add_argument("--seed", type=int, default=0, help="of injected errors and jitter")
    verb.add_argument("--time-scale", type=_positive, default=1.0, help="multiplies all times of the law")
    verb.add_argument("--bytes-per-token", type=_at_least_one, default=1)
    verb.add_argument("--truth-keep", type=_at_least_one, default=100_000, help="finished requests to remember")
    verb.add_argument("--key-env", metavar="NAME", help="variable with the key that requests must carry")
    verb.add_argument("--stdin-guard", action="store_true", help="end when stdin does")
    _add_law(verb)
    return parser


def _add_law(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("law", "also per request: header X-Sim or body field sim, a JSON object")
    for spec in dataclasses.fields(Law):
        if spec.metadata.get("request_only"):
            continue
        flag, text = "--" + spec.name.replace("_", "-"), spec.metadata["help"]
        if kind_of(spec) is bool:
            group.add_argument(flag, action="store_true", help=text)
        else:
            shown = "" if spec.default is None else f" (default {spec.default})"
            group.add_argument(flag, type=kind_of(spec), default=spec.default, help=(text + shown).replace("%", "%%"))


def _settings(args: argparse.Namespace, key: str | None) -> Settings:
    names = [spec.name for spec in dataclasses.fields(Law) if not spec.metadata.get("request_only")]
    try:
        law = Law().with_changes({name: getattr(args, name) for name in names})
    except ValueError as error:
        raise ValueError(str(error).removeprefix("sim: ")) from None
    if args.key_env and not key:
        raise ValueError(f"--key-env: the variable {args.key_env} is not set")
    shared: dict[str, Any] = {
        name: getattr(args, name)
        for name in ("model", "slots", "queue", "seed", "time_scale", "bytes_per_token", "truth_keep")
    }
    return Settings(law=law, key=key if args.key_env else None, **shared)


def _count(text: str) -> int:
    return _bounded(int(text), 0)


def _at_least_one(text: str) -> int:
    return _bounded(int(text), 1)


def _bounded(value: int, low: int) -> int:
    if not low <= value <= 10**9:
        raise argparse.ArgumentTypeError(f"must be from {low} to 1000000000")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and 0 < value <= 1000):
        raise argparse.ArgumentTypeError("must be above 0 and at most 1000")
    return value


if __name__ == "__main__":
    sys.exit(main())
