"""Who computes next, with a model of the test's own and no thread."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from loadkit.engine.errors import ApiError
from loadkit.engine.generation import Finished, Generation, Sampling
from loadkit.engine.metrics import Metrics
from loadkit.engine.model import CHUNK
from loadkit.engine.scheduler import SHARED_CHUNK, Scheduler

EOS = 9


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

    def _after(self, token):
        logits = np.zeros(12, np.float32)
        logits[(token + 1) % 12] = 5
        logits[0] = 1
        return logits


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
def make(model):
    """A scheduler on the scripted model whose clock ticks one second per look."""

    def build(slots: int = 2, queue: int = 2) -> Scheduler:
        ticks = iter(range(10**6))
        return Scheduler(
            model, slots=slots, queue=queue, metrics=Metrics(), stops=[EOS], now=lambda: float(next(ticks))
        )

    return build


def ask(prompt: int = 3, last: int = 0, alive=lambda: True, **sampling) -> Generation:
    return Generation([0] * (prompt - 1) + [last], Sampling(**({"max_tokens": 4} | sampling)), alive)


def drain(generation: Generation) -> list[int | Finished]:
    events = []
    while not generation.events.empty():
        events.append(generation.events.get())
    return events


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
    asked = [ask(prompt=2 * CHUNK, last=number, max_tokens=60, ignore_eos=True) for number in range(4)]
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


def test_a_long_prompt_does_not_stop_the_others(make, model):
    """While somebody decodes, prompts advance in small chunks with a token for everybody after each."""
    scheduler = make()
    scheduler.submit(ask(max_tokens=400, ignore_eos=True))
    scheduler.step()
    scheduler.submit(ask(prompt=1000))
    model.calls.clear()
    run(scheduler, 15)
    assert model.calls == [("prefill", SHARED_CHUNK), ("decode", 1)] * 15
    run(scheduler)
    assert ("decode", 2) in model.calls


def test_a_prompt_alone_runs_in_large_chunks(make, model):
    """With nobody decoding a chunk is as large as the model takes."""
    scheduler = make()
    scheduler.submit(ask(prompt=2 * CHUNK + 5, max_tokens=1))
    run(scheduler)
    assert model.calls == [("prefill", CHUNK), ("prefill", CHUNK), ("prefill", 5)]


def test_a_full_queue_refuses_with_a_wait(make):
    """Slots plus queue is the limit; the refusal is 429 with whole seconds from 1 to 60."""
    scheduler = make(slots=1, queue=1)
    scheduler.submit(ask())
    scheduler.submit(ask())
    with pytest.raises(ApiError) as caught:
        scheduler.submit(ask())
    assert caught.value.status == 429
    assert caught.value.code == "rate_limit_exceeded"
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
    make().submit(generation)
    generation.submitted_s, generation.started_s = 10.0, 12.5
    generation.first_token_s, generation.last_token_s, generation.output_tokens = 13.0, 14.5, 4
    timings = generation.timings()
    assert timings["queue_ms"] == 2500
    assert timings["prompt_ms"] == 500
    assert timings["predicted_ms"] == 1500
    assert timings["predicted_per_token_ms"] == 500
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
    ticks = iter([0.0, 0.02, 0.3, 0.4, 0.4])
    metrics = Metrics()
    scheduler = Scheduler(ScriptedModel(), slots=1, queue=0, metrics=metrics, now=lambda: next(ticks))
    scheduler.submit(ask(prompt=7, max_tokens=2))
    with pytest.raises(ApiError):
        scheduler.submit(ask())
    run(scheduler, 3)
    lines = dict(line.rsplit(" ", 1) for line in metrics.render(running=1, waiting=2).splitlines() if line[0] != "#")
    name = "loadkit_engine_"
    assert lines[name + "num_requests_running"] == "1"
    assert lines[name + "num_requests_waiting"] == "2"
    assert lines[name + "prompt_tokens_total"] == "7"
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
