"""The unique head of a prompt: a few units, each from a list in which every unit costs one token wherever it stands.

A head is drawn from 64 bits of the key, all within its first 64 characters and, for real tokenizers, within the first
KV block of 16 tokens, so that no prefix cache can serve one request from another. Because the units cost the same,
all heads do, and a prompt keeps its length to the token without being counted again.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loadkit.prompt.counters import Counter

END = "\n\n"
BITS = 64  # two of a million heads are then equal once in 37 million runs
MAX_CHARS = 64
FEWEST = 8  # units in a list; below that a head would not fit its 64 characters
WORDS_USED = 64  # so many words that 11 of them are a head, so few that all their pairs can be counted in one call
REMOTE_CALLS = 64  # bound on the calls that sort out unsuitable units when each is a request to a server
LETTERS = "qwertyuiopasdfghjklzxcvbnm"
SIGNS = LETTERS.upper() + LETTERS + "0123456789"
WORDS = (
    "time year work life hand part case week fact home area book word side kind head food land door air war art car "
    "city team idea body face game line end rate law name job day man sun sea ice oil box cup key map pen bag bed bus "
    "cap cat dog ear egg eye fan fish gold gate hill hole horn iron king lake lamp leaf lion list milk mind moon neck "
    "nest note page park path pipe plan pool rain ring road rock roof room root rose salt sand seed ship shop silk "
    "skin snow song soup star stem step tail tape tea tent tide tool town tree tube wall wave well wind wine wing "
    "wire wood wool yard arm ball band bank base bell belt bird blue boat bone bowl cake camp card clay club coal "
    "coat code cold cook copy corn cost crew dark data date deal deck desk dish dust east edge farm film fire flag "
    "form fort fuel fund gain gift goal hall harm heat help hero hope host hour inch item joke jury kick "
)


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads of `length` units from `units`, after a constant `lead`. even: all are known to cost the same tokens."""

    lead: str
    units: tuple[str, ...]
    length: int
    even: bool

    def text(self, number: int) -> str:
        """The head that `number` (taken modulo units ** length) stands for, with the blank line that closes it."""
        chosen = []
        for _ in range(self.length):
            number, digit = divmod(number, len(self.units))
            chosen.append(self.units[digit])
        return self.lead + "".join(chosen) + END

    def alike(self) -> list[str]:
        """One head for each unit, made of that unit alone: together they show every unit first and last in a head."""
        return [self.lead + unit * self.length + END for unit in self.units]

    def filling(self, tokens: int) -> str:
        """A few units that cost `tokens` tokens after a word: what the end of a text is trimmed with."""
        if self.lead or tokens == 0:
            return "".join(self.units[i % len(self.units)] for i in range(tokens))
        return ("." if tokens == 1 else " ") + "".join(self.units[i % len(self.units)] for i in range(tokens - 1))


def choose_heads(counter: Counter) -> Heads:
    """The first style of head whose units all cost one token by `counter`, in any order.

    Letters in a row suit byte and character tokenizers, words the usual ones, letters with spaces small vocabularies,
    capitals byte tokenizers that join a few letters, and signs that never join those whose tokens reach over spaces.
    When no style passes, or the counter only estimates, the heads are words and `even` is false.
    """
    solid = _heads("", LETTERS)
    if counter.exact:
        if _is_even(counter, solid):
            return solid
        for candidates in (WORDS.split(), LETTERS):
            units = one_token_units(counter, [" " + unit for unit in candidates])[:WORDS_USED]
            heads = _heads("A", units)
            if _fits(heads) and _is_even(counter, heads):
                return heads
        if _is_even(counter, capitals := _heads("", LETTERS.upper())):
            return capitals
        if counter.max_chars is None and _fits(heads := _heads("", _apart(counter, SIGNS))):
            return heads
    return _heads("A", [" " + word for word in WORDS.split()[:WORDS_USED]], even=False)


def one_token_units(counter: Counter, units: Sequence[str]) -> list[str]:
    """Those of `units` that add exactly one token each, found by halving groups that cost too much."""
    calls_left = REMOTE_CALLS if counter.max_chars is not None else 2 * len(units) + 1
    base = counter.count("A")
    groups, passed = [list(units)], []
    while groups and calls_left > 0:
        group = groups.pop()
        calls_left -= 1
        if counter.count("A" + "".join(group)) - base == len(group):
            passed += group
        elif len(group) > 1:
            middle = len(group) // 2
            groups += [group[middle:], group[:middle]]
    return passed


def every_pair(n: int) -> list[int]:
    """A walk over 0..n-1 that takes each of the n * n ordered neighbours once; n * n + 1 long."""
    walk = []
    for i in range(n):
        walk.append(i)
        for j in range(i + 1, n):
            walk += [i, j]
    return [*walk, 0]


def _heads(lead: str, units: Sequence[str], *, even: bool = True) -> Heads:
    length = math.ceil(BITS / math.log2(len(units))) if len(units) > 1 else BITS
    return Heads(lead, tuple(units), length, even)


def _fits(heads: Heads) -> bool:
    longest = max(map(len, heads.units), default=0)
    return len(heads.units) >= FEWEST and len(heads.lead) + heads.length * longest <= MAX_CHARS


def _apart(counter: Counter, units: Iterable[str]) -> list[str]:
    """A selection of `units` of which no two ever join, each pair asked for by itself: only for a local counter."""
    chosen: list[str] = []
    for unit in units:
        pairs = [pair for other in (*chosen, unit) for pair in (unit + other, other + unit)]
        if counter.count(unit) == 1 and all(counter.count(pair) == 2 for pair in pairs):
            chosen.append(unit)
    return chosen


def _is_even(counter: Counter, heads: Heads) -> bool:
    """Whether each unit costs one token next to each other unit.

    All ordered pairs are counted in one text: a tokenizer joins units only by first joining two neighbours.
    """
    walk = every_pair(len(heads.units))
    text = heads.lead + "".join(heads.units[i] for i in walk)
    return counter.count(text) - counter.count(heads.lead) == len(walk)
