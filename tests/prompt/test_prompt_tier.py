import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import loadkit
from loadkit.plan.errors import ConfigError
from loadkit.prompt import Filler, Prompt, PromptKey, build_tier, build_tiers, filler
from loadkit.prompt.counters import ByteCounter, EstimateCounter
from loadkit.prompt.prompt import escape, prompt_sha256
from loadkit.record.names import Phase

TIERS = [48, 64, 96, 128, 512, 1000, 1024, 4096, 8192]
Message = Callable[[Prompt], str]


def keys(n: int, seed: int = 7) -> list[PromptKey]:
    return [PromptKey(seed, "4096x4", 1 + i // 4, i % 4, Phase.MEASURE) for i in range(n)]


class Remote:
    """A counter as a server is one: bounded calls, all written down."""

    source, exact = "server", True

    def __init__(self, counter: Any, max_chars: int = 60_000) -> None:
        self._counter, self.max_chars = counter, max_chars
        self.lengths: list[int] = []

    def count(self, text: str) -> int:
        self.lengths.append(len(text))
        return self._counter.count(text)

    def bos_tokens(self) -> int | None:
        return None


class UnevenCounter:
    """Bytes, but every 4,000th is two tokens: a repetition does not always cost the same."""

    source, exact, max_chars = "tokenizer", True, None

    def count(self, text: str) -> int:
        size = len(text.encode())
        return size + size // 4000

    def bos_tokens(self) -> int | None:
        return None


@pytest.fixture(params=["bytes", "bpe", "crossing"])
def counter(request: pytest.FixtureRequest) -> Any:
    return ByteCounter() if request.param == "bytes" else request.getfixturevalue(request.param)


@pytest.mark.parametrize("shared_prefix", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("name", ["en", "zh"])
def test_prompts_have_exactly_the_tokens_of_their_tier(
    counter: Any, name: str, shared_prefix: float, message: Message
) -> None:
    """Template overhead and the counted text are the tier, ±0, for every tier, both fillers and many heads."""
    for tier in build_tiers(counter, TIERS, 11, filler(name), shared_prefix=shared_prefix):
        assert (tier.exact, tier.tokens, tier.source) == (True, tier.tier_tokens, "tokenizer")
        for key in keys(12 if tier.tokens > 2000 else 60):
            text = message(tier.prompt(key))
            assert counter.count(text) + 11 == tier.tier_tokens
            assert text == text.strip()


def test_small_tiers_are_exact_one_by_one(counter: Any, message: Message) -> None:
    """Every length from the smallest possible on is met, not only round ones."""
    with pytest.raises(ConfigError) as caught:
        build_tier(counter, 9, 5, filler("en"))
    smallest = int(caught.value.message.rsplit(" ", 1)[1])
    for tier in build_tiers(counter, range(smallest, smallest + 40), 5, filler("en")):
        assert counter.count(message(tier.prompt(keys(1)[0]))) + 5 == tier.tier_tokens
    with pytest.raises(ConfigError, match=f"a tier of {smallest - 1} tokens has no room"):
        build_tier(counter, smallest - 1, 5, filler("en"))


def test_two_runs_of_100_prompts_share_no_opening(counter: Any, message: Message) -> None:
    """200 prompts of the 4K tier, warm-up and repeated visits among them, have 200 distinct first 64 characters."""
    tier = build_tier(counter, 4096, 30, filler("en"))
    wanted = [
        PromptKey(seed, "4096x4", round, slot, phase, attempt)
        for seed in (1, 2)
        for round in range(5)
        for slot in range(5)
        for phase in (Phase.WARMUP, Phase.MEASURE)
        for attempt in (0, 1)
    ]
    assert len({message(tier.prompt(key))[:64] for key in wanted}) == len(wanted) == 200


def test_all_parts_of_the_key_count() -> None:
    """Changing any one field of the key changes the opening; the same key gives the same bytes."""
    tier = build_tier(ByteCounter(), 128, 0, filler("en"))
    base = PromptKey(1, "128x1", 1, 0, Phase.MEASURE)
    others = [
        PromptKey(2, "128x1", 1, 0, Phase.MEASURE),
        PromptKey(1, "128x2", 1, 0, Phase.MEASURE),
        PromptKey(1, "128x1", 2, 0, Phase.MEASURE),
        PromptKey(1, "128x1", 1, 1, Phase.MEASURE),
        PromptKey(1, "128x1", 1, 0, Phase.WARMUP),
        PromptKey(1, "128x1", 1, 0, Phase.MEASURE, attempt=1),
    ]
    assert tier.prompt(base) == tier.prompt(PromptKey(1, "128x1", 1, 0, "measure"))
    assert len({tier.prompt(key).sha256 for key in [base, *others]}) == 7


_ELSEWHERE = """
import sys
from loadkit.prompt import PromptKey, build_tier, filler
from loadkit.prompt.counters import TokenizerJsonCounter
tier = build_tier(TokenizerJsonCounter(sys.argv[1]), 2048, 9, filler("zh"), shared_prefix=0.3)
prompt = tier.prompt(PromptKey(5, "2048x2", 3, 1, "measure"))
sys.stdout.buffer.write(b"".join(prompt.content) + prompt.sha256.encode())
"""


def test_the_same_key_gives_the_same_bytes_in_another_process(bpe: Any, bpe_file: Path) -> None:
    """Bytes do not depend on the process or on the seed of Python's own hashes."""
    tier = build_tier(bpe, 2048, 9, filler("zh"), shared_prefix=0.3)
    here = tier.prompt(PromptKey(5, "2048x2", 3, 1, "measure"))
    there = {
        subprocess.run(
            [sys.executable, "-c", _ELSEWHERE, str(bpe_file)],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(loadkit.__file__).parents[1])},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert there == {b"".join(here.content) + here.sha256.encode()}


def test_the_bytes_of_a_key_are_the_same_everywhere() -> None:
    """One prompt pinned: a change of these bytes breaks the comparison of runs with the same seed."""
    tier = build_tier(ByteCounter(), 64, 8, filler("en"))
    prompt = tier.prompt(PromptKey(1, "64x1", 1, 0, "measure"))
    assert b"".join(prompt.content) == rb"svqlphtwgtdxks\n\nThe harbour wakes before the town does.."


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(lambda t: t.strip()),
    st.integers(40, 700),
    st.sampled_from([0.0, 0.4]),
)
def test_any_filler_gives_valid_json_of_the_same_text(text: str, tokens: int, shared: float) -> None:
    """Whatever the filler holds, the joined pieces are the inside of a JSON string in plain UTF-8, and the count
    of characters, the count of tokens when exact, and the hash are those of the text a reader finds."""
    tier = build_tier(ByteCounter(), tokens, 7, Filler.of("own", text), shared_prefix=shared)
    prompt = tier.prompt(PromptKey(1, "c", 1, 0, "measure"))
    raw = b"".join(prompt.content)
    read = json.loads(b'"' + raw + b'"')
    assert raw == json.dumps(read, ensure_ascii=False)[1:-1].encode()
    assert len(read) == prompt.chars
    assert len(read.encode()) + 7 == prompt.tokens
    head = tier.heads.text(PromptKey(1, "c", 1, 0, "measure").number)
    rest = read[: tier.shared_chars] + read[tier.shared_chars + len(head) :]
    assert read[tier.shared_chars :].startswith(head)
    assert prompt.sha256 == prompt_sha256(head, hashlib.sha256(rest.encode()).hexdigest())


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_pieces_may_be_joined(one: str, two: str) -> None:
    """Escaping is by character, so the escape of a text is the join of the escapes of its parts."""
    assert escape(one) + escape(two) == escape(one + two)


def test_escapes_are_the_needed_ones_only() -> None:
    """Quotes, backslashes and control characters are escaped; everything else stays UTF-8."""
    assert escape('"\\\n\x00水🙂\u2028') == rb"\"\\\n\u0000" + "水🙂\u2028".encode()


def test_an_estimate_is_close_and_says_so(message: Message) -> None:
    """Without a tokenizer the text is the closest by the estimate, labelled and never called exact."""
    counter = EstimateCounter(1.37)
    for name in ("en", "zh"):
        for tier in build_tiers(counter, [128, 4096, 131072], 21, filler(name)):
            prompt = tier.prompt(keys(1)[0])
            assert (prompt.exact, prompt.tokens_source) == (False, "estimate")
            assert prompt.tokens == counter.count(message(prompt)) + 21
            assert abs(prompt.tokens - tier.tier_tokens) <= 1


@pytest.mark.parametrize("name", ["en", "zh"])
def test_a_remote_counter_measures_a_long_tier_with_few_short_calls(bpe: Any, name: str, message: Message) -> None:
    """A tier of 128K tokens is exact after a bounded number of calls, none longer than a few fillers."""
    remote = Remote(bpe)
    tier = build_tier(remote, 131072, 25, filler(name))
    assert (tier.exact, tier.source) == (True, "server")
    assert len(remote.lengths) < 150
    assert max(remote.lengths) < 5 * len(filler(name).text)
    assert bpe.count(message(tier.prompt(keys(3)[2]))) + 25 == 131072


def test_counting_does_not_grow_with_the_tier() -> None:
    """A tier sixteen times as long is built with the same number of calls: nothing is counted again and again."""
    calls = []
    for tokens in (65_536, 1_048_576):
        remote = Remote(ByteCounter(), max_chars=60_000)
        build_tier(remote, tokens, 0, filler("en"))
        calls.append(len(remote.lengths))
    assert calls[1] <= calls[0] + 8


def test_an_uneven_tokenizer_is_corrected_by_the_whole_count(message: Message) -> None:
    """Where repetitions do not cost the same, a local counter's count of the whole text sets the length right;
    a remote one cannot, and the tier is not called exact."""
    counter = UnevenCounter()
    tier = build_tier(counter, 50_000, 0, filler("en"))
    assert tier.exact
    assert counter.count(message(tier.prompt(keys(1)[0]))) == 50_000
    assert not build_tier(Remote(counter, max_chars=30_000), 50_000, 0, filler("en")).exact


def test_a_shared_prefix_stands_in_front_and_is_the_fraction_asked_for(message: Message) -> None:
    """With a fraction F, F of the text (to a sentence) is the same in all prompts, and the head comes right after."""
    for fraction in (0.25, 0.75):
        tier = build_tier(ByteCounter(), 20_000, 10, filler("en"), shared_prefix=fraction)
        one, two = (message(tier.prompt(key)) for key in keys(2))
        same = next(i for i, (a, b) in enumerate(zip(one, two, strict=True)) if a != b)
        assert tier.shared_chars <= same < tier.shared_chars + 14
        assert one[: tier.shared_chars].endswith((".\n\n", '"\n\n'))
        assert abs(tier.shared_chars / len(one) - fraction) < 0.03


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 7, float("nan")])
def test_a_fraction_out_of_range_is_refused(fraction: float) -> None:
    """The shared prefix leaves room for the head: 0 to below 1."""
    with pytest.raises(ConfigError, match="fraction"):
        build_tier(ByteCounter(), 1024, 0, filler("en"), shared_prefix=fraction)


def test_splicing_counts_nothing_and_copies_no_body() -> None:
    """A prompt of 4 MB shares the one body and is made without the counter, in well under a millisecond."""
    for shared in (0.0, 0.5):
        tier = build_tier(ByteCounter(), 4_000_000, 0, filler("en"), shared_prefix=shared)
        wanted = keys(200)
        started = time.process_time()
        prompts = [tier.prompt(key) for key in wanted]
        assert (time.process_time() - started) / len(wanted) < 0.001
        for piece in (prompts[0].content[0], prompts[0].content[-1]):
            if len(piece) > 1000:
                assert (piece.obj if isinstance(piece, memoryview) else piece) is tier.body
        assert sum(map(len, prompts[0].content)) >= 4_000_000
