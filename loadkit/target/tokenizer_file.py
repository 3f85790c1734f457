"""Counting by a tokenizer file the user names: it has to be the server's own, and two pings tell."""

from collections.abc import Sequence
from pathlib import Path

from loadkit.plan.errors import ConfigError
from loadkit.prompt.counters import tokenizer_counter
from loadkit.target.counting import GUESSED_OVERHEAD, Counting, Ping


def by_file(path: Path, pings: Sequence[Ping]) -> Counting:
    """The tokenizer at `path`, held against the pings: every one must leave the same overhead of template and BOS.

    Without pings nothing can prove it: the overhead is guessed and `proven` is false. ConfigError when the file cannot
    be read or the server counts otherwise.
    """
    counter = tokenizer_counter(path)
    if not pings:
        note = f"tokenizer {path.name}, not proven: the server stated no prompt tokens, template and BOS are guessed"
        return Counting(counter, GUESSED_OVERHEAD, counter.bos_tokens(), note, proven=False)
    counted = [counter.count(text) for text, _ in pings]
    extra = {tokens - own for (_, tokens), own in zip(pings, counted, strict=True)}
    if len(extra) != 1 or min(extra) < 0:
        seen = " and ".join(f"{tokens:,}" for _, tokens in pings)
        mine = " and ".join(f"{own:,}" for own in counted)
        raise ConfigError(
            f"--tokenizer {path.name} is not the server's: it counts {mine} tokens in the text of short requests for "
            f"which the server counted {seen}; name the model's own tokenizer, or leave --tokenizer out"
        )
    note = f"tokenizer {path.name}, held against {len(pings)} pings"
    return Counting(counter, extra.pop(), counter.bos_tokens(), note)
