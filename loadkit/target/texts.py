"""The prompts of a run, by length in tokens. All are built before anything is measured."""

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from loadkit.plan.errors import TargetError
from loadkit.plan.ladder import Plan
from loadkit.plan.tiers import K
from loadkit.prompt.build import BuildSpec, build_in_child
from loadkit.prompt.counters import CountError, CountTooSlow
from loadkit.prompt.filler import filler
from loadkit.prompt.public import PublicTier, read_texts, strata
from loadkit.prompt.store import meta
from loadkit.prompt.tier import TierText, build_tiers
from loadkit.record.names import Outcome
from loadkit.target.counting import Counting

LONG_TOKENS = 8 * K  # a longer prompt is built in a process of its own, whose memory goes with it


def build_texts(
    plan: Plan, counting: Counting, say: Callable[[str], None] = lambda line: None
) -> dict[int, TierText | PublicTier]:
    """Prompts of every length the plan sends; `say` is told when an estimate has to take over.

    ConfigError where a length cannot be built, TargetError where the server stops counting.
    """
    cells = {cell.target_tokens for cell in plan.cells}
    warmups = {plan.warmup_tokens(cell) for cell in plan.cells}
    try:
        if plan.prompts is not None:
            return dict(_public(plan.prompts, cells, warmups, counting))
        return {text.tier_tokens: text for text in _made(plan, sorted(cells | warmups), counting)}
    except CountTooSlow as error:
        if counting.instead is None:
            raise TargetError(f"{error}: name the model's tokenizer with --tokenizer", Outcome.RESET) from None
        say(f"prompt tokens: {error}; {counting.instead.note}")
        return build_texts(plan, counting.instead, say)
    except CountError as error:
        message = f"the server stopped counting tokens while prompts were built: {error}"
        raise TargetError(message, Outcome.RESET) from None


def _made(plan: Plan, lengths: list[int], counting: Counting) -> list[TierText]:
    counter, overhead = counting.counter, counting.overhead_tokens
    if max(lengths) > LONG_TOKENS and counter.recipe is not None:
        name, arguments = counter.recipe
        # A mapping outlives the name of its file, so nothing is left behind.
        with tempfile.TemporaryDirectory(prefix="loadkit-prompts-") as folder:
            spec = BuildSpec(name, arguments, tuple(lengths), overhead, plan.filler, folder, plan.shared_prefix)
            texts = build_in_child(spec)
    else:
        texts = build_tiers(counter, lengths, overhead, filler(plan.filler), shared_prefix=plan.shared_prefix)
    return texts if counting.proven else [replace(text, exact=False) for text in texts]


def _public(path: str, cells: set[int], warmups: set[int], counting: Counting) -> dict[int, PublicTier]:
    """The user's texts, sorted to the tiers; a warm-up of another length takes the nearest tier's."""
    found = strata(counting.counter, read_texts(Path(path)), sorted(cells), counting.overhead_tokens)
    by_length = {tier.tier_tokens: tier for tier in found}
    for length in warmups - cells:
        nearest = min(cells, key=lambda tier: abs(math.log(tier / length)))
        by_length[length] = by_length[nearest]
    return by_length


def facts(text: TierText | PublicTier) -> dict[str, Any]:
    """What a manifest says about the prompts of one length: hashes and counts, no text."""
    if isinstance(text, TierText):
        return meta(text)
    tokens = [prompt.tokens for prompt in text.prompts]
    return {"tier_tokens": text.tier_tokens, "tokens": tokens, "sha256": [prompt.sha256 for prompt in text.prompts]}
