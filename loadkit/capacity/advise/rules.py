"""The decision table: rules in order, the first that matches decides. Free and reversible layers come first.

A rule is a pure function of the situation and its numbers. It returns the words its text needs beyond both, or None.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loadkit.capacity.advise.numbers import DEFAULT_CUT, REACH, SHORTEST_CUT, Numbers
from loadkit.capacity.advise.situation import Situation
from loadkit.capacity.advise.table import engines

SHARED = 0.5  # of a prompt, from which reuse decides
LARGE_CACHE = 0.2  # of the memory
TWICE = 2  # a context declared so many times longer than needed
SHORT = 0.30  # of dense weights that may stay on the CPU
INPUT_HEAVY = 0.8  # share of a request's time before its first token
DRAFT_GAIN = 2.0  # what speculation may bring at best

Words = dict[str, Any]
Test = Callable[[Situation, Numbers], Words | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """An action of advice.toml and when it is advised."""

    action: str
    test: Test


def decide(given: Situation, made: Numbers) -> tuple[str, Words]:
    """The first action that matches, with the words of its text."""
    for rule in RULES:
        words = rule.test(given, made)
        if words is not None:
            return rule.action, words
    return "keep", {}


def _when(condition: bool, **words: Any) -> Words | None:
    return words if condition else None


def several_users(given: Situation, made: Numbers) -> Words | None:
    """Several users, it fits, and the engine serves one after the other."""
    return _when((given.users or 1) > 1 and made.fits and not engines()[given.engine or "other"]["batching"])


def shared_prefix_elsewhere(given: Situation, made: Numbers) -> Words | None:
    """Half of each prompt or more is the same, and the engine keeps no cache of it."""
    reuses = engines()[given.engine or "other"]["reuse"] or given.prefix_reuse is True
    return _when(_shared(given) and not reuses, **_shared_words(given))


def shared_prefix_off(given: Situation, made: Numbers) -> Words | None:
    """The same, and the engine could."""
    return _when(_shared(given) and given.prefix_reuse is False, **_shared_words(given))


def cut_to_need(given: Situation, made: Numbers) -> Words | None:
    """It does not fit as declared and does at the length that is needed; or twice too much is declared and it costs."""
    if given.ctx_needed is None or given.ctx_needed >= (given.ctx_set or 0):
        return None
    wasteful = (given.ctx_set or 0) >= TWICE * given.ctx_needed and made.kv_share >= LARGE_CACHE
    if not made.fits and made.need_at_needed_gb <= made.budget_gb:
        return _cut(given, made, given.ctx_needed, "It does not fit as declared and does at the length that is needed.")
    if made.fits and wasteful:
        return _cut(given, made, given.ctx_needed, "Far more is declared than needed.")
    return None


def cut_to_fit(given: Situation, made: Numbers) -> Words | None:
    """Weights fit and the cache does not: the largest power of two that does, at most 16K where the need is unknown."""
    if made.fits or not made.weights_fit or given.ctx_hard:
        return None
    cut = made.largest_cut
    if given.ctx_needed is None and (given.ctx_set or 0) > DEFAULT_CUT:
        cut = min(cut, DEFAULT_CUT)
    if not SHORTEST_CUT <= cut < (given.ctx_set or 0):
        return None
    return _cut(given, made, cut, f"The weights fit, their cache does not: {made.left_gb:.2f} GB are left for it.")


def experts_to_cpu(given: Situation, made: Numbers) -> Words | None:
    """A mixture of experts that lacks memory for weights and is at 4 bit already."""
    if made.weights_fit or made.can_quantise or not given.moe:
        return None
    each = (given.weights_gb or 0.0) / given.layers if given.layers else 0.0
    count = min(given.layers or 0, math.ceil(-made.left_gb / each)) if each else None
    return {"n_cpu_moe": count}


def layers_to_cpu(given: Situation, made: Numbers) -> Words | None:
    """A dense model that lacks little."""
    if made.weights_fit or made.can_quantise or given.moe or made.short_share > SHORT:
        return None
    kept = math.floor(given.layers * (1 - made.short_share)) if given.layers else None
    return {"ngl": kept}


def read_less(given: Situation, made: Numbers) -> Words | None:
    """Most of the time passes before the first token."""
    return _when((given.prefill_share or 0.0) >= INPUT_HEAVY, prefill_percent=100 * (given.prefill_share or 0.0))


def speculate(given: Situation, made: Numbers) -> Words | None:
    """One user, memory for a draft, nothing left to quantise, and a target that speculation could reach."""
    if given.draft_gb is None or (given.users or 1) > 1 or made.can_quantise or not _short(given, made.roofline_tps):
        return None
    best = DRAFT_GAIN * REACH * (made.roofline_tps or 0.0)
    return _when(made.need_gb + given.draft_gb <= made.budget_gb and (given.target_tps or 0.0) <= best)


def smaller_cache(given: Situation, made: Numbers) -> Words | None:
    """The weights fit, and no cut is possible or allowed."""
    return _when(made.weights_fit and not made.fits)


def smaller_model(given: Situation, made: Numbers) -> Words | None:
    """At 4 bit, and the weights lack more than can be left on the CPU."""
    return _when(not made.weights_fit and not made.can_quantise)


def fewer_active(given: Situation, made: Numbers) -> Words | None:
    """Even at the narrowest weights the bound is below the target."""
    return _when(_short(given, made.floor_roofline_tps), reach=REACH)


def quantise(given: Situation, made: Numbers) -> Words | None:
    """8 bit or more, and it does not fit or is not fast enough."""
    if not made.can_quantise:
        return None
    if not made.fits:
        return {"quantise_reason": f"It needs {made.need_gb:.2f} GB and {made.budget_gb:.2f} GB are there."}
    if not _short(given, made.roofline_tps):
        return None
    bound = f"The bound is {made.roofline_tps:.2f} tokens/s, of which engines reach about {REACH:.0%}"
    return {"quantise_reason": f"{bound}; {given.target_tps:g} are wanted."}


def fast_enough(given: Situation, made: Numbers) -> Words | None:
    """The bound allows the target."""
    known = given.target_tps is not None and made.roofline_tps is not None
    reached = given.measured_tps is not None and given.target_tps is not None and given.measured_tps >= given.target_tps
    return _when(known and not reached)


def one_user_on_a_server(given: Situation, made: Numbers) -> Words | None:
    """One user who fits gains nothing from a serving engine."""
    return _when((given.users or 1) == 1 and made.fits)


RULES = (
    Rule("continuous_batching_engine", several_users),
    Rule("prefix_reuse_engine", shared_prefix_elsewhere),
    Rule("prefix_reuse", shared_prefix_off),
    Rule("cut_context", cut_to_need),
    Rule("cut_context", cut_to_fit),
    Rule("n_cpu_moe", experts_to_cpu),
    Rule("partial_offload_ngl", layers_to_cpu),
    Rule("reduce_input_or_cache", read_less),
    Rule("speculative_decoding", speculate),
    Rule("kv_saving_model", smaller_cache),
    Rule("smaller_or_moe_model", smaller_model),
    Rule("smaller_active_params", fewer_active),
    Rule("quantise_to_4bit", quantise),
    Rule("check_efficiency", fast_enough),
    Rule("keep_or_simpler_engine", one_user_on_a_server),
)


def _shared(given: Situation) -> bool:
    return (given.shared_prefix_share or 0.0) >= SHARED


def _shared_words(given: Situation) -> Words:
    return {"shared_percent": 100 * (given.shared_prefix_share or 0.0)}


def _short(given: Situation, bound: float | None) -> bool:
    return given.target_tps is not None and bound is not None and REACH * bound < given.target_tps


def _cut(given: Situation, made: Numbers, tokens: int, reason: str) -> Words:
    return {"cut": tokens, "cut_reason": reason, "kv_cut_gb": made.kv_gb * tokens / (given.ctx_set or tokens)}
