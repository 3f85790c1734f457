"""Which counter knows this server's tokens, proven by the usage of two short requests."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import httpx

from loadkit.plan.endpoint import Endpoint, root_url_for
from loadkit.prompt.calibrate import calibrate, overhead_tokens, words
from loadkit.prompt.counters import Counter, CountError, EstimateCounter, ServerCounter

# Where a server tells nothing: English in a usual BPE vocabulary, and a usual chat template.
GUESSED_TOKENS_PER_WORD = 1.35
GUESSED_OVERHEAD = 12


@dataclass(frozen=True, slots=True)
class Counting:
    """A counter with what the server adds around a text, in tokens; `note` says how both were found.

    `proven` False: no usage of the server stands behind it, so prompts are not called exact. `instead` is what takes
    over when the counter turns out too slow.
    """

    counter: Counter
    overhead_tokens: int
    bos_tokens: int | None
    note: str
    proven: bool = True
    instead: "Counting | None" = None


Ping = tuple[str, int]
"""A user message and the prompt tokens the server counted for it, template and BOS included."""


def choose_counter(client: httpx.Client, endpoint: Endpoint, pings: Sequence[Ping]) -> Counting:
    """The server's own /tokenize where the pings prove it, else words at a calibrated price, else a guess."""
    if pings:
        with contextlib.suppress(CountError, ValueError):
            counter = ServerCounter(client, root_url_for(endpoint, "/tokenize"), endpoint.model)
            return replace(_proven(counter, pings), instead=_estimated(pings))
    return _estimated(pings)


def over(counting: Counting, client: httpx.Client, endpoint: Endpoint) -> Counting:
    """The same counting over another client, where it is the server that counts. Raises CountError as that does."""
    if not isinstance(counting.counter, ServerCounter):
        return counting
    return replace(counting, counter=ServerCounter(client, root_url_for(endpoint, "/tokenize"), endpoint.model))


def _estimated(pings: Sequence[Ping]) -> Counting:
    if len(pings) > 1:
        with contextlib.suppress(ValueError):
            return _calibrated(pings)
    why = ("stated no prompt tokens", "stated the prompt tokens of one request only", "counted two texts alike")
    note = f"guessed: the server {why[min(len(pings), 2)]}"
    return Counting(EstimateCounter(GUESSED_TOKENS_PER_WORD), GUESSED_OVERHEAD, None, note)


def _proven(counter: Counter, pings: Sequence[Ping]) -> Counting:
    """The counter, if every ping leaves the same overhead; ValueError otherwise."""
    extra = {overhead_tokens(tokens, counter.count(text)) for text, tokens in pings}
    if len(extra) != 1:
        raise ValueError("the pings disagree about the overhead")
    return Counting(counter, extra.pop(), counter.bos_tokens(), f"{counter.source}, held against {len(pings)} pings")


def _calibrated(pings: Sequence[Ping]) -> Counting:
    (short, cheap), (long, dear) = pings[0], pings[-1]
    line = calibrate([words(short), words(long)], [cheap, dear])
    note = f"estimate: {line.tokens_per_word:.3f} tokens per word from two pings"
    return Counting(EstimateCounter(line.tokens_per_word), line.overhead_tokens, None, note)
