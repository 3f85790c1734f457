"""From what was asked for to a session ready to run: target, check, prompts, folder. Nothing is measured yet."""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadkit.call.choose import proxy_variable, without_proxies
from loadkit.plan import ladder
from loadkit.plan.budget import budget_of
from loadkit.plan.endpoint import Endpoint
from loadkit.plan.errors import ConfigError
from loadkit.plan.ladder import Plan
from loadkit.plan.options import RunRequest
from loadkit.plan.text import timeout_warnings
from loadkit.plan.tiers import fit_tier
from loadkit.prompt.public import PublicTier
from loadkit.prompt.tier import TierText
from loadkit.record.folder import RunFolder
from loadkit.record.redact import Redactor
from loadkit.swarm import again
from loadkit.swarm.further import Build, Decide
from loadkit.swarm.limits import check_limits
from loadkit.swarm.manifest import Manifest
from loadkit.swarm.session import Session, new_run_id
from loadkit.target import table
from loadkit.target.check import Check, check
from loadkit.target.control import open_client
from loadkit.target.counting import Counting, over
from loadkit.target.selftest import known
from loadkit.target.speed import speed
from loadkit.target.table import Target
from loadkit.target.texts import build_texts, facts


def prepare(
    request: RunRequest,
    environ: Mapping[str, str],
    cwd: Path,
    say: Callable[[str], None] = lambda line: None,
    decide: Decide | None = None,
) -> Session:
    """Everything a run needs, in the order in which it can fail. Raises ConfigError, TargetError or FolderError.

    `decide` may change the plan while it is walked. A target of our own is stopped again when a later step fails.
    """
    if request.plan.refine and decide is None:
        raise ConfigError("--refine: the locustfile has to end with install(finish, decide)")
    environ = environ if request.plan.proxy else without_proxies(environ)
    check_limits(request.plan)
    target = table.start(request, environ, cwd)
    try:
        if target.running is not None:
            say(f"target: {target.kind}, {_described(target)}")
        return _on(target, request, environ, say, decide)
    except BaseException:
        target.stop()
        raise


def _on(
    target: Target, request: RunRequest, environ: Mapping[str, str], say: Callable[[str], None], decide: Decide | None
) -> Session:
    """The session on a target that is there."""
    run = request.resumed
    budget = budget_of(request.plan, target.endpoint)
    if run is not None:
        again.room(run, budget)
    key = target.endpoint.key(environ)
    found, plan, texts = _checked(target, request, key, environ, say)
    if run is None:
        folder = RunFolder.create(request.out, datetime.now(UTC), run_id := new_run_id())
    else:
        folder, run_id = run.folder, run.manifest["run_id"]
        again.same(run, target, texts)
    about = redacted(_about(plan, target, found, texts, environ), Redactor([key] if key else []))
    session = Session(
        run_id=run_id,
        plan=plan,
        target=target,
        key=key,
        texts=texts,
        bos_tokens=found.counting.bos_tokens,
        overhead_tokens=found.counting.overhead_tokens,
        folder=folder,
        manifest=Manifest(folder, run_id, plan, about),
        environ=environ,
        decide=decide,
        build=_builder(target.endpoint, key, found.counting, environ),
        metrics=request.metrics,
        **({} if run is None else again.names(run)),
    )
    if run is not None:
        again.take_over(session, run)
    return session


def _checked(
    target: Target, request: RunRequest, key: str | None, environ: Mapping[str, str], say: Callable[[str], None]
) -> tuple[Check, Plan, dict[int, TierText | PublicTier]]:
    """What the check found, which completes the target's endpoint; the plan for it; and its prompts."""
    run = request.resumed
    with open_client(target.endpoint, key, environ) as client:
        tokenizer = request.plan.tokenizer
        ids = request.plan.token_ids
        found = check(
            client,
            target.endpoint,
            key,
            environ,
            ping=request.check,
            tokenizer=tokenizer,
            token_ids=ids,
            say=say,
        )
        target.endpoint = found.endpoint
        plan = request.plan if run is not None else _within(request.plan, found)
        _warn(plan, found, say)
        texts = build_texts(plan if run is None else replace(plan, cells=run.cells), found.counting, say)
    return found, plan, texts


def _builder(endpoint: Endpoint, key: str | None, counting: Counting, environ: Mapping[str, str]) -> Build:
    """Builds the prompts of tiers that are added while the run goes on, as those of the plan were built."""

    def build(plan: Plan) -> Mapping[int, TierText | PublicTier]:
        with open_client(endpoint, key, environ) as client:
            return build_texts(plan, over(counting, client, endpoint))

    return build


def _described(target: Target) -> str:
    facts = target.facts
    shown = {name: facts[name] for name in ("model", "source", "dtype", "threads", "blas") if facts.get(name)}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def _within(plan: Plan, found: Check) -> Plan:
    """The plan for the window that is now known: a default plan is clipped, an explicit tier above it is an error.

    Only a declared window refuses; one that the server lists may be shared by slots or out of date.
    """
    pairs = [(cell.tier_tokens, cell.concurrency) for cell in plan.cells]
    declared = found.endpoint.window
    if plan.name in ("engine", "url", "edge") and found.window is not None:
        pairs, declared = ladder.clip(pairs, found.window), found.window
    if plan.staged:
        fitted = {cell.tier_tokens: fit_tier(cell.tier_tokens, declared, plan.max_tokens) for cell in plan.cells}
        return replace(plan, cells=tuple(replace(cell, target_tokens=fitted[cell.tier_tokens]) for cell in plan.cells))
    rates = dict.fromkeys(cell.rate for cell in plan.cells)
    return replace(plan, cells=ladder.fit_cells(pairs, declared, plan.max_tokens, rates))


def _warn(plan: Plan, found: Check, say: Callable[[str], None]) -> None:
    """Say which timeouts are too short for the speed that the check saw."""
    estimate = speed(found.pings)
    for line in timeout_warnings(plan, estimate) if estimate else ():
        say(f"warning: {line}")


def _about(
    plan: Plan, target: Target, found: Check, texts: Mapping[int, TierText | PublicTier], environ: Mapping[str, str]
) -> dict[str, Any]:
    """What the manifest says beside the plan; the key appears only as its variable's name."""
    return {
        "target": {"kind": target.kind, **target.facts},
        "endpoint": target.endpoint.to_json(),
        "check": {
            "window": found.window,
            "proxied": proxy_variable(target.endpoint.base_url, environ) is not None,
            "listed_models": [facts.id for facts in found.listed[:100]],
            "pings": [
                {"outcome": ping.outcome, "prompt_tokens": ping.prompt_tokens, "ttft_ms": ping.ttft_ms}
                for ping in found.pings
            ],
        },
        "prompts": {
            "counter": found.counting.note,
            "overhead_tokens": found.counting.overhead_tokens,
            "bos_tokens": found.counting.bos_tokens,
            "tiers": [facts(text) for text in texts.values()],
        },
        "error_bars": known(max(cell.concurrency for cell in plan.cells), environ),
        "command": [_without_query(word) for word in sys.argv],
    }


def redacted(value: Any, redactor: Redactor) -> Any:
    """JSON values with the key taken out of every text: names of models come from the server."""
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, dict):
        return {name: redacted(item, redactor) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(item, redactor) for item in value]
    return value


def _without_query(word: str) -> str:
    """A word of the command line; of a URL in it only what is used, because people put keys into the query."""
    return re.sub(r"(://[^?#]*)[?#].*", r"\1", word, flags=re.DOTALL)
