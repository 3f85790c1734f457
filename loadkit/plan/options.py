"""From options, variables and files to what a run needs. Every bad value is a ConfigError that says what to change."""

import re
import secrets
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from loadkit.measure import slo
from loadkit.plan import endpoints_file, ladder, resume
from loadkit.plan.again import agreed
from loadkit.plan.edge import Edge, edge_again, edge_of
from loadkit.plan.endpoint import PROTOCOL_NAMES, Endpoint, Timeouts
from loadkit.plan.errors import ConfigError
from loadkit.plan.flags import TARGETS, add_options
from loadkit.plan.given import Given
from loadkit.plan.ladder import Plan
from loadkit.plan.pace import pace_of
from loadkit.plan.prompting import prompting
from loadkit.plan.rates import open_loop, rates_of, slots_of
from loadkit.plan.resume import Resumed
from loadkit.plan.serving import metrics_at
from loadkit.plan.staged import staged
from loadkit.plan.tiers import K, parse_tiers

__all__ = ["RunRequest", "add_options", "resolve"]

MAX_CONCURRENCY = 10_000
MAX_REFINE = 50
LEAST_REFINED = 4


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What was asked for. `endpoint` is None where the target brings its own (engine, sim, a board without a URL)."""

    plan: Plan
    target: str
    endpoint: Endpoint | None  # its headers, extra body and timeouts are the ones in effect, the same as the plan's
    board: str | None
    model: str | None  # as given; the endpoint has it too
    protocol: str | None  # as given
    weights: str | None
    out: Path
    dry_run: bool
    yes: bool
    check: bool
    warnings: tuple[str, ...]
    metrics: tuple[str, int] | None = None  # (address, port) of the live metrics; None = not served
    quiet: bool = False
    edge: Edge | None = None  # of a board: how it is reached, and how the model is stored
    resumed: Resumed | None = None  # the run to go on with, whose plan and endpoint these are
    engine: tuple[str, ...] = ()  # further arguments of the embedded engine, see cli/engine_ladder.py


def resolve(
    namespace: Namespace,
    environ: Mapping[str, str],
    cwd: Path,
    *,
    new_seed: Callable[[], int] = lambda: secrets.randbelow(2**31),
) -> RunRequest:
    """What the options ask for. Reads the endpoints file and nothing else; opens no connection."""
    options = Given(namespace)
    if (folder := options.text("resume")) is not None:
        return _go_on(options, resume.read(Path(cwd) / folder), environ)
    target = _target(options, environ)
    endpoint = _endpoint(options, target, environ, Path(cwd))
    warnings = _key_warnings(endpoint, environ, options.flag("dry-run"))
    plan = replace(_plan(options, target, endpoint, new_seed), **prompting(options, Path(cwd)))
    if endpoint is not None:
        endpoint = replace(endpoint, headers=plan.headers, extra_body=plan.extra_body, timeouts=plan.timeouts)
        warnings += endpoint.warnings()
    out = options.text("out") or "runs"
    return RunRequest(
        plan=plan,
        target=target,
        endpoint=endpoint,
        board=options.text("board"),
        model=options.text("model"),
        protocol=options.text("protocol"),
        weights=options.text("weights"),
        out=Path(cwd) / out,
        dry_run=options.flag("dry-run"),
        yes=options.flag("yes"),
        check=not options.flag("no-check"),
        warnings=warnings,
        metrics=metrics_at(options),
        quiet=options.flag("quiet"),
        edge=edge_of(options, target),
    )


def _go_on(options: Given, run: Resumed, environ: Mapping[str, str]) -> RunRequest:
    """The request of a run that is resumed: everything but budgets and the key comes from its folder."""
    plan, target = agreed(run, options), run.manifest["target"]
    own = target["kind"] in ("engine", "sim")
    return RunRequest(
        plan=plan,
        target=target["kind"],
        endpoint=None if own else run.endpoint,
        board=target.get("board"),
        model=run.endpoint.model,
        protocol=run.endpoint.protocol,
        weights=options.text("weights"),
        out=run.folder.path.parent,
        dry_run=options.flag("dry-run"),
        yes=options.flag("yes"),
        check=bool(run.manifest["check"]["pings"]),  # how prompts are counted depends on it
        warnings=_key_warnings(None if own else run.endpoint, environ, options.flag("dry-run")),
        metrics=metrics_at(options),
        quiet=options.flag("quiet"),
        edge=edge_again(target),
        resumed=run,
    )


def _key_warnings(endpoint: Endpoint | None, environ: Mapping[str, str], dry_run: bool) -> tuple[str, ...]:
    """A key that cannot be used stops a run before anything is sent; a dry run, which sends nothing, only says so."""
    try:
        if endpoint is not None:
            endpoint.key(environ)
    except ConfigError as error:
        if not dry_run:
            raise
        return (error.message,)
    return ()


def _target(options: Given, environ: Mapping[str, str]) -> str:
    """The kind of target: the one named, else what the other options can only mean, else the embedded engine."""
    named, url, board = options.text("target"), options.url(), options.text("board")
    name = options.text("endpoint")
    if named is not None and named not in TARGETS:
        raise ConfigError(f"--target {named[:40]!r}: must be one of {', '.join(TARGETS)}")
    if url and name:
        raise ConfigError("a URL and --endpoint are both given: keep one")
    if board and named not in (None, "board"):
        raise ConfigError(f"--board goes with --target board, not {named}: leave one out")
    if named == "board" and not board:
        raise ConfigError("--target board needs --board NAME")
    if named in ("engine", "sim") and (url or name):
        raise ConfigError(f"--target {named} starts a server of its own: leave the URL or endpoint out")
    if named in ("engine", "sim") and options.text("model"):
        raise ConfigError(f"--target {named} has one model of its own: leave --model out")
    if options.text("weights") and (named not in (None, "engine") or url or name or board):
        raise ConfigError("--weights are for the embedded engine: use them with --target engine")
    if named:
        return named
    if board:
        return "board"
    if options.text("weights"):
        return "engine"
    return "endpoint" if url or name or options.text("endpoints") or environ.get("LOADKIT_BASE_URL") else "engine"


def _endpoint(options: Given, target: str, environ: Mapping[str, str], cwd: Path) -> Endpoint | None:
    url, name, named_file = options.url(), options.text("endpoint"), options.text("endpoints")
    model, protocol = options.text("model"), options.text("protocol")
    if protocol is not None and protocol not in PROTOCOL_NAMES:
        raise ConfigError(f"--protocol {protocol[:40]!r}: must be one of {', '.join(PROTOCOL_NAMES)}")
    if url:
        endpoint = endpoints_file.from_url(url, environ)
    elif name or target == "endpoint":
        endpoint = _pick(name, named_file, environ, cwd)
    else:
        return None
    if protocol is not None and protocol != endpoint.protocol:
        endpoint = replace(endpoint, protocol=protocol, auth="")
    return replace(endpoint, model=model) if model else endpoint


def _pick(name: str | None, named_file: str | None, environ: Mapping[str, str], cwd: Path) -> Endpoint:
    """The endpoint by name, or the only one there is. LOADKIT_BASE_URL set by hand beats a file nobody named."""
    if not name and not named_file and environ.get("LOADKIT_BASE_URL"):
        path = None
    else:
        path = endpoints_file.find(named_file, cwd, environ)
    if path is None:
        found = None if name else endpoints_file.from_environ(environ)
        if found is None:
            wanted = f"endpoint {name!r}" if name else "an endpoint"
            raise ConfigError(
                f"{wanted} is asked for and there is no endpoints.toml"
                f"{'' if name else ' and no LOADKIT_BASE_URL'}: write one, or give a URL"
            )
        return found
    known = endpoints_file.load(path)
    if name in known:
        return known[name]
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    listed = f"it has {', '.join(known)}" if known else "it has none"
    if name is None:
        raise ConfigError(f"{path}: choose an endpoint with --endpoint NAME; {listed}")
    raise ConfigError(f"{path}: there is no endpoint {name!r}; {listed}")


def _plan(options: Given, target: str, endpoint: Endpoint | None, new_seed: Callable[[], int]) -> Plan:
    embedded = target == "engine"
    max_tokens = options.number("max-tokens", int, 1, 1_000_000) or (16 if embedded else 128)
    window = endpoint.window if endpoint else None
    rates, pace = rates_of(options), pace_of(options)
    name, pairs = _pairs(options, target, window, slots_of(options) if rates else None)
    warmup = options.number("warmup", int, 1, 1000)
    seed = options.number("seed", int, 0, 2**63 - 1)
    remote = target == "endpoint" and endpoint is not None and not endpoint.loopback
    plan = Plan(
        name=name,
        cells=ladder.fit_cells(pairs, window, max_tokens, rates or (None,)),
        seed=new_seed() if seed is None else seed,
        rounds=options.number("rounds", int, 1, 10_000) or (3 if options.text("duration") is None else 1),
        warmup=warmup or (3 if target == "board" else 1),
        short_warmup=remote and warmup is None,
        max_tokens=max_tokens,
        temperature=options.number("temperature", float, 0, 10) or 0.0,
        # The engine obeys ignore_eos, and TPOT wants every answer at its full length.
        ignore_eos=embedded or options.flag("ignore-eos"),
        retry=not options.flag("no-retry"),
        proxy=not options.flag("no-proxy"),
        slo=_slo(options),
        timeouts=_timeouts(options, endpoint),
        headers={**(endpoint.headers if endpoint else {}), **options.headers()},
        extra_body={**(endpoint.extra_body if endpoint else {}), **options.extra_body()},
        refine=_refine(options, pairs),
        full_grid=options.flag("full-grid"),
        **pace | (open_loop(options, rates, pace["duration_s"]) if rates else {}),
    )
    return replace(plan, **staged(options, ladder.RATE_TIERS.get(target, (K,))[0], window, max_tokens))


def _refine(options: Given, pairs: list[tuple[int, int]]) -> int:
    """How many tiers may be added. A knee takes at least four tiers to be found, so fewer are an error."""
    wanted = options.number("refine", int, 0, MAX_REFINE) or 0
    if wanted and options.text("prompts"):
        raise ConfigError("--refine makes prompts of new lengths and --prompts has its own: keep one")
    if wanted and len({tier for tier, level in pairs if level == 1}) < LEAST_REFINED:
        raise ConfigError(
            f"--refine needs at least {LEAST_REFINED} tiers at concurrency 1 to find a knee between: "
            "name more with --tiers"
        )
    return wanted


def _pairs(options: Given, target: str, window: int | None, slots: int | None) -> tuple[str, list[tuple[int, int]]]:
    """Name and (tier, concurrency) pairs of the plan; `slots` = the most streams of an open loop."""
    tiers, concurrency, named = options.text("tiers"), options.text("concurrency"), options.text("plan")
    if slots is not None:
        usual = ladder.RATE_TIERS.get(target, (K,))
        return "rate", ladder.grid(usual if tiers is None else parse_tiers(tiers), (slots,))
    if named is not None:
        if named not in ("long", "edge"):
            raise ConfigError(f"--plan {named[:40]!r}: must be long or edge")
        if tiers is not None or concurrency is not None:
            raise ConfigError("--plan has its own tiers and concurrency: leave --tiers and --concurrency out")
        return named, ladder.NAMED_PLANS[named]
    default = {"engine": "engine", "board": "edge"}.get(target, "url")
    if tiers is None and concurrency is None:
        return default, ladder.clip(ladder.NAMED_PLANS[default], window)
    standard = {"engine": ladder.ENGINE_TIERS, "board": ladder.EDGE_TIERS}.get(target, ladder.URL_TIERS)
    few = ladder.URL_CONCURRENCY if default == "url" else (1,)
    levels = _concurrency(concurrency) if concurrency is not None else few
    if tiers is not None:
        return "grid", ladder.grid(parse_tiers(tiers), levels)
    return "grid", ladder.clip(ladder.grid(standard, levels), window)


def _concurrency(text: str) -> tuple[int, ...]:
    items = [item.strip() for item in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,6}", item) and 1 <= int(item) <= MAX_CONCURRENCY for item in items):
        raise ConfigError(
            f"--concurrency {text[:40]!r}: must be whole numbers from 1 to {MAX_CONCURRENCY}, such as 1,2,4"
        )
    return tuple(sorted({int(item) for item in items}))


def _slo(options: Given) -> str:
    text = options.text("slo")
    if text is None:
        return ""
    try:
        slo.parse(text)
    except ValueError as error:
        raise ConfigError(f"--slo: {error}") from None
    return text


def _timeouts(options: Given, endpoint: Endpoint | None) -> Timeouts:
    timeouts = endpoint.timeouts if endpoint else Timeouts()
    connect = options.number("connect-timeout", float, 0.001, 300)
    ttft = options.number("ttft-timeout", float, 0.001, 1e6)
    read = options.number("read-timeout", float, 0.001, 1e6)
    return replace(
        timeouts,
        connect=connect or timeouts.connect,
        ttft=ttft or timeouts.ttft,
        read=read or timeouts.read,
        ttft_scales=timeouts.ttft_scales and ttft is None,
    )
