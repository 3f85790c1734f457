"""Measure the NumPy engine on six context lengths, three rounds each, and keep the table beside the run."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from loadkit.analysis.ctxscale import ctxscale
from loadkit.cli import run
from loadkit.cli.streams import say
from loadkit.plan.options import add_options, resolve
from loadkit.record import jsonl
from loadkit.record.errors import FolderError
from loadkit.record.folder import RunFolder

FILE = "eng_ctxscale.json"
TIERS, ROUNDS, OUTPUT_TOKENS = "100,250,500,750,1000,1500", 3, 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, and how it reads a prompt; the rest is a run's."""
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--model", metavar="PATH", help="a GGUF file or a Hugging Face folder; default as `loadkit run`")
    model.add_argument("--dims", metavar="NAME", help="random weights of the dimensions of a model: qwen2.5-0.5b")
    parser.add_argument("--prefill-mode", choices=("batched", "sequential"), default="batched")
    parser.add_argument("--threads", metavar="N", help="threads that share a pass; default all cores")
    parser.add_argument("--seed", metavar="N", default="0", help="of prompts and of random weights; default 0")
    parser.add_argument("--tiers", metavar="LIST", default=TIERS, help=f"default {TIERS}")
    parser.add_argument("--rounds", metavar="N", default=str(ROUNDS), help=f"default {ROUNDS}")
    parser.add_argument("--out", metavar="DIR", default="runs", help="folder that run folders go into; default runs")


def main(args: argparse.Namespace) -> int:
    """Run the ladder as `loadkit run` would, then write the table into its folder; its exit code is the run's."""
    options = argparse.ArgumentParser()
    add_options(options, positional_url=True)
    request = resolve(options.parse_args(_words(args)), os.environ, Path.cwd())
    own = ["--prefill-mode", args.prefill_mode, "--seed", args.seed]
    if args.threads is not None:
        own += ["--threads", args.threads]
    code = run.start(replace(request, engine=tuple(own)))
    folder = RunFolder.open(Path(args.out) / "latest")
    say(f"table: {write(folder)}")
    return code


def write(folder: RunFolder) -> Path:
    """Write the table of a run folder into it; FolderError when it cannot be written."""
    path = folder.path / FILE
    table = ctxscale(folder.read_manifest(), jsonl.read(folder.records_path).records)
    try:
        path.write_bytes(orjson.dumps(table, option=orjson.OPT_INDENT_2) + b"\n")
    except OSError as error:
        raise FolderError(f"cannot write {path}: {error.strerror}") from error
    return path


def _words(args: argparse.Namespace) -> Sequence[str]:
    """The command line of the run."""
    weights = args.model if args.dims is None else f"random:{args.dims}"
    words = ["--target", "engine", "--tiers", args.tiers, "--rounds", args.rounds, "--concurrency", "1"]
    words += ["--max-tokens", str(OUTPUT_TOKENS), "--seed", args.seed, "--out", args.out]
    return [*words, "--weights", weights] if weights else words
