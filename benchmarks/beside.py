"""Light streams, and users that send long prompts beside them; `long_prompts.py` makes a table of it."""

import gc
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

import gevent
import httpx
import psutil

from loadkit.call.ask import Ask
from loadkit.call.choose import open_transport
from loadkit.call.request import Call, Caller
from loadkit.call.retry import NO_RETRY, RetryBudget
from loadkit.plan.endpoint import Endpoint
from loadkit.prompt.prompt import Prompt, PromptKey
from loadkit.prompt.tier import TierText
from loadkit.record.names import Outcome
from loadkit.record.record import Record

LIGHT, LONG = 32, 4
LIGHT_TOKENS, LONG_TOKENS = 64, 1
ITL_MS = 20


@dataclass(slots=True)
class Stretch:
    """What came of one stretch. `sending`: ns from the building of a long prompt to its last byte; other times ms."""

    light: list[Record] = field(default_factory=list)
    sending: list[tuple[int, int]] = field(default_factory=list)
    upload: list[float] = field(default_factory=list)
    before_t0: list[float] = field(default_factory=list)
    splice: list[float] = field(default_factory=list)
    rss: tuple[float, float] = (0.0, 0.0)

    def sent(self, built_ns: int, t0_ns: int, sent_ns: int) -> None:
        """A long prompt is on its way as a whole."""
        self.sending.append((built_ns, sent_ns))
        self.before_t0.append((t0_ns - built_ns) / 1e6)
        self.upload.append((sent_ns - t0_ns) / 1e6)


@dataclass(slots=True)
class Bench:
    """What all users share: whom to ask, and the prompts."""

    endpoint: Endpoint
    light: TierText
    long: TierText
    ids: Iterator[int] = field(default_factory=count)

    def caller(self, tokens: int) -> Caller:
        """One user over the transport of loadkit."""
        return Caller(
            ask=Ask(self.endpoint, max_tokens=tokens),
            transport=open_transport(self.endpoint.base_url, {}),
            budget=RetryBudget(),
            rng=random.Random(0),
            policy=NO_RETRY,
        )

    def next_call(self, text: TierText, took: list[float]) -> Call:
        """A request with a prompt of its own; `took` is told the ms that splicing it takes."""
        number = next(self.ids)
        key = PromptKey(0, str(text.tier_tokens), number, 0, "measure")

        def prompt() -> Prompt:
            started = time.perf_counter_ns()
            spliced = text.prompt(key)
            took.append((time.perf_counter_ns() - started) / 1e6)
            return spliced

        return Call(prompt, {"request_id": f"bench-{os.getpid()}-{number}"})


def answered(record: Record) -> Record:
    """The record of a request that went well; anything else ends the benchmark."""
    if record.outcome != Outcome.OK:
        raise SystemExit(f"a request ended as {record.outcome}: {record.error_message}")
    return record


def read_light(bench: Bench, slot: int, until: float, stretch: Stretch) -> None:
    """One light stream after another."""
    gevent.sleep(slot * ITL_MS / LIGHT / 1000)  # else all tokens would come at the same instant
    caller = bench.caller(LIGHT_TOKENS)
    while time.perf_counter() < until:
        stretch.light.append(answered(caller.run(bench.next_call(bench.light, []))))
    caller.transport.close()


def send_spliced(bench: Bench, until: float, stretch: Stretch) -> None:
    """One long prompt after another, as a run sends them."""
    caller = bench.caller(LONG_TOKENS)
    while time.perf_counter() < until:
        record = answered(caller.run(bench.next_call(bench.long, stretch.splice)))
        assert record.start_ms is not None
        assert record.build_ms is not None
        assert record.sent_ms is not None
        built, sent = record.start_ms - record.build_ms, record.start_ms + record.sent_ms
        stretch.sent(*(round(at * 1e6) for at in (built, record.start_ms, sent)))
    caller.transport.close()


def send_stock(bench: Bench, until: float, stretch: Stretch) -> None:
    """One long prompt after another, as httpx users send them."""
    pieces = bench.long.prompt(PromptKey(0, "stock", next(bench.ids), 0, "measure")).content
    text = json.loads(b"".join((b'"', *pieces, b'"')))
    body = {"model": bench.endpoint.model, "max_tokens": LONG_TOKENS, "stream": True}
    with httpx.Client(trust_env=False, timeout=60) as client:
        while time.perf_counter() < until:
            stamps: dict[str, int] = {}
            built = time.perf_counter_ns()
            with client.stream(
                "POST",
                f"{bench.endpoint.base_url}/chat/completions",
                json={**body, "messages": [{"role": "user", "content": text}]},
                extensions={"trace": lambda name, _, told=stamps: told.update({name: time.perf_counter_ns()})},
            ) as answer:
                answer.raise_for_status()
                for _ in answer.iter_raw():
                    pass
            t0, sent = (stamps[f"http11.send_request_{at}"] for at in ("headers.started", "body.complete"))
            stretch.sent(built, t0, sent)


def measure(bench: Bench, seconds: float, send: Callable[[Bench, float, Stretch], None] | None) -> Stretch:
    """Light streams for so long, and the long prompts beside them. The collector waits, as it does in a run."""
    stretch, before = Stretch(), psutil.Process().memory_info().rss / 1e6
    until = time.perf_counter() + seconds
    gc.collect()
    gc.disable()
    users = [gevent.spawn(read_light, bench, slot, until, stretch) for slot in range(LIGHT)]
    if send is not None:
        users += [gevent.spawn_later(0.1 * (1 + user), send, bench, until, stretch) for user in range(LONG)]
    gevent.joinall(users, raise_error=True)
    gc.enable()
    stretch.rss = (before, psutil.Process().memory_info().rss / 1e6)
    return stretch
