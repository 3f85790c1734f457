"""Prompts of one length: built once with a counter, then spliced for each request without counting anything."""

from collections.abc import Iterable
from dataclasses import dataclass

from loadkit.plan.errors import ConfigError
from loadkit.prompt.counters import Counter
from loadkit.prompt.filler import Filler
from loadkit.prompt.heads import Heads, choose_heads
from loadkit.prompt.prompt import Piece, Prompt, PromptKey, escape, prompt_sha256, text_sha256
from loadkit.prompt.ruler import Ruler

_WHOLE_CHECKS = 4  # heads with which a short text is counted as a whole
_SHORT_CHARS = 100_000  # longer texts are counted as a whole once
_AROUND_CHARS = 1000  # what is counted of a longer text, on both sides of the head, to compare heads
_BACK = 16  # cuts before the last fitting one that are tried with a filled-up end
_CHECK = 0x9E3779B97F4A7C15F39CC0605CEDC835  # multiples of it are spread over all heads


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
    split = ruler.sentence_before((need - least) * len(ruler.unit) / ruler.period * fraction)
    aim = need
    for _ in range(3):
        cut, tail, counted = _end(ruler, heads, head, split, aim)
        front, rest = ruler.text(0, split), ruler.text(split, cut) + tail
        whole = _whole_count(counter, front, head, rest)
        if whole is None or whole == need or not counter.exact:
            break
        aim += need - whole
    tokens = counted if whole is None else whole
    exact = counter.exact and tokens == need and (whole is not None or ruler.even)
    escaped_front = escape(front)
    return TierText(
        tier_tokens=tier,
        tokens=overhead + tokens,
        exact=exact and heads.even and _same_with_other_heads(counter, heads, front, rest, tokens),
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


def _whole_count(counter: Counter, front: str, head: str, rest: str) -> int | None:
    """The text counted in one piece; None when it is longer than one call to a remote counter may be."""
    text = front + head + rest
    return counter.count(text) if counter.max_chars is None or len(text) <= counter.max_chars else None


def _same_with_other_heads(counter: Counter, heads: Heads, front: str, rest: str, tokens: int) -> bool:
    """Whether other heads leave the count alone: of the whole text when it is short, else of what is near the head."""
    if len(front) + len(rest) > _SHORT_CHARS:
        front, rest = front[-_AROUND_CHARS:], rest[:_AROUND_CHARS]
        tokens = counter.count(front + heads.text(0) + rest)
    others = (heads.text(_CHECK * n) for n in range(1, 1 + _WHOLE_CHECKS))
    return all(counter.count(front + other + rest) == tokens for other in others)
