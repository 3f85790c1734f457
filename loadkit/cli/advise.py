"""Advise what to tune first: engine, scheduling, architecture, weights, in this order. Nothing is changed."""

import argparse
import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadkit.capacity.advise import advice as advising
from loadkit.capacity.advise import candidates, history, sources, techniques
from loadkit.capacity.advise.numbers import numbers
from loadkit.capacity.advise.situation import Situation, from_facts, parse
from loadkit.capacity.advise.table import question, questions
from loadkit.capacity.card import ModelCard
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.errors import CardError
from loadkit.capacity.given import card_given
from loadkit.plan.errors import ConfigError
from loadkit.record.folder import RunFolder
from loadkit.record.names import ExitCode
from loadkit.report import advice_text
from loadkit.report.finish import summary_of

KNOWN_BYTES = 16 * 1024 * 1024  # of a file of facts, a probe or a history


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where facts come from, an option for each question, and what to print."""
    parser.add_argument(
        "facts", nargs="?", metavar="FACTS", help="a JSON object of answers by field name; - reads stdin"
    )
    parser.add_argument(
        "--run", type=Path, metavar="FOLDER", help="a run folder, for users, prefill share and tokens/s"
    )
    parser.add_argument("--probe", type=Path, metavar="FILE", help="what `loadkit board probe --json` printed")
    parser.add_argument("--model", metavar="CARD", help="a model name, a config.json, a model folder or a GGUF file")
    for each in questions():
        parser.add_argument(each["flag"], dest=each["field"], metavar=each["kind"].upper(), help=each["ask"])
    parser.add_argument("--ask", action="store_true", help="ask what is missing, even where stdin is no terminal")
    parser.add_argument("--history", type=Path, metavar="FILE", help="keep tokens/s before and after; needs --measured")
    parser.add_argument("--launch", metavar="COMMAND", help="how the measured set-up was started, for --history")
    parser.add_argument("--stop-check", action="store_true", help="the questions before weights are touched")
    parser.add_argument("--why", action="store_true", help="which techniques change a constant, which the order")
    parser.add_argument("--candidates", nargs="+", metavar="CARD", help="rank models by context, memory and speed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--explain", action="store_true", help="print inputs, who says them, and the rules")


def main(args: argparse.Namespace) -> int:
    """Only a history that is asked for is written."""
    try:
        _answer(args)
    except CardError as error:
        raise ConfigError(str(error)) from None
    return ExitCode.COMPLETE


def _answer(args: argparse.Namespace) -> None:
    facts, card = _facts(args)
    given = _situation(facts)
    if args.why:
        _why(args, given)
    elif args.candidates:
        _candidates(args, given)
    elif args.stop_check:
        _stop_check(args, given)
    else:
        _advise(args, given, facts, card)


def _facts(args: argparse.Namespace) -> tuple[sources.Facts, ModelCard | None]:
    """Answers with who says them; later sources go before earlier ones: run, probe, card, file, options."""
    facts: sources.Facts = {}
    model = args.model
    if args.run:
        folder = RunFolder.open(args.run)
        manifest = folder.read_manifest()
        facts |= sources.from_run(summary_of(folder.path), manifest)
        named = str(sources.part(manifest, "endpoint").get("model") or "")
        model = model or (named if lookup(named) else None)
    if args.probe:
        facts |= sources.from_probe(_object(str(args.probe)))
    told = {name: (value, "the facts given") for name, value in (_object(args.facts) if args.facts else {}).items()}
    for each in questions():
        text = getattr(args, each["field"])
        if text is not None:
            told[each["field"]] = (parse(each["field"], text), each["flag"])
    card = card_given(model, Path.cwd()) if model else None
    if card is not None:
        facts |= sources.from_card(card, told.get("quant_bits", (None,))[0])
    return {**facts, **told}, card


def _situation(facts: sources.Facts) -> Situation:
    return from_facts({name: value for name, (value, _) in facts.items()})


def _advise(args: argparse.Namespace, given: Situation, facts: sources.Facts, card: ModelCard | None) -> None:
    name = args.model or (card.name if card else "MODEL")
    made = advising.advise(given, name, carded=card is not None)
    skipped: set[str] = set()
    while _asks(args) and (field := _open(made, skipped)):
        value = _asked(field)
        skipped.add(field)
        if value is None and made.layer == "ask":
            break  # without a required answer there is nothing to go on with
        if value is not None:
            facts = {**facts, field: (value, "answered")}
            if card is not None and field == "quant_bits":
                facts = {**sources.from_card(card, value), **facts}
            given = _situation(facts)
            made = advising.advise(given, name, carded=card is not None)
    past = _kept(args, given, made) if args.history else []
    if args.json:
        print(json.dumps({**made.as_dict(), **_context(given, facts, past)}, indent=2))
    else:
        advice_text.show(made, facts, past, explain=args.explain)


def _asks(args: argparse.Namespace) -> bool:
    return args.ask or (sys.stdin.isatty() and not args.json)


def _open(made: advising.Advice, skipped: set[str]) -> str | None:
    """The next question without an answer that was not passed over."""
    return next((each["field"] for each in made.questions if each["field"] not in skipped), None)


def _asked(field: str) -> Any:
    """One answer from stdin; None where it is left empty or stdin has ended. What cannot be is asked again."""
    while True:
        print(f"{question(field)['ask']} ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line.strip():
            return None
        try:
            return getattr(from_facts({field: parse(field, line)}), field)
        except CardError as error:
            print(f"{error}", file=sys.stderr)


def _context(given: Situation, facts: sources.Facts, past: list[dict[str, Any]]) -> dict[str, Any]:
    per_token = given.kv_bytes_per_token
    return {
        "situation": {name: value for name, value in asdict(given).items() if value is not None},
        "sources": {name: who for name, (_, who) in facts.items()},
        "misreadings": advising.misreadings(per_token) if per_token else [],
        "history": past,
    }


def _kept(args: argparse.Namespace, given: Situation, made: advising.Advice) -> list[dict[str, Any]]:
    """The history with this measurement added to the file; as it is where nothing was measured."""
    past = history.read(_text(args.history).splitlines()) if args.history.exists() else []
    if given.measured_tps is None or "measured_tps" not in _told(args):
        return past
    now = datetime.now(UTC).isoformat(timespec="seconds")
    added = history.entry(past, given, made, launch=args.launch, at=now)
    try:
        with args.history.open("a", encoding="utf-8") as file:
            file.write(json.dumps(added) + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write {args.history}: {error.strerror}") from None
    return [*past, added]


def _told(args: argparse.Namespace) -> set[str]:
    return {each["field"] for each in questions() if getattr(args, each["field"]) is not None}


def _stop_check(args: argparse.Namespace, given: Situation) -> None:
    missing = given.missing()
    if missing:
        raise ConfigError(f"{question(missing[0])['ask']} ({question(missing[0])['flag']})")
    stop = advising.stop_check(given, numbers(given))
    misread = advising.misreadings(given.kv_bytes_per_token or 0.0)
    if args.json:
        print(json.dumps({"stop": stop, "misreadings": misread}, indent=2))
    else:
        advice_text.show_stop(stop, misread)


def _why(args: argparse.Namespace, given: Situation) -> None:
    choice = None if given.prefill_share is None else techniques.choose(given.prefill_share)
    if args.json:
        rows = [asdict(each) for each in techniques.techniques()]
        print(json.dumps({"techniques": rows, "choice": asdict(choice) if choice else None}, indent=2))
    else:
        advice_text.show_techniques(choice)


def _candidates(args: argparse.Namespace, given: Situation) -> None:
    if given.mem_gb is None:
        raise ConfigError("--candidates needs --memory")
    context = given.ctx_needed or given.ctx_set
    if context is None:
        raise ConfigError("--candidates needs --context-needed or --context")
    budget = candidates.Budget(
        mem_gb=given.mem_gb,
        context=context,
        sequences=given.seqs or given.users or 1,
        bw_gbs=given.bw_gbs,
        target_tps=given.target_tps,
        min_bits=given.min_quant_bits,
    )
    ranked = candidates.rank([card_given(text, Path.cwd()) for text in args.candidates], budget)
    if args.json:
        print(json.dumps({"budget": asdict(budget), "candidates": [asdict(each) for each in ranked]}, indent=2))
    else:
        advice_text.show_candidates(ranked)


def _object(name: str) -> dict[str, Any]:
    """A JSON object from a file, or from stdin for -. ConfigError names the file and what is wrong."""
    try:
        raw = json.loads(sys.stdin.read(KNOWN_BYTES) if name == "-" else _text(Path(name)))
    except ValueError:
        raise ConfigError(f"{name}: not JSON") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{name}: not a JSON object")
    return raw


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(KNOWN_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
