"""Which calls a prompt log holds, what they share, and what that costs: groups by template, common prefix, price.

A line is one request. Requests that name a template, site or call site are grouped by it; others by how they begin:
sorted, neighbours belong together while they share LEAST characters or a quarter of the shorter one, so that nobody has
to mark templates. A group's prefix is what all its prompts begin with; a server caches it from the first token on.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from loadkit.capacity.card import ModelCard
from loadkit.capacity.errors import CardError
from loadkit.capacity.kv import BLOCK
from loadkit.capacity.whatif import Price, Prices, cached_s, nearest, ttft_s

LEAST = 64  # characters
QUARTER = 0.25
NAMES = ("template", "site", "callsite", "call_site")
MOST_TOKENS = 100_000_000  # of a prompt: more is no count
HASH = 12  # hexadecimal digits shown of a SHA-256


class Counter(NamedTuple):
    """How to count the tokens of a text, and what to call such a count: "local_tokenizer" or "estimate"."""

    count: Callable[[str], int]
    source: str


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the text as the model reads it, its tokens where the log states them, and its template's name."""

    text: str
    tokens: int | None = None
    template: str | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """Calls of one template. Tokens per call (mean); `prefix_tokens` all of them begin with, in `prefix_share` of all.

    `ttft_s` until the first token of the mean call and `saved_s` of it when the prefix is cached; None without a price.
    `source` of the tokens: "server_usage", "local_tokenizer" or "estimate".
    """

    template: str
    name: str | None
    calls: int
    tokens: float
    prefix_tokens: float
    prefix_share: float
    cacheable: bool  # at least one block of a paged cache
    source: str
    ttft_s: float | None
    saved_s: float | None


def call(row: Mapping[str, Any]) -> Call:
    """A call of a logged line: `prompt` or `messages`, alone or under `request` or `body`; tokens from usage.

    CardError where there is no text.
    """
    inside = next((row[name] for name in ("request", "body") if isinstance(row.get(name), Mapping)), row)
    text = _text(inside).encode("utf-8", "replace").decode()  # tokenizers take no half characters
    if not text:
        raise CardError("no `prompt` and no `messages`")
    stated = _usage(row).get("prompt_tokens", row.get("prompt_tokens"))
    believed = isinstance(stated, int) and not isinstance(stated, bool) and 0 < stated <= MOST_TOKENS
    tokens = stated if believed else None
    named = next((row[name] for name in NAMES if isinstance(row.get(name), str) and row[name]), None)
    return Call(text, tokens, named)


def sites(
    calls: Iterable[Call],
    counter: Counter,
    *,
    prices: Prices | None = None,
    card: ModelCard | None = None,
) -> list[Site]:
    """Groups of calls, the most frequent first.

    `counter` counts where the log states no tokens, and prefixes always. `prices`: ms per token by the prompt tokens
    they were measured at, of which the nearest is used, carried by the card where one is known.
    """
    groups = _groups(list(calls))
    found = [_site(name, members, counter, prices, card) for name, members in groups]
    return sorted(found, key=lambda each: (-each.calls, -each.tokens, each.template))


def common(
    calls: Sequence[Call],
    counter: Counter,
    *,
    prices: Prices | None = None,
    card: ModelCard | None = None,
) -> Site:
    """All calls of a log as one group: what every one of them begins with. CardError for an empty log."""
    if not calls:
        raise CardError("the log holds no prompt")
    return _site(None, list(calls), counter, prices, card)


def _text(inside: Mapping[str, Any]) -> str:
    """The prompt, or all messages in order with their roles: what is the same at the start is the same prefix."""
    if isinstance(inside.get("prompt"), str):
        return inside["prompt"]
    parts = []
    messages = inside.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, Mapping):
            continue
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(each.get("text", "")) for each in content if isinstance(each, Mapping))
        parts.append(f"{message.get('role', '')}\n{content or ''}\n")
    return "".join(parts)


def _usage(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the server counted, in the line itself or in the response it holds."""
    for each in (row, row.get("response")):
        if isinstance(each, Mapping) and isinstance(each.get("usage"), Mapping):
            return each["usage"]
    return {}


def _groups(calls: list[Call]) -> list[tuple[str | None, list[Call]]]:
    named: dict[str, list[Call]] = defaultdict(list)
    for each in calls:
        if each.template is not None:
            named[each.template].append(each)
    groups: list[tuple[str | None, list[Call]]] = list(named.items())
    unnamed = sorted((each for each in calls if each.template is None), key=lambda each: each.text)
    run: list[Call] = []
    for each in unnamed:
        if run and not _alike(run[-1].text, each.text):
            groups.append((None, run))
            run = []
        run.append(each)
    return [*groups, (None, run)] if run else groups


def _alike(first: str, second: str) -> bool:
    """Whether two texts begin alike: LEAST characters, or a quarter of the shorter one where that is less."""
    return _shared(first, second) >= min(LEAST, max(1, QUARTER * min(len(first), len(second))))


def _shared(first: str, second: str) -> int:
    """Characters that both begin with, by halving, because prompts are long."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle - 1)
    return low


def _site(
    name: str | None,
    members: list[Call],
    counter: Counter,
    prices: Prices | None,
    card: ModelCard | None,
) -> Site:
    # Of the texts in order, the first and the last share least.
    texts = sorted(each.text for each in members)
    prefix = texts[0][: _shared(texts[0], texts[-1])] if len(texts) > 1 else ""
    tokens, source = _tokens(members, counter)
    mean = sum(tokens) / len(tokens)
    if source == counter.source:
        shared = float(counter.count(prefix))
    else:  # the server's tokens and ours are not the same: go by the share of the text
        shared = mean * len(prefix) * len(texts) / sum(map(len, texts))
    shared = min(shared, mean)
    price = nearest(prices, mean) if prices else None
    return Site(
        template=hashlib.sha256((name or prefix or texts[0]).encode("utf-8", "replace")).hexdigest()[:HASH],
        name=name,
        calls=len(members),
        tokens=mean,
        prefix_tokens=shared,
        prefix_share=shared / mean,
        cacheable=shared >= BLOCK,
        source=source,
        ttft_s=ttft_s(max(1, round(mean)), price, card) if price else None,
        saved_s=_saved(mean, shared, price, card) if price else None,
    )


def _saved(mean: float, shared: float, price: Price, card: ModelCard | None) -> float:
    whole = max(1, round(mean))
    return cached_s(whole, min(round(shared), whole - 1), price, card)


def _tokens(members: list[Call], counter: Counter) -> tuple[list[float], str]:
    if all(each.tokens is not None for each in members):
        return [float(each.tokens or 0) for each in members], "server_usage"
    return [float(max(1, counter.count(each.text))) for each in members], counter.source
