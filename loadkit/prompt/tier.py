"""Prompts of one length: built once with a counter, then spliced for each request without counting anything."""

from collections.abc import Iterable
from dataclasses import dataclass

from loadkit.plan.errors import ConfigError
from loadkit.prompt.counters import Counter
from loadkit.prompt.filler import Filler
from loadkit.prompt.heads import Heads, choose_heads
from loadkit.prompt.prompt import Piece, Prompt, PromptKey, escape, prompt_sha256, text_sha256
from loadkit.prompt.ruler import Ruler

_AROUND_CHARS = 300  # what is counted on both sides of the head to compare heads
_REMOTE_HEADS = 4  # heads compared when each count is a request to a server
_BACK = 16  # cuts before the last fitting one that are tried with a filled-up end


@dataclass(frozen=True, slots=True)
class TierText:
    """All prompts of a tier: one shared body and the heads that make each prompt unique.

    tokens: prompt tokens the server will count, template and BOS included; equal to tier_tokens when exact.
    body: the escaped text without the head, which goes in at byte `split` (0 unless a prefix is shared).
    rest_sha256, rest_chars: hash and characters of the unescaped text without the head.
    shared_chars: characters in front of the head, the same in all prompts of the tier.
    """

    tier_tokens: int
    tokens: int
    exact: bool
    source: str
    overhead_tokens: int
    filler_id: str
    filler_sha256: str
    heads: Heads
    body: Piece
    split: int
    shared_chars: int
    rest_chars: int
    rest_sha256: str

    def prompt(self, key: PromptKey) -> Prompt:
        """The prompt of `key`: two hashes of a few bytes and a splice. The body is shared, never copied."""
        head = self.heads.text(key.number)
        content: tuple[Piece, ...] = (escape(head), self.body)
        if self.split:
            body = memoryview(self.body)
            content = (body[: self.split], escape(head), body[self.split :])
        return Prompt(
            content=content,
            tokens=self.tokens,
            exact=self.exact,
            tokens_source=self.source,
            chars=len(head) + self.rest_chars,
            sha256=prompt_sha256(head, self.rest_sha256),
        )


def build_tier(
    counter: Counter, tier_tokens: int, overhead_tokens: int, filler: Filler, *, shared_prefix: float = 0.0
) -> TierText:
    """One tier; see `build_tiers`."""
    return build_tiers(counter, [tier_tokens], overhead_tokens, filler, shared_prefix=shared_prefix)[0]


def build_tiers(
    counter: Counter, tiers: Iterable[int], overhead_tokens: int, filler: Filler, *, shared_prefix: float = 0.0
) -> list[TierText]:
    """Texts that cost exactly tier - overhead tokens by `counter`, or the closest when it only estimates.

    overhead_tokens: chat template and BOS, as measured by a ping (`calibrate.overhead_tokens`).
    shared_prefix: the fraction of the text, 0 to below 1, that stands in front of the head and is the same in all
    prompts (cut at the end of a sentence). ConfigError when it is out of range or a tier has no room for the head.
    """
    if not 0 <= shared_prefix < 1:
        raise ConfigError(f"the shared prefix is a fraction from 0 to below 1, not {shared_prefix}")
    heads, ruler = choose_heads(counter), Ruler(counter, filler)
    return [_build(counter, ruler, heads, tier, overhead_tokens, filler, shared_prefix) for tier in tiers]


def _build(
    counter: Counter, ruler: Ruler, heads: Heads, tier: int, overhead: int, filler: Filler, fraction: float
) -> TierText:
    head, need = heads.text(0), tier - overhead
    least = counter.count(head) + 1
    if need < least:
        raise ConfigError(
            f"a tier of {tier} tokens has no room: the chat template takes {overhead} and the unique head {least}; "
            f"the smallest tier here is {overhead + least}"
        )
    split = _split(ruler, head, need, fraction * (need - least))
    front, rest, tokens, counted = _fitting(counter, ruler, heads, head, split, need)
    exact = counter.exact and tokens == need and (counted or ruler.even)
    escaped_front = escape(front)
    return TierText(
        tier_tokens=tier,
        tokens=overhead + tokens,
        exact=exact and heads.even and _same_with_all_heads(counter, heads, front, rest),
        source=counter.source,
        overhead_tokens=overhead,
        filler_id=filler.id,
        filler_sha256=filler.sha256,
        heads=heads,
        body=escaped_front + escape(rest),
        split=len(escaped_front),
        shared_chars=len(front),
        rest_chars=len(front) + len(rest),
        rest_sha256=text_sha256(front + rest),
    )


def _split(ruler: Ruler, head: str, need: int, shared_tokens: float) -> int:
    """The end of the sentence up to which the text is shared: about `shared_tokens`, and leaving room for the head."""
    split = ruler.sentence_before(shared_tokens * len(ruler.unit) / ruler.period)
    while split and ruler.tokens(head, split, split, "") >= need:
        split = ruler.sentence_before(split - 1)
    return split


def _fitting(
    counter: Counter, ruler: Ruler, heads: Heads, head: str, split: int, need: int
) -> tuple[str, str, int, bool]:
    """Texts before and after the head that cost `need` tokens with it, or nearly: (front, rest, tokens, counted).

    Where the whole text can be counted, its count is the last word, and a miss is aimed off twice. `counted` is false
    when it is longer than one call to a remote counter may be: then `tokens` rests on the ruler.
    """
    front, aim = ruler.front(split), need
    tries: list[tuple[int, str]] = []
    while len(tries) < 3:
        cut, tail, tokens = _end(ruler, heads, head, split, aim)
        rest = ruler.text(split, cut) + tail
        text = front + head + rest
        if counter.max_chars is not None and len(text) > counter.max_chars:
            return front, rest, tokens, False
        tries.append((counter.count(text), rest))
        if tries[-1][0] == need:
            break
        aim += need - tries[-1][0]
    tokens, rest = min(tries, key=lambda tried: abs(tried[0] - need))
    return front, rest, tokens, True


def _end(ruler: Ruler, heads: Heads, head: str, split: int, need: int) -> tuple[int, str, int]:
    """Where to cut and what to fill up with, so that the text costs `need` tokens: (cut, tail, tokens).

    The nearest miss when no cut fits exactly. A text without any body (cut at the split) is filled up alone.
    """
    last = ruler.last_cut_within(need, head, split)
    first = ruler.index_at(split)
    places = [] if last is None else [ruler.cut(i) for i in range(last, max(first, last - _BACK) - 1, -1)]
    best: tuple[int, str, int] | None = None
    for cut in [*places, split]:
        plain = ruler.tokens(head, split, cut, "")
        tail = heads.filling(max(1 if cut == split else 0, need - plain))
        tokens = ruler.tokens(head, split, cut, tail) if tail else plain
        if best is None or abs(tokens - need) < abs(best[2] - need):
            best = (cut, tail, tokens)
        if tokens == need:
            break
    assert best is not None
    return best


def _same_with_all_heads(counter: Counter, heads: Heads, front: str, rest: str) -> bool:
    """Whether every unit costs the same beside the text before and after the head; a remote counter is asked of few."""
    front, rest = front[-_AROUND_CHARS:], rest[:_AROUND_CHARS]
    alike = heads.alike()
    if counter.max_chars is not None:
        alike = alike[:: max(1, len(alike) // _REMOTE_HEADS)]
    return len({counter.count(front + head + rest) for head in alike}) == 1
