"""The prompts of a run: of which lengths, from what, and where long ones are built."""

import json
from dataclasses import replace

import pytest

from loadkit.plan.errors import ConfigError, TargetError
from loadkit.plan.ladder import Plan, fit_cells
from loadkit.prompt.counters import ByteCounter, CountError, CountTooSlow, EstimateCounter
from loadkit.prompt.prompt import PromptKey
from loadkit.target.counting import Counting
from loadkit.target.texts import LONG_TOKENS, build_texts, facts

BYTES = Counting(ByteCounter(), 8, None, "bytes")
WORDS = Counting(EstimateCounter(1.3), 8, None, "estimate")


def plan(*tiers, **values):
    """A plan of tiers at concurrency 1."""
    cells = fit_cells([(tier, 1) for tier in tiers], None, 16)
    return Plan(name="t", cells=cells, seed=1, **values)


def message(text, slot=0):
    """The user message of one slot, as a JSON reader sees it."""
    prompt = text.prompt(PromptKey(1, "c", 1, slot, "measure"))
    return json.loads(b'"' + b"".join(prompt.content) + b'"')


def test_every_length_that_is_sent_has_its_prompts():
    """Cells and short warm-ups alike, exact to the token."""
    texts = build_texts(plan(256, 1024, short_warmup=True), BYTES)
    assert sorted(texts) == [128, 256, 1024]
    assert all(len(message(text).encode()) + 8 == length for length, text in texts.items())
    assert all(text.exact for text in texts.values())


def test_filler_and_shared_prefix_are_the_plans():
    """Chinese text; the first part of all prompts is the same, about the fraction asked for."""
    text = build_texts(plan(4096, filler="zh", shared_prefix=0.5), BYTES)[4096]
    first, second = message(text, 0), message(text, 1)
    common = next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
    assert text.filler_id == "zh"
    assert 0.3 < len(first[:common].encode()) / len(first.encode()) <= 0.52


@pytest.mark.parametrize("counting", [BYTES, WORDS], ids=["tokenizer", "estimate"])
def test_long_prompts_are_built_elsewhere_and_are_the_same(counting, monkeypatch):
    """Above 8K a child process builds them, and they are mapped; its files are gone, its bytes are those built here."""
    mine = plan(128, LONG_TOKENS + 1)
    mapped = build_texts(mine, counting)
    monkeypatch.setattr("loadkit.target.texts.LONG_TOKENS", 10**9)
    built = build_texts(mine, counting)
    assert {length: message(text) for length, text in mapped.items()} == {
        length: message(text) for length, text in built.items()
    }
    assert isinstance(mapped[128].body, memoryview)
    assert isinstance(built[128].body, bytes)


def test_a_counter_that_nothing_proves_is_not_called_exact():
    """A tokenizer file without any usage to hold it against."""
    text = build_texts(plan(256), replace(BYTES, proven=False))[256]
    assert (text.exact, text.prompt(PromptKey(1, "c", 1, 0, "measure")).exact) == (False, False)


def test_a_length_without_room_says_so():
    """The chat template and the unique head take what there is."""
    with pytest.raises(ConfigError, match="has no room"):
        build_texts(plan(16), BYTES)


def test_a_server_that_stops_counting_is_a_fault_of_the_target():
    """It counted before, so the run cannot go on."""

    class Gone(ByteCounter):
        def count(self, text):
            raise CountError("/tokenize answered 500")

    with pytest.raises(TargetError, match="stopped counting tokens while prompts were built: /tokenize answered 500"):
        build_texts(plan(256), Counting(Gone(), 8, None, "server"))


def test_a_server_that_counts_too_slowly_is_estimated():
    """The estimate held ready takes over, and it is said; without one the run cannot go on."""

    class Slow(ByteCounter):
        def count(self, text):
            raise CountTooSlow("/tokenize took more than 120 s to count the prompts")

    said = []
    slow = Counting(Slow(), 8, None, "server")
    text = build_texts(plan(256), replace(slow, instead=replace(BYTES, note="estimate: by words")), said.append)[256]
    assert text.tier_tokens == 256
    assert said == ["prompt tokens: /tokenize took more than 120 s to count the prompts; estimate: by words"]
    with pytest.raises(TargetError, match="--tokenizer"):
        build_texts(plan(256), slow)


def test_public_prompts_go_to_the_nearest_tier(tmp_path):
    """Sent as they are; a short warm-up takes the nearest tier's; the manifest has hashes and no text."""
    path = tmp_path / "p.json"
    path.write_text(json.dumps([{"prompt": "a" * 500}, {"prompt": "b" * 480}, {"prompt": "c" * 1000}]))
    texts = build_texts(plan(512, 1024, short_warmup=True, prompts=str(path)), BYTES)
    assert sorted(texts) == [128, 512, 1024]
    assert {message(texts[512], slot)[0] for slot in range(32)} == {"a", "b"}
    assert message(texts[1024]) == "c" * 1000
    assert texts[128] is texts[512]
    said = facts(texts[512])
    assert said["tokens"] == [508, 488]
    assert "aaaa" not in json.dumps(said)
    with pytest.raises(ConfigError, match="no text near 8192"):
        build_texts(plan(512, 8192, prompts=str(path)), BYTES)


def test_the_manifest_says_how_prompts_were_made():
    """Filler and its hash, lengths, and no text."""
    said = facts(build_texts(plan(256), BYTES)[256])
    assert (said["filler_id"], said["tokens"], len(said["filler_sha256"])) == ("en", 256, 64)
    assert "harbour" not in json.dumps(said)
