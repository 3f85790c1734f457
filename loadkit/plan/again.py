"""What options may say beside `--resume`: nothing that contradicts the run. Budgets may be given anew."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from loadkit.plan import address
from loadkit.plan.errors import ConfigError
from loadkit.plan.flags import option_names
from loadkit.plan.given import Given
from loadkit.plan.ladder import Plan
from loadkit.plan.pace import pace_of
from loadkit.plan.resume import Resumed
from loadkit.plan.tiers import parse_tiers

# Options that say nothing of what is measured.
FREE = frozenset(
    {"resume", "dry-run", "yes", "quiet", "metrics-port", "no-metrics", "weights", "out"}
    | {"budget-tokens", "budget-cost", "max-duration"}
)
# Option -> (what was given, as it can be compared; what the run has).
KNOWN: dict[str, tuple[Callable[[str], Any], Callable[[Resumed], Any]]] = {
    "url": (lambda text: address.clean_base_url(text)[0], lambda run: run.endpoint.to_json()["base_url"]),
    "target": (str, lambda run: run.manifest["target"]["kind"]),
    "endpoint": (str, lambda run: run.endpoint.name),
    "model": (str, lambda run: run.endpoint.model),
    "protocol": (str, lambda run: run.endpoint.protocol),
    "tiers": (lambda text: sorted(parse_tiers(text)), lambda run: sorted({c.tier_tokens for c in run.plan.cells})),
    "concurrency": (
        lambda text: sorted({int(item) for item in text.split(",")}),
        lambda run: sorted({cell.concurrency for cell in run.plan.cells}),
    ),
    "rounds": (int, lambda run: run.plan.rounds),
    "max-tokens": (int, lambda run: run.plan.max_tokens),
    "temperature": (float, lambda run: run.plan.temperature),
    "seed": (int, lambda run: run.plan.seed),
    "filler": (str, lambda run: run.plan.filler),
}


def agreed(run: Resumed, options: Given) -> Plan:
    """The plan of the run with the budgets that are given now. ConfigError names the first option that contradicts it.

    A budget of tokens or money goes for the whole run and stays in force; the time is that of one start.
    """
    for name in option_names():
        text = options.url() if name == "url" else options.text(name)
        if name not in FREE and text not in (None, "False", "[]"):
            _agree(run, name, text)
    pace: Mapping[str, Any] = pace_of(options)
    return replace(
        run.plan,
        budget_tokens=pace["budget_tokens"] or run.plan.budget_tokens,
        budget_cost=pace["budget_cost"] or run.plan.budget_cost,
        max_duration_s=pace["max_duration_s"],
    )


def _agree(run: Resumed, name: str, text: str) -> None:
    if name not in KNOWN:
        raise ConfigError(f"--{name} cannot go with --resume, which takes everything from the run: leave it out")
    parse, of_run = KNOWN[name]
    try:
        given = parse(text)
    except ValueError:
        given = text
    if given != (known := of_run(run)):
        listed = ",".join(map(str, known)) if isinstance(known, list) else known
        raise ConfigError(f"--{name} {text[:80]} contradicts the run, which has {listed}: leave it out with --resume")
