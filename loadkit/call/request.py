"""One measured request: built, sent, read, tried again by the table, and turned into a record whatever happens."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, Protocol

from loadkit.call.ask import Ask, Fixed
from loadkit.call.attempt import Attempt, most_events, stopped
from loadkit.call.hub import rest
from loadkit.call.retry import Ending, RetryBudget, RetryPolicy, next_wait_s
from loadkit.call.transport import ClockNs, End, Transport, WireRequest
from loadkit.measure import timing
from loadkit.prompt.prompt import Prompt
from loadkit.prompt.token_ids import around
from loadkit.protocol import PROTOCOLS, Failure, fill
from loadkit.record.names import Flag, Outcome
from loadkit.record.record import Record
from loadkit.record.redact import Redactor

# Text of the server that goes into a record: it may hold our key, which a server or gateway echoed.
_SAID = ("error_code", "error_type", "response_id", "response_model", "fingerprint", "finish_reason")
_REMEMBERED = 64  # redacted texts


class Counter(Protocol):
    """Counts the streams in flight in this process."""

    def enter(self) -> int:
        """One more, from t0 on; returns the count with it included."""

    def leave(self) -> None:
        """One less, at the end of the attempt."""


class LagProbe(Protocol):
    """Watches how late the event loop is."""

    def max_since(self, start_ns: int) -> float | None:
        """Worst lateness (ms) since start_ns of perf_counter; None when nothing was observed."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `prompt` is called inside it, so that `build_ms` covers the building.

    `labels` are record fields as they stand: run_id, request_id, worker, cell, tier_tokens, concurrency, round, visit,
    phase, target_tokens, bos_tokens, overhead_tokens, queue_ms, tokenize_ms. `scheduled_ns` is the planned time on the
    clock of the caller; None in a closed loop.
    """

    prompt: Callable[[], Prompt]
    labels: Mapping[str, Any]
    scheduled_ns: int | None = None
    max_tokens: int | None = None  # other than the run's


def utc_now() -> datetime:
    """Wall clock, used only as a label and for Retry-After dates."""
    return datetime.now(UTC)


def sleep_s(seconds: float) -> None:
    """time.sleep, looked up when it is called: gevent may have replaced it since this was imported."""
    time.sleep(seconds)


@dataclass(slots=True, kw_only=True)
class Caller:
    """One user: a transport and the rules of the run. `run` is not reentrant, one user has one request at a time.

    `on_record` is called once for every request, also for one that is stopped by an exception such as GreenletExit.
    `on_first` is told the outcome of its first attempt as soon as that has ended. `sleep` waits between attempts; where
    it returns true there is no point in another one, and the request ends as it stands. `on_again` is told the id of a
    request and its attempts so far before it is tried again. `rest` lets other streams be
    read before a request is built and before its record is handed on.
    """

    ask: Ask
    transport: Transport
    budget: RetryBudget
    rng: random.Random
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    sleep: Callable[[float], bool | None] = sleep_s
    rest: Callable[[], None] = rest
    clock: ClockNs = time.perf_counter_ns
    wall: Callable[[], datetime] = utc_now
    encode: Callable[[Prompt], Prompt] | None = None  # to token ids
    counter: Counter | None = None
    probe: LagProbe | None = None
    redactor: Redactor | None = None
    on_record: Callable[[Record], None] | None = None
    on_first: Callable[[str | None], None] | None = None
    on_again: Callable[[str | None, list[dict[str, Any]]], None] | None = None
    fixed: Fixed = field(init=False, repr=False)
    _redacted: dict[str, str] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.redactor is None:
            self.redactor = Redactor([self.ask.key] if self.ask.key else [])
        self.fixed = Fixed(self.ask, self.redactor)

    def without_key(self, said: str) -> str:
        """A short text of the server, redacted. Most come again with every answer, so the last ones are remembered."""
        assert self.redactor is not None
        if said not in self._redacted:
            if len(self._redacted) >= _REMEMBERED:
                self._redacted.clear()
            self._redacted[said] = self.redactor.text(said)
        return self._redacted[said]

    def run(self, call: Call) -> Record:
        """Measure one request. Network faults are outcomes; what is raised is ours, after the record was handed on."""
        request = _Request(self, call)
        ended: BaseException | None = None
        try:
            try:
                request.measure()
            except BaseException as exc:
                request.abort(exc)
                raise
            self.rest()
        except BaseException as exc:  # noqa: BLE001 - raised below
            ended = exc
        try:
            if self.on_record is not None:
                self.on_record(request.record)
        except Exception:
            # What is raised to steer a user must not keep one alive that is being killed.
            if ended is None or isinstance(ended, Exception):
                raise
        if ended is not None:
            raise ended
        return request.record


class _Request:
    """A request on its way: the attempts so far, and the record of the last one."""

    def __init__(self, caller: Caller, call: Call) -> None:
        self._caller = caller
        self._call = call
        self._protocol = PROTOCOLS[caller.ask.endpoint.protocol]
        self._prompt: Prompt | None = None
        self._input_bytes: int | None = None
        self._build_ms: float | None = None
        self._tokenize_ms: float | None = None
        self._attempts: list[dict[str, Any]] = []
        self._first_ns: int | None = None  # t0 of the first attempt
        self._attempt: Attempt | None = None  # the one in progress
        self._timestamp: str | None = None
        self._inflight: int | None = None
        self.record = self._blank()

    def measure(self) -> None:
        """Build, then try until an attempt is the last."""
        caller = self._caller
        caller.rest()
        wire = self._build()
        timeouts = caller.fixed.timeouts(self.record.tier_tokens or 0)
        caller.budget.first_attempt()
        for number in count(1):
            self._attempt = Attempt(
                self._protocol, timeouts, caller.clock(), self._at_t0, most_events(self._max_tokens)
            )
            end = caller.transport.exchange(wire, self._attempt)
            failure = self._conclude(end)
            wait_s = self._next_wait_s(number, failure)
            if wait_s is None:
                return
            before = self.record.retry_wait_ms
            self._attempts[-1]["wait_ms"] = wait_s * 1e3
            self.record.retry_wait_ms = sum(attempt["wait_ms"] for attempt in self._attempts)
            if caller.sleep(wait_s):
                self._attempts[-1]["wait_ms"], self.record.retry_wait_ms = None, before
                return
            if caller.on_again is not None:
                caller.on_again(self.record.request_id, self._attempts)

    def abort(self, exc: BaseException) -> None:
        """Fill the record of a request that an exception ended, wherever it was."""
        detail = f"internal error: {type(exc).__name__}" if isinstance(exc, Exception) else "stopped by us"
        if self._attempt is not None:
            self._conclude(stopped(self._caller.clock, detail))
            return
        self.record.outcome = Outcome.ABORTED.value
        self.record.error_message = detail

    # -- before t0 ------------------------------------------------------------------------------------------------

    def _build(self) -> WireRequest:
        clock = self._caller.clock
        started = clock()
        self._prompt = self._call.prompt()
        head, tail = self._caller.fixed.body_around(self._max_tokens)
        if self._caller.encode is not None:
            text_ready = clock()
            self._prompt = self._caller.encode(self._prompt)
            self._tokenize_ms = timing.ms(text_ready, clock())
            head, tail = around((head, tail))
        wire = WireRequest(
            "POST",
            self._caller.fixed.url,
            self._caller.fixed.headers(self.record.request_id),
            (head, *self._prompt.content, tail),
        )
        self._input_bytes = wire.body_bytes
        self._build_ms = timing.ms(started, clock())
        self._tell_prompt(self.record)
        return wire

    @property
    def _max_tokens(self) -> int:
        return self._caller.ask.max_tokens if self._call.max_tokens is None else self._call.max_tokens

    def _blank(self) -> Record:
        """A record of what is known before an attempt."""
        ask = self._caller.ask
        record = Record(**self._call.labels)
        for name, text in self._caller.fixed.named.items():
            setattr(record, name, text)
        record.protocol = self._protocol.name
        record.transport, record.target = self._caller.transport.name, ask.target
        record.auth, record.proxied = ask.endpoint.auth, self._caller.transport.proxied
        record.max_tokens = self._max_tokens
        record.attempts = self._attempts
        self._tell_prompt(record)
        return record

    def _tell_prompt(self, record: Record) -> None:
        """What is known once the prompt is built."""
        prompt = self._prompt
        record.input_bytes, record.build_ms = self._input_bytes, self._build_ms
        if self._tokenize_ms is not None:
            record.tokenize_ms = self._tokenize_ms
        if prompt is not None:
            record.input_chars, record.prompt_sha256 = prompt.chars, prompt.sha256
            if record.target_tokens is None:
                record.target_tokens = prompt.tokens
            if prompt.tokens is not None:  # until the answer states its own
                record.prompt_tokens = prompt.tokens
                record.prompt_tokens_source = "tokenizer" if prompt.exact else "estimate"

    def _at_t0(self) -> None:
        self._timestamp = self._caller.wall().isoformat(timespec="milliseconds")
        if self._inflight is None and self._caller.counter is not None:
            self._inflight = self._caller.counter.enter()

    # -- after the end --------------------------------------------------------------------------------------------

    def _conclude(self, end: End) -> Failure | None:
        """Turn the attempt in progress into the record and a line of `attempts`."""
        attempt, caller = self._attempt, self._caller
        assert attempt is not None
        self._attempt = None
        marks = attempt.marks
        t0 = marks.started if marks.t0 is None else marks.t0
        if self._first_ns is None:
            self._first_ns = t0
        if self._attempts:
            self.record = self._blank()
        record = self.record
        self._before_fill(record, attempt, t0)
        failure = fill(
            record,
            attempt.parser,
            t0_ns=t0,
            status=marks.status,
            headers=attempt.headers,
            end=attempt.ending(end),
            ignore_eos=caller.ask.ignore_eos,
            believe_usage=not caller.ask.endpoint.word_usage,
            now=caller.wall().timestamp(),
        )
        self._after_fill(record, attempt, t0)
        self._attempts.append(
            {
                "outcome": record.outcome,
                "http_status": record.http_status,
                "start_ms": timing.ms(self._first_ns, t0),
                "end_ms": timing.ms(self._first_ns, end.at_ns),
                "wait_ms": None,
            }
        )
        if caller.on_first is not None and len(self._attempts) == 1:
            caller.on_first(record.outcome)
        return failure

    def _before_fill(self, record: Record, attempt: Attempt, t0: int) -> None:
        """What only the call knows; `fill` derives from some of it."""
        marks, caller = attempt.marks, self._caller
        record.cold = attempt.connect_ns is not None
        if attempt.connect_ns is not None:
            record.connect_ms = attempt.connect_ns / 1e6
            record.flags = [Flag.COLD.value]
        if self._call.scheduled_ns is not None:
            record.scheduled_ms = min(0.0, timing.ms(t0, self._call.scheduled_ns))
        if marks.t0 is not None:
            record.timestamp = self._timestamp
            record.start_ms = t0 / 1e6
            record.sent_ms = None if marks.sent is None else timing.ms(t0, marks.sent)
            record.headers_ms = None if marks.head is None else timing.ms(t0, marks.head)
        if self._inflight is not None and caller.counter is not None:
            record.inflight_at_send, self._inflight = self._inflight, None
            caller.counter.leave()
        if caller.probe is not None:
            record.hub_lag_max_ms = caller.probe.max_since(marks.started)

    def _after_fill(self, record: Record, attempt: Attempt, t0: int) -> None:
        assert self._first_ns is not None
        if attempt.marks.t0 is None:
            record.done_ms = None  # without a t0 there is nothing to count from
        if record.error_message is not None:
            coding = f"content-encoding is {attempt.compression}, not identity; " if attempt.compression else ""
            assert self._caller.redactor is not None
            record.error_message = self._caller.redactor.error(coding + record.error_message)
        for name in _SAID:
            said = getattr(record, name)
            if said is not None:
                setattr(record, name, self._caller.without_key(said))
        if record.ttft_ms is not None:
            record.ttft_first_attempt_ms = record.ttft_ms + timing.ms(self._first_ns, t0)
        if self._attempts:
            record.retry_wait_ms = sum(attempt["wait_ms"] for attempt in self._attempts)

    def _next_wait_s(self, number: int, failure: Failure | None) -> float | None:
        if failure is None:
            return None
        from_server = self.record.http_status is not None
        ending = Ending(
            failure.outcome,
            tokens=bool(self.record.token_events),
            final=from_server and not failure.retryable,
            retry_after_s=failure.retry_after_s,
        )
        return next_wait_s(self._caller.policy, self._caller.budget, self._caller.rng, number, ending)
