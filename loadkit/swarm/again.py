"""A session that goes on with an earlier start of its run: same folder, same prompts, other processes."""

import json
from collections.abc import Mapping
from typing import Any

from loadkit.plan.budget import Budget, Spent
from loadkit.plan.errors import ConfigError
from loadkit.plan.resume import Resumed
from loadkit.prompt.public import PublicTier
from loadkit.prompt.tier import TierText
from loadkit.swarm.health import process_name
from loadkit.swarm.session import Session
from loadkit.target.table import Target
from loadkit.target.texts import facts

SAME_TARGET = ("model", "source", "dtype", "prefill_mode")


def room(run: Resumed, budget: Budget) -> None:
    """ConfigError where earlier starts of the run have used a budget up: it goes for the run and not for each start."""
    cell = run.todo[0].visit.cell
    spent = run.past.spent
    if name := budget.passed_by(spent.plus(Spent(cell.target_tokens, run.plan.max_tokens))):
        raise ConfigError(f"{budget.sentence(name, spent, 0.0)}: give a higher --budget-{name} to go on")


def same(run: Resumed, target: Target, texts: Mapping[int, TierText | PublicTier]) -> None:
    """ConfigError where the target or the prompts are not those of the run: its numbers would not belong together."""
    before = run.manifest["target"]
    for name in SAME_TARGET:
        if name in before and before[name] != target.facts.get(name):
            raise ConfigError(
                f"the {target.kind} of this run had {name} {str(before[name])[:80]!r}, "
                f"and now has {str(target.facts.get(name))[:80]!r}: start a new run"
            )
    known = {tier["tier_tokens"]: tier for tier in run.manifest["prompts"]["tiers"]}
    for length, text in texts.items():
        now = json.loads(json.dumps(facts(text)))
        if length in known and known[length] != now:
            raise ConfigError(
                f"the prompts of {length:,} tokens are no longer those of this run: tokenizer, counter or filler "
                "have changed, start a new run"
            )


def names(run: Resumed) -> dict[str, Any]:
    """What tells this start of the run from the earlier ones, and the visits it has to do: arguments of its session.

    A process may have the number of an earlier one, and its clock may have begun anew.
    """
    return {
        "worker": f"{process_name()}-r{run.number}",
        "mark": f"r{run.number}-",
        "walk": [item.visit for item in run.todo],
    }


def take_over(session: Session, run: Resumed) -> None:
    """Let the session know what there was before it. It holds the lock of the folder by now."""
    assert session.manifest is not None
    session.manifest.resume(run, session.plan)
    session.spent_before = run.past.spent
    session.pacing.remember(run.past.spent)
    if session.further is not None:
        session.further.remember(run.tally())
