"""How the outcomes and numbers of a run may be read, and how not: the reading rules that apply, as plain sentences.

429 is a limit of rate and not of length; one timeout does not make a tier unavailable; where a ladder breaks off near
a window, the window, max_tokens and buffering are checked before a length is called unsupported; and prefill and decode
are never averaged into one number.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from loadkit.analysis.reading import number
from loadkit.analysis.stability import SLOWING
from loadkit.record.names import Outcome

TIMEOUTS = (Outcome.TTFT_TIMEOUT, Outcome.READ_TIMEOUT, Outcome.TOTAL_TIMEOUT, Outcome.GATEWAY_TIMEOUT)
WINDOW = (Outcome.CONTEXT_LENGTH_EXCEEDED, Outcome.PAYLOAD_TOO_LARGE, Outcome.BAD_REQUEST)
PREFILL_SHARE = 0.8
NAMED = 4  # cells named in one sentence
NEAR_WINDOW = 0.10  # of the window: a break this near to it, or beyond it, is checked against it first

Cell = Mapping[str, Any]


def readings(cells: Iterable[Cell], knee: Mapping[str, Any] | None, manifest: Mapping[str, Any]) -> list[str]:
    """The sentences that apply to these cells, in the order of checking."""
    cells = list(cells)
    return [*_outcomes(cells), *_breaks(cells, knee, manifest), *_paces(cells), *_shares(cells)]


def _outcomes(cells: list[Cell]) -> Iterator[str]:
    """What failures do and do not say about the length of a prompt; one sentence for all cells that had them."""
    refused = [(cell, n) for cell in cells if (n := _count(cell, (Outcome.RATE_LIMITED,)))]
    if refused:
        yield (
            f"Refused with 429: {_where(refused)}. That is a limit of rate or concurrency and not of length: "
            "not 'unsupported'. Lower the concurrency first, then back off."
        )
    late = [(cell, n) for cell in cells if (n := _count(cell, TIMEOUTS))]
    if some := [(cell, n) for cell, n in late if cell["ok"]]:
        yield f"Timed out: {_where(some)}. The others succeeded: over the limit at times, not 'unavailable'."
    if every := [(cell, n) for cell, n in late if not cell["ok"]]:
        yield (
            f"Timed out without any answer: {_where(every)}. Prefill or its queue takes longer than the limit; "
            "raise the limit before 'unavailable', then look at the window."
        )
    if outside := [(cell, n) for cell in cells if (n := _count(cell, WINDOW))]:
        yield (
            f"Refused for the request itself: {_where(outside)}. "
            "The window (prompt + max_tokens), or an alias with a smaller one, comes before the model."
        )


def _paces(cells: list[Cell]) -> Iterator[str]:
    """Cells whose answers slow down."""
    for cell in cells:
        pace = cell["stability"]
        if pace["verdict"] == SLOWING and cell["validity"]["status"] != "invalid":
            yield (
                f"{_name(cell)}: tokens get slower inside an answer ({pace['first_half_tpot_ms']:.3g} ms in its first "
                f"half, {pace['second_half_tpot_ms']:.3g} ms in its second): KV reads or interference; "
                "fix max_tokens and measure again."
            )


def _count(cell: Cell, outcomes: Iterable[Outcome]) -> int:
    return sum(cell["outcomes"].get(outcome, 0) for outcome in outcomes)


def _where(found: list[tuple[Cell, int]]) -> str:
    """The cells with their counts, the first of many."""
    names = [f"{n} of {cell['n']} at {_name(cell)}" for cell, n in found[:NAMED]]
    more = len(found) - len(names)
    return ", ".join(names) + (f", and in {more} more cells" if more else "")


def _breaks(cells: list[Cell], knee: Mapping[str, Any] | None, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Where the ladder at its lowest concurrency stops answering, or TTFT jumps: what to check first."""
    ladder = _lowest(cells)
    for shorter, longer in pairwise(ladder):
        if shorter["ok"] and longer["n"] and not longer["ok"]:
            yield _check_first(
                f"Answers stop between {shorter['tier_tokens']} and {longer['tier_tokens']} tokens", longer, manifest
            )
    length = (knee or {}).get("length") or {}
    if length.get("kind") == "break" and length.get("ci"):
        low, high = length["ci"]
        beyond = next((cell for cell in ladder if cell["tier_tokens"] >= high), None)
        yield _check_first(f"TTFT jumps between {low:.0f} and {high:.0f} tokens", beyond, manifest)


def _check_first(what: str, beyond: Cell | None, manifest: Mapping[str, Any]) -> str:
    """The three checks, and how near the window is where it is known."""
    window = _window(manifest)
    near = ""
    if window and beyond and beyond["tier_tokens"] >= (1 - NEAR_WINDOW) * window:
        near = f"; the window is {window:.0f} tokens"
    return f"{what}{near}. Check the server's window, max_tokens and a buffering proxy before 'unsupported'."


def _window(manifest: Mapping[str, Any]) -> float | None:
    parts = [part for name in ("endpoint", "check", "target") if isinstance(part := manifest.get(name), Mapping)]
    return next((window for part in parts if (window := number(part, "window"))), None)


def _lowest(cells: list[Cell]) -> list[Cell]:
    """Of every tier the cell with the fewest streams that is not invalid, ascending by tier."""
    usable = [cell for cell in cells if cell["validity"]["status"] != "invalid"]
    by_tier = {cell["tier_tokens"]: cell for cell in sorted(usable, key=lambda cell: -cell["concurrency"])}
    return [by_tier[tier] for tier in sorted(by_tier)]


def _shares(cells: list[Cell]) -> Iterator[str]:
    """Where the time goes at the longest tier that answered: two numbers, never one average."""
    answered = [cell for cell in _lowest(cells) if cell["prefill_share"] is not None]
    if not answered:
        return
    cell = answered[-1]
    if cell["prefill_share"] >= PREFILL_SHARE:
        yield (
            f"{_name(cell)}: {100 * cell['prefill_share']:.1f} % of the time is prefill: short answers to long prompts "
            "wait for the first token, and a rate over the whole request would hide it."
        )


def _name(cell: Cell) -> str:
    load = f"x {cell['concurrency']}" if cell["rate"] is None else f"at {cell['rate']:g}/s"
    return f"{cell['tier_tokens']} tokens {load}"
