"""Measuring long texts with short ones.

A body is cut from one unit of text repeated without end. Taking out a whole repetition between two others takes away a
fixed number of tokens, the period, because no token reaches over a whole unit. So a text of a million tokens is
measured by counting at most four units, which is what makes a remote counter bearable.
"""

import re
from bisect import bisect_right

from loadkit.prompt.counters import Counter
from loadkit.prompt.filler import Filler
from loadkit.prompt.heads import END

_WIDE = "\u2e80"  # from here on characters stand without spaces between words
_SENTENCE = re.compile(r"[.!?]\"?\s+|[。！？]”?\s*")


class Ruler:
    """Lengths in tokens of `front + head + rest + tail`, front and rest being neighbouring cuts of the endless text.

    Places in the endless text are characters from its start. even: the period was the same twice.
    """

    def __init__(self, counter: Counter, filler: Filler) -> None:
        self.unit = filler.text.strip() + "\n\n"
        self._counter = counter
        self._cuts = _cuts(self.unit)
        self._sentences = [m.end() for m in _SENTENCE.finditer(self.unit)] or self._cuts
        if counter.exact:
            one, two, three = (counter.count(self.unit * n) for n in (1, 2, 3))
            self.period: float = three - two
            self.even = two - one == three - two
        else:
            self.period = (counter.count(self.unit * 9) - counter.count(self.unit)) / 8
            self.even = False

    def text(self, start: int, end: int) -> str:
        """The endless text from `start` to `end`."""
        size = len(self.unit)
        first = start // size
        whole = self.unit * (-(-end // size) - first)
        return whole[start - first * size : end - first * size]

    def front(self, split: int) -> str:
        """What stands before the head: the text up to `split` as a paragraph of its own; nothing when split is 0."""
        return self.text(0, split).rstrip() + END if split else ""

    def tokens(self, head: str, split: int, cut: int, tail: str) -> int:
        """Tokens of front(split) + head + text(split, cut) + tail, from a copy with most repetitions taken out."""
        size = len(self.unit)
        front, start = self._short(split), split % size
        rest = self._short(cut - split)
        removed = (split - front + cut - split - rest) // size
        short = self.front(front) + head + self.text(start, start + rest) + tail
        return self._counter.count(short) + round(removed * self.period)

    def sentence_before(self, place: float) -> int:
        """The last end of a sentence at or before `place`; 0 when there is none."""
        repeats, inside = divmod(int(place), len(self.unit))
        at = bisect_right(self._sentences, inside)
        if at:
            return repeats * len(self.unit) + self._sentences[at - 1]
        return max(0, repeats - 1) * len(self.unit) + self._sentences[-1] if repeats else 0

    def cut(self, index: int) -> int:
        """The place of the index-th cut: after a word, or after any character of a script without spaces."""
        repeats, at = divmod(index, len(self._cuts))
        return repeats * len(self.unit) + self._cuts[at]

    def index_at(self, place: int) -> int:
        """The index of the first cut behind `place`."""
        repeats, inside = divmod(place, len(self.unit))
        return repeats * len(self._cuts) + bisect_right(self._cuts, inside)

    def last_cut_within(self, budget: int, head: str, split: int) -> int | None:
        """The index of the last cut with which the text costs at most `budget` tokens; None when no cut does.

        The cut is guessed from the price of a unit and searched for in a narrow bracket first.
        """

        def cost(index: int) -> int:
            return self.tokens(head, split, self.cut(index), "")

        first = self.index_at(split)
        spare = budget - self.tokens(head, split, split, "")
        guess = self.index_at(split + max(0, int(spare * len(self.unit) / self.period)))
        for width in (32, len(self._cuts)):
            low, high = max(first, guess - width), max(first, guess + width)
            if (low == first or cost(low) <= budget) and cost(high) > budget:
                break
        at = bisect_right(range(high), budget, lo=low, key=cost) - 1
        return at if at >= first else None

    def _short(self, chars: int) -> int:
        """`chars` less the whole units that can be taken out: at least one stays when there was one."""
        size = len(self.unit)
        return chars % size + min(chars // size, 1) * size


def _cuts(unit: str) -> list[int]:
    """Places in `unit` where a text may end: behind a word, or behind any wide character; never behind a space."""
    return [
        at
        for at in range(1, len(unit))
        if not unit[at - 1].isspace() and (unit[at].isspace() or unit[at - 1] >= _WIDE or unit[at] >= _WIDE)
    ]
