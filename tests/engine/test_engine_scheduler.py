"""Who computes next, with a model of the test's own and no thread."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadkit.engine.attention import Cache
from loadkit.engine.config import ModelConfig
from loadkit.engine.errors import ApiError
from loadkit.engine.generation import Finished, Generation, Sampling
from loadkit.engine.metrics import Metrics
from loadkit.engine.model import CHUNK
from loadkit.engine.pace import FIRST, NOTCH, RETRY, STALE, STRETCH, Pace
from loadkit.engine.prefix import SHORTEST, PrefixCache
from loadkit.engine.scheduler import Scheduler

EOS = 9
CONFIG = ModelConfig("llama", 2, 8, 2, 1, 4, 8, 12, 4096, 1e4, 1e-5, False, False)


class ScriptedModel:
    """Logs its calls; the next token is always the last one plus 1, so an answer counts up to EOS."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.broken = False

    def new_cache(self, capacity):
        return SimpleNamespace(length=0, capacity=capacity)

    def extend(self, tokens, cache):
        if self.broken:
            raise MemoryError("no room for a cache")
        self.calls.append(("prefill", len(tokens)))
        cache.length += len(tokens)
        return np.array([[float(tokens[-1])]])

    def logits(self, hidden):
        return np.stack([self._after(int(row[0])) for row in hidden])

    def decode(self, tokens, caches):
        self.calls.append(("decode", len(tokens)))
        for cache in caches:
            cache.length += 1
            assert cache.length <= cache.capacity
        return np.stack([self._after(token) for token in tokens])

    def mixed(self, tokens, caches, chunk, cache):
        hidden = self.extend(chunk, cache)
        return self.decode(tokens, caches), hidden

    def _after(self, token):
        logits = np.zeros(12, np.float32)
        logits[(token + 1) % 12] = 5
        logits[0] = 1
        return logits


class TimedModel(ScriptedModel):
    """A decode step takes 10 ms, a chunk 2 ms and 0.45 ms per token."""

    time_s = 0.0

    def extend(self, tokens, cache):
        self.time_s += 0.002 + 0.00045 * len(tokens)
        return super().extend(tokens, cache)

    def decode(self, tokens, caches):
        self.time_s += 0.01
        return super().decode(tokens, caches)


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
def make(model):
    """A scheduler on the scripted model whose clock ticks one second per look."""

    def build(slots: int = 2, queue: int = 2) -> Scheduler:
        ticks = iter(range(10**6))
        return Scheduler(
            model,
            slots=slots,
            queue=queue,
            metrics=Metrics(),
            prefixes=PrefixCache(CONFIG, 0),
            stops=[EOS],
            now=lambda: float(next(ticks)),
        )

    return build


def ask(prompt: int = 3, last: int = 0, alive=lambda: True, **sampling) -> Generation:
    tokens = [0] * (prompt - 1) + [last]
    return Generation(tokens, Sampling(**({"max_tokens": 4} | sampling)), alive, Emitted())


class Emitted(list):
    """What a generation has handed out."""

    __call__ = list.append


def drain(generation: Generation) -> list[int | Finished]:
    return list(generation.emit)


def run(scheduler: Scheduler, rounds: int = 100) -> None:
    for _ in range(rounds):
        scheduler.step()


def test_an_answer_ends_at_its_length(make):
    """max_tokens tokens come, then the reason; the slot is free."""
    scheduler, generation = make(), ask()
    scheduler.submit(generation)
    run(scheduler)
    assert drain(generation) == [1, 2, 3, 4, Finished("length")]
    assert (scheduler.running, scheduler.waiting) == (0, 0)


def test_an_answer_ends_at_a_stop_token(make):
    """The stop token ends the answer, is not handed out and not counted."""
    scheduler, generation = make(), ask(last=6)
    scheduler.submit(generation)
    run(scheduler)
    assert drain(generation) == [7, 8, Finished("stop")]
    assert generation.output_tokens == 2


@pytest.mark.parametrize("sampling", [{"ignore_eos": True}, {"min_tokens": 4}])
def test_a_stop_token_can_be_ruled_out(make, sampling):
    """With ignore_eos, or before min_tokens, the next likeliest token is taken instead."""
    scheduler, generation = make(), ask(last=7, **sampling)
    scheduler.submit(generation)
    run(scheduler)
    assert drain(generation) == [8, 0, 1, 2, Finished("length")]


def test_one_prefill_at_a_time_first_come_first_served(make, model):
    """A second prompt starts only when the first is through, and waits for a slot when there is none."""
    scheduler = make(slots=2, queue=2)
    asked = [ask(prompt=CHUNK, last=number, max_tokens=60, ignore_eos=True) for number in range(4)]
    for generation in asked:
        scheduler.submit(generation)
    scheduler.step()
    assert [generation.started_s is not None for generation in asked] == [True, False, False, False]
    run(scheduler, 300)
    firsts = [generation.first_token_s for generation in asked]
    assert firsts == sorted(firsts)
    for earlier, later in pairwise(asked):
        assert later.started_s > earlier.first_token_s
    assert max(size for kind, size in model.calls if kind == "decode") == 2


def test_a_long_prompt_does_not_stop_the_others():
    """While somebody decodes, a token comes after each chunk, and no chunk takes longer than it may in the end."""
    model = TimedModel()
    scheduler = Scheduler(
        model, slots=2, queue=2, metrics=Metrics(), prefixes=PrefixCache(CONFIG, 0), now=lambda: model.time_s
    )
    scheduler.submit(ask(max_tokens=400, ignore_eos=True))
    run(scheduler, 3)
    scheduler.submit(ask(prompt=1000))
    model.calls.clear()
    run(scheduler, 30)
    assert [kind for kind, _ in model.calls] == ["prefill", "decode"] * 30
    assert scheduler.running == 2
    sizes = [size for kind, size in model.calls if kind == "prefill"]
    assert sizes[0] == FIRST
    # A pass with 16 tokens takes 19.2 ms, one with 20 would take 21; two decode steps are 20.
    assert set(sizes[5:]) == {16}
    run(scheduler, 100)
    assert ("decode", 2) in model.calls


@settings(max_examples=50, deadline=None)
@given(
    fixed=st.floats(0.001, 0.02), price=st.floats(1e-5, 1e-3), step=st.floats(0.005, 0.1), jump=st.integers(8, 64),
    extra=st.floats(0, 0.1),
)  # fmt: skip
def test_a_chunk_stays_within_its_allowance(fixed, price, step, jump, extra):
    """Whatever a chunk's constant, its price per token and a jump where products are done in another way: it comes to
    the largest size that keeps the allowance, and at most one chunk in a hundred is longer, unless the smallest is."""

    def cost(tokens: int) -> float:
        return fixed + price * tokens + (extra if tokens > jump else 0)

    pace = Pace(CHUNK)
    assert pace.blind
    pace.decoded(step)
    assert not pace.blind
    sizes = []
    for _ in range(200 + 2 * RETRY):
        sizes.append(pace.size)
        pace.read(pace.size, cost(pace.size))
    allowed = STRETCH * step
    settled = sizes[200:]
    long = [size for size in settled if cost(size) > allowed and size > NOTCH]
    assert len(long) <= len(settled) / 100
    usual = sorted(settled)[len(settled) // 2]
    assert cost(usual) <= allowed or usual == NOTCH
    assert cost(usual + NOTCH) > 0.9 * allowed or usual == CHUNK or cost(usual) >= 0.9 * allowed


def test_a_prompt_alone_runs_in_large_chunks(make, model):
    """With nobody decoding a chunk is as large as the model takes."""
    scheduler = make()
    scheduler.submit(ask(prompt=2 * CHUNK + 5, max_tokens=1))
    run(scheduler)
    assert model.calls == [("prefill", CHUNK), ("prefill", CHUNK), ("prefill", 5)]


def test_a_full_queue_refuses_with_a_wait(make):
    """Slots plus queue is the limit; the refusal is 503 with whole seconds from 1 to 60."""
    scheduler = make(slots=1, queue=1)
    scheduler.submit(ask())
    scheduler.submit(ask())
    with pytest.raises(ApiError) as caught:
        scheduler.submit(ask())
    assert caught.value.status == 503
    assert caught.value.code == "overloaded"
    assert 1 <= caught.value.retry_after_s <= 60
    run(scheduler)
    scheduler.submit(ask())
    assert scheduler.waiting == 1


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_who_leaves_frees_the_slot(make, rounds):
    """A client that leaves while waiting, in prefill or in decode ends as abort, and the next one runs."""
    scheduler = make(slots=1)
    present = [True]
    leaver = ask(prompt=CHUNK + 1, max_tokens=50, alive=lambda: present[0])
    other = ask()
    scheduler.submit(leaver)
    scheduler.submit(other)
    run(scheduler, rounds)
    present[0] = False
    run(scheduler)
    assert drain(leaver)[-1] == Finished("abort")
    assert leaver.cache is None
    assert drain(other)[-1] == Finished("length")


def test_a_failure_ends_its_request_and_not_the_engine(make, model, capsys):
    """When the model raises, that generation ends with an error that names it, and the next is served."""
    scheduler, failed, after = make(), ask(), ask()
    model.broken = True
    scheduler.submit(failed)
    run(scheduler, 3)
    model.broken = False
    scheduler.submit(after)
    run(scheduler)
    assert drain(failed) == [Finished("error", "MemoryError in the engine")]
    assert drain(after)[-1] == Finished("length")
    assert "no room for a cache" in capsys.readouterr().err


def test_timings_charge_the_first_token_to_the_prompt(make):
    """queue, prompt and prediction times add up, and the price of a token leaves the first one out."""
    generation = ask()
    generation.tokenize_s = 0.04
    make().submit(generation)
    generation.submitted_s, generation.started_s = 10.0, 12.5
    generation.first_token_s, generation.last_token_s, generation.output_tokens = 13.0, 14.5, 4
    timings = generation.timings()
    assert timings["tokenize_ms"] == 40
    assert timings["queue_ms"] == 2500
    assert timings["prompt_ms"] == 500
    assert timings["predicted_ms"] == 1500
    assert timings["predicted_per_token_ms"] == 500
    assert (timings["prompt_per_token_ms"], timings["prompt_per_second"]) == (pytest.approx(500 / 3), 6)
    assert timings["predicted_per_second"] == 2
    assert (timings["prompt_n"], timings["predicted_n"], timings["cache_n"]) == (3, 4, 0)


def test_temperature_draws_from_the_softmax():
    """Draws at temperature 1 follow the softmax, a seed repeats them, and a suppressed token never comes."""
    logits = np.log(np.array([0.5, 0.25, 0.2, 0.05], np.float32))
    none = np.array([], np.intp)

    def draws(seed: int, suppressed: np.ndarray) -> list[int]:
        generation = ask(temperature=1.0, seed=seed)
        return [generation.next_token(logits.copy(), none, suppressed) for _ in range(4000)]

    shares = np.bincount(draws(1, none), minlength=4) / 4000
    np.testing.assert_allclose(shares, [0.5, 0.25, 0.2, 0.05], atol=0.04)
    assert draws(1, none)[:50] == draws(1, none)[:50] != draws(2, none)[:50]
    assert 0 not in draws(1, np.array([0]))


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-30, 9e-5])
def test_a_tiny_temperature_takes_the_likeliest(temperature):
    """Dividing by it would make every logit infinite, and the first token would win."""
    logits, none = np.array([1.0, -2.0, 3.0], np.float32), np.array([], np.intp)
    assert ask(temperature=temperature).next_token(logits, none, none) == 2


def test_metrics_count_what_happened(make):
    """Counters, reasons and histograms after one finished, one refused and one waiting request, by value."""
    ticks = iter([0.0, 0.02, 0.3, 0.3, 0.4, 0.4, 0.4])
    metrics = Metrics()
    scheduler = Scheduler(
        ScriptedModel(), slots=1, queue=0, metrics=metrics, prefixes=PrefixCache(CONFIG, 0), now=lambda: next(ticks)
    )
    scheduler.submit(ask(prompt=7, max_tokens=2))
    with pytest.raises(ApiError):
        scheduler.submit(ask())
    run(scheduler, 3)
    lines = dict(
        line.rsplit(" ", 1)
        for line in metrics.render(running=1, waiting=2, kv_usage=0.25).splitlines()
        if line[0] != "#"
    )
    name = "loadkit_engine_"
    assert lines[name + "num_requests_running"] == "1"
    assert lines[name + "num_requests_waiting"] == "2"
    assert lines[name + "kv_cache_usage_perc"] == "0.25"
    assert lines[name + "prompt_tokens_total"] == "7"
    assert lines[name + "prefix_cache_queries_total"] == "0"
    assert lines[name + "inter_token_latency_seconds_count"] == "1"
    assert float(lines[name + "inter_token_latency_seconds_sum"]) == pytest.approx(0.1)
    assert lines[name + "generation_tokens_total"] == "2"
    assert lines[name + "requests_rejected_total"] == "1"
    assert lines[name + 'request_success_total{finished_reason="length"}'] == "1"
    assert lines[name + 'request_success_total{finished_reason="stop"}'] == "0"
    assert float(lines[name + "time_to_first_token_seconds_sum"]) == pytest.approx(0.3)
    assert float(lines[name + "request_queue_time_seconds_sum"]) == pytest.approx(0.02)
    assert float(lines[name + "request_decode_time_seconds_sum"]) == pytest.approx(0.1)
    assert lines[name + 'time_to_first_token_seconds_bucket{le="0.25"}'] == "0"
    assert lines[name + 'time_to_first_token_seconds_bucket{le="0.5"}'] == "1"
    assert lines[name + 'time_to_first_token_seconds_bucket{le="+Inf"}'] == "1"


def keyed(config: ModelConfig, tokens: list[int], capacity: int) -> Cache:
    """A cache whose every value is its token."""
    cache = Cache(config, capacity)
    cache.keys[:, :, : len(tokens)] = np.array(tokens)[:, None]
    cache.values[:, :, : len(tokens)] = -np.array(tokens)[:, None]
    cache.length = len(tokens)
    return cache


@settings(max_examples=50, deadline=None)
@given(
    prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), min_size=1, max_size=8),
    asked=st.lists(st.integers(0, 1), min_size=1, max_size=6),
)
def test_the_prefix_cache_gives_the_longest_beginning(prompts, asked):
    """What comes back is the longest beginning that a kept prompt shares, one token short of the whole prompt, with
    its keys and values; nothing below the shortest worth keeping."""
    kept = [[token for token in prompt for _ in range(8)] for prompt in prompts]
    wanted = [token for token in asked for _ in range(8)]
    prefixes = PrefixCache(CONFIG, 10**7)
    for prompt in kept:
        prefixes.keep(prompt, keyed(CONFIG, prompt, 60))
    cache = Cache(CONFIG, 60)
    found = prefixes.fill(wanted, cache)
    shared = [shared_beginning(prompt, wanted[:-1]) for prompt in kept if len(prompt) >= SHORTEST]
    best = max(shared, default=0)
    assert found == (best if best >= SHORTEST else 0)
    assert cache.length == found
    np.testing.assert_array_equal(cache.keys[1, 0, :found, 2], wanted[:found])
    np.testing.assert_array_equal(cache.values[0, 0, :found, 0], [-token for token in wanted[:found]])


def shared_beginning(one: list[int], other: list[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def test_the_prefix_cache_is_bounded():
    """The prompt that was used longest ago goes when there is no room; one that is too large is not kept."""
    size = CONFIG.kv_bytes(20)
    prefixes = PrefixCache(CONFIG, 2 * size)
    one, two, three = ([token] * 20 for token in (1, 2, 3))
    for prompt in (one, two):
        prefixes.keep(prompt, keyed(CONFIG, prompt, 20))
    assert prefixes.bytes == 2 * size
    assert prefixes.fill([*one, 5], Cache(CONFIG, 30)) == 20
    prefixes.keep(three, keyed(CONFIG, three, 20))
    assert prefixes.bytes == 2 * size
    found = [prefixes.fill([*prompt, 5], Cache(CONFIG, 30)) for prompt in (one, two, three)]
    assert found == [20, 0, 20]
    prefixes.keep([7] * 41, keyed(CONFIG, [7] * 41, 41))
    assert prefixes.fill([7] * 42, Cache(CONFIG, 50)) == 0


def test_the_decode_step_is_timed_again():
    """After some passes with a chunk a decode step alone is due, since there may be other streams by then."""
    pace = Pace(CHUNK)
    pace.decoded(0.01)
    for _ in range(STALE - 1):
        pace.read(pace.size, 0.01)
    assert not pace.blind
    pace.read(pace.size, 0.01)
    assert pace.blind
    pace.decoded(0.01)
    assert not pace.blind


def test_one_slow_pass_changes_nothing():
    """A pass that took long once does not make chunks smaller; twice in a row does."""
    pace = Pace(CHUNK)
    pace.decoded(0.01)
    pace.read(pace.size, 0.005)
    size = pace.size
    for seconds in (0.09, 0.019, 0.09, 0.019):
        pace.read(size, seconds)
        assert pace.size == size
    pace.read(size, 0.021)
    pace.read(size, 0.021)
    assert pace.size == size - NOTCH
