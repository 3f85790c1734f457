import hashlib
import json
from pathlib import Path

import pytest

from loadkit.plan.errors import ConfigError
from loadkit.prompt.counters import ByteCounter
from loadkit.prompt.prompt import PromptKey
from loadkit.prompt.public import read_texts, strata

TEXTS = ["one", 'two "quoted"', "三"]


@pytest.mark.parametrize(
    "source",
    [
        json.dumps(TEXTS),
        json.dumps({"version": 1, "prompts": [{"id": i, "prompt": text} for i, text in enumerate(TEXTS)]}),
        "\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in TEXTS) + "\n\n",
        "\r\n".join(json.dumps(text) for text in TEXTS),
        "\ufeff" + json.dumps({"data": TEXTS}),
        json.dumps([{"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": t}]} for t in TEXTS]),
    ],
)
def test_all_usual_shapes_are_read(tmp_path: Path, source: str) -> None:
    """Lists, objects with a list, JSONL, chat messages, BOM and CRLF give the same texts."""
    (tmp_path / "p").write_text(source, encoding="utf-8", newline="")
    assert read_texts(tmp_path / "p") == TEXTS


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no prompts"),
        (b"[]", "no prompts"),
        (b'"a"\n{oops\n', "line 2"),
        (b'["a", 7]', "entry 2"),
        (b'["a", " "]', "entry 2"),
        (b'[{"messages": [3]}]', "entry 1"),
        (b'["a", "\\ud800"]', "entry 2: half of a surrogate"),
        (b"\xff\xfe", "UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, content: bytes | None, said: str) -> None:
    """What is wrong is named with the file and the entry or line."""
    if content is not None:
        (tmp_path / "p.json").write_bytes(content)
    with pytest.raises(ConfigError, match=said) as caught:
        read_texts(tmp_path / "p.json")
    assert "p.json" in caught.value.message


def test_strata_are_by_counted_tokens() -> None:
    """A text belongs to the tier nearest as a ratio, overhead included, and keeps its own count, hash and escapes."""
    texts = ["a" * 100, "b" * 230, "c" * 480 + '"\n', "d" * 1200]
    small, middle, large = strata(ByteCounter(), texts, [128, 512, 1024], 20)
    assert [p.tokens for p in small.prompts] == [120, 250]
    assert [p.tokens for p in middle.prompts] == [502]
    assert [p.tokens for p in large.prompts] == [1220]
    prompt = middle.prompt(PromptKey(1, "512x1", 1, 0, "measure"))
    assert b"".join(prompt.content) == b"c" * 480 + rb"\"\n"
    assert prompt.sha256 == hashlib.sha256(texts[2].encode()).hexdigest()
    assert (prompt.exact, prompt.tokens_source, prompt.chars) == (True, "tokenizer", 482)


def test_keys_draw_the_same_text_again_and_reach_all() -> None:
    """The same key draws the same text; many keys draw them all."""
    (tier,) = strata(ByteCounter(), [f"text {i}" for i in range(5)], [8], 0)
    keys = [PromptKey(1, "8x1", n, 0, "measure") for n in range(100)]
    assert [tier.prompt(k) for k in keys] == [tier.prompt(k) for k in keys]
    assert {tier.prompt(k).sha256 for k in keys} == {p.sha256 for p in tier.prompts}


def test_a_tier_without_texts_is_refused() -> None:
    """A tier no text is near to is an error before anything is sent."""
    with pytest.raises(ConfigError, match="near 4096 tokens"):
        strata(ByteCounter(), ["short"], [8, 4096], 0)
