"""Prompts from a file the user has declared public. Records carry their hash, never their text."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadkit.plan.errors import ConfigError
from loadkit.prompt.counters import Counter
from loadkit.prompt.prompt import Prompt, PromptKey, escape, text_sha256

_TEXT_KEYS = ("prompt", "text", "content", "question", "instruction")


@dataclass(frozen=True, slots=True)
class PublicTier:
    """The texts of a file that are nearest to one tier. They are sent as they are, without a unique head.

    So a text repeats when there are more requests than texts, and a prefix cache may then serve it.
    """

    tier_tokens: int
    prompts: tuple[Prompt, ...]

    def prompt(self, key: PromptKey) -> Prompt:
        """The text that `key` draws; the same key draws the same text."""
        return self.prompts[key.number % len(self.prompts)]


def read_texts(path: Path) -> list[str]:
    """The texts of a JSON list, of a JSON object with one list in it, or of JSONL.

    An entry is a string, an object with the text under prompt, text, content, question or instruction, or one with
    chat `messages`, of which the last user message is taken. ConfigError names the entry that is none of these.
    """
    try:
        source = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as UTF-8 text: {error}") from None
    texts = [_text(entry, f"{path}, entry {n}") for n, entry in enumerate(_entries(source, path), start=1)]
    if not texts:
        raise ConfigError(f"{path} holds no prompts")
    return texts


def strata(counter: Counter, texts: Sequence[str], tiers: Iterable[int], overhead_tokens: int) -> list[PublicTier]:
    """The texts sorted to the tier whose length is nearest as a ratio, by counted tokens with template and BOS.

    ConfigError when a tier gets no text.
    """
    sorted_in: dict[int, list[Prompt]] = {tier: [] for tier in tiers}
    for text in texts:
        tokens = overhead_tokens + counter.count(text)
        nearest = min(sorted_in, key=lambda tier: abs(math.log(max(tokens, 1) / tier)))
        prompt = Prompt((escape(text),), tokens, counter.exact, counter.source, len(text), text_sha256(text))
        sorted_in[nearest].append(prompt)
    for tier, prompts in sorted_in.items():
        if not prompts:
            raise ConfigError(f"the prompt file has no text near {tier} tokens: leave this tier out")
    return [PublicTier(tier, tuple(prompts)) for tier, prompts in sorted_in.items()]


def _entries(source: str, path: Path) -> list[Any]:
    try:
        whole = json.loads(source)
    except ValueError:
        return _lines(source, path)
    if isinstance(whole, dict):
        lists = [value for name, value in whole.items() if isinstance(value, list) and name != "messages"]
        return lists[0] if len(lists) == 1 else [whole]
    return whole if isinstance(whole, list) else [whole]


def _lines(source: str, path: Path) -> list[Any]:
    entries = []
    for n, line in enumerate(source.split("\n"), start=1):
        try:
            if line.strip():
                entries.append(json.loads(line))
        except ValueError:
            raise ConfigError(f"{path}, line {n}: not JSON; give a JSON list or one JSON value a line") from None
    return entries


def _text(entry: Any, where: str) -> str:
    found = entry
    if isinstance(entry, dict):
        messages = entry.get("messages")
        said = [m.get("content") for m in messages if _from_user(m)] if isinstance(messages, list) else []
        found = next((entry[key] for key in _TEXT_KEYS if isinstance(entry.get(key), str)), said[-1] if said else None)
    if not isinstance(found, str) or not found.strip():
        raise ConfigError(
            f"{where}: no text; give a string, or an object with one of {', '.join(_TEXT_KEYS)}, messages"
        )
    try:
        found.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{where}: half of a surrogate pair is no text that can be sent as UTF-8") from None
    return found


def _from_user(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "user"
