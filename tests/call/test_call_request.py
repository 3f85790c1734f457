"""The measured request on a scripted transport and a fake clock: marks, retries, and a record whatever happens."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from loadkit.call.request import Call
from loadkit.call.retry import RetryBudget, RetryPolicy
from loadkit.call.transport import End
from loadkit.plan.endpoint import Timeouts
from loadkit.record.names import Outcome

MS = 1_000_000
SSE = [("Content-Type", "text/event-stream")]
BASE = "http://h.test/v1"


def token(text):
    """One content chunk."""
    return b'data: {"id":"c1","model":"m1","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text


STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
STREAM = [(100, token(b"a")), (150, token(b"b")), (151, STOP + USAGE + DONE)]


class Clock:
    """A clock that stands still unless moved; `sleep` moves it and writes down how far."""

    def __init__(self):
        self.now = 5_000 * MS
        self.waits = []

    def __call__(self):
        return self.now

    def ahead(self, ms):
        self.now += int(ms * MS)

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.ahead(seconds * 1e3)


class Scripted:
    """A transport that tells its sink scripted exchanges: (status, headers, [(ms after t0, body bytes)], end)."""

    name = "scripted"
    proxied = False

    def __init__(self, clock, *exchanges, connect_ms=None):
        self.clock = clock
        self.exchanges = list(exchanges)
        self.connect_ms = connect_ms
        self.requests = []
        self.deadlines = []

    def exchange(self, request, sink):
        self.requests.append(request)
        step = self.exchanges.pop(0)
        if isinstance(step, End):
            sink.connecting(self.clock())
            self.deadlines.append(sink.deadline(self.clock()))
            return step
        if self.connect_ms is not None:
            sink.connecting(self.clock())
            start = self.clock()
            self.clock.ahead(self.connect_ms)
            sink.connected(start, self.clock())
        status, headers, reads, how = step
        t0 = self.clock()
        sink.sending(t0)
        self.clock.ahead(2)
        sink.sent(self.clock())
        self.clock.ahead(1)
        sink.head(self.clock(), status, headers)
        for at_ms, data in reads:
            self.clock.now = t0 + at_ms * MS
            if isinstance(data, BaseException):
                raise data
            if sink.read(self.clock(), data):
                return End("stopped", None, "", self.clock())
        return End(how, None, "", self.clock())

    def close(self):
        pass


def refusal(status, body=b'{"error":{"message":"busy"}}', headers=(), at_ms=120):
    """An exchange that ends with an error answer."""
    return (status, [("Content-Type", "application/json"), *headers], [(at_ms, body)], "eof")


@pytest.fixture
def clock():
    """A fake clock."""
    return Clock()


def labels(**more):
    """Labels as a swarm gives them."""
    return {"run_id": "run", "request_id": "r1", "cell": "128x1", "tier_tokens": 128, "phase": "measure", **more}


def test_marks_count_from_t0(clock, caller, prompt):
    """Building and connecting are before t0 and apart; everything after is ms from t0."""

    def slow_prompt():
        clock.ahead(2000)
        return prompt

    transport = Scripted(clock, (200, SSE, STREAM, "eof"), connect_ms=7)
    planned = clock.now - 300 * MS
    made = caller(BASE, transport, clock=clock, ask={"max_tokens": 2})
    record = made.run(Call(slow_prompt, labels(queue_ms=4.0), scheduled_ns=planned))
    assert (record.outcome, record.build_ms, record.connect_ms, record.queue_ms) == ("ok", 2000.0, 7.0, 4.0)
    assert (record.sent_ms, record.headers_ms, record.first_byte_ms) == (2.0, 3.0, 100.0)
    assert (record.ttft_ms, record.ttft_net_ms, record.last_token_ms, record.e2e_ms) == (100.0, 98.0, 150.0, 150.0)
    assert (record.scheduled_ms, record.ttft_sched_ms) == (-2307.0, 2407.0)
    assert (record.tpot_ms, record.done_ms, record.finish_reason) == (50.0, 151.0, "stop")
    assert (record.cold, record.flags) == (True, ["cold", "hit_max_tokens"])


def test_labels_and_facts(clock, caller, prompt):
    """The record says what was asked, of whom, and of what prompt; the text itself is nowhere."""
    made = caller(BASE, Scripted(clock, (200, SSE, STREAM, "eof")), clock=clock)
    record = made.run(Call(lambda: prompt, labels(), max_tokens=5))
    assert (record.run_id, record.request_id, record.cell, record.phase) == ("run", "r1", "128x1", "measure")
    assert (record.endpoint, record.model, record.protocol, record.transport) == (
        "lab",
        "m1",
        "openai-chat",
        "scripted",
    )
    assert (record.host, record.path, record.target) == ("h.test", "/v1/chat/completions", "endpoint")
    assert (record.input_chars, record.prompt_sha256, record.target_tokens) == (15, "ab" * 32, 9)
    assert (record.prompt_tokens, record.prompt_tokens_source, record.max_tokens) == (9, "usage", 5)
    assert record.input_bytes == sum(map(len, made.transport.requests[0].body))
    assert (record.cold, record.connect_ms, record.scheduled_ms, record.ttft_sched_ms) == (False, None, None, None)
    assert "story" not in str(record.to_json())


def test_what_is_sent(clock, caller, prompt):
    """The body is the protocol's around the prompt; headers decline compression and carry key and request id."""
    transport = Scripted(clock, (200, SSE, STREAM, "eof"))
    caller(BASE, transport, clock=clock, key="k-123456789").run(Call(lambda: prompt, labels()))
    request = transport.requests[0]
    headers = dict(request.headers)
    assert (request.method, request.url) == ("POST", "http://h.test/v1/chat/completions")
    assert headers["Accept-Encoding"] == "identity"
    assert headers["Authorization"] == "Bearer k-123456789"
    assert headers["X-Request-Id"] == "r1"
    assert headers["User-Agent"].startswith("loadkit/")
    assert b'"content":"tell me a story"' in b"".join(request.body)
    assert b'"stream":true' in b"".join(request.body)


def test_tokens_without_usage(clock, caller, prompt):
    """Where the answer states no prompt length, the prompt's own count stands, with its source."""
    transport = Scripted(clock, (200, SSE, [(10, token(b"a") + STOP + DONE)], "eof"))
    record = caller(BASE, transport, clock=clock).run(Call(lambda: prompt, labels()))
    assert (record.prompt_tokens, record.prompt_tokens_source) == (9, "tokenizer")


POLICY = RetryPolicy(max_attempts=4, base_s=1.0, cap_s=30.0)


def test_each_attempt_has_its_own_clock(clock, caller, prompt):
    """429 twice, then an answer: its TTFT is its own, the user's counts from the first t0, waits are kept apart."""
    answers = [refusal(429, headers=[("Retry-After", "1")]), refusal(429, headers=[("Retry-After", "2")], at_ms=110)]
    transport = Scripted(clock, *answers, (200, SSE, STREAM, "eof"))

    class Straight(random.Random):
        def random(self):
            return 0.0

    again = []

    def on_again(request_id, attempts):
        again.append((request_id, [attempt["wait_ms"] for attempt in attempts], clock.waits.copy()))

    made = caller(BASE, transport, clock=clock, sleep=clock.sleep, policy=POLICY, rng=Straight(), on_again=on_again)
    record = made.run(Call(lambda: prompt, labels(), scheduled_ns=clock.now))
    assert clock.waits == [1.0, 2.0]
    assert record.attempts == [
        {"outcome": "rate_limited", "http_status": 429, "start_ms": 0.0, "end_ms": 120.0, "wait_ms": 1000.0},
        {"outcome": "rate_limited", "http_status": 429, "start_ms": 1120.0, "end_ms": 1230.0, "wait_ms": 2000.0},
        {"outcome": "ok", "http_status": 200, "start_ms": 3230.0, "end_ms": 3381.0, "wait_ms": None},
    ]
    assert (record.outcome, record.http_status, record.retry_wait_ms) == ("ok", 200, 3000.0)
    assert (record.ttft_ms, record.ttft_first_attempt_ms) == (100.0, 3330.0)
    assert (record.scheduled_ms, record.ttft_sched_ms) == (-3230.0, 3330.0)
    assert (record.error_message, record.retry_after_ms) == (None, None)
    assert len({request.body for request in transport.requests}) == 1
    # Told after each wait, just before the next attempt.
    assert again == [(record.request_id, [1000.0], [1.0]), (record.request_id, [1000.0, 2000.0], [1.0, 2.0])]


def test_the_first_outcome_is_told_before_any_wait_and_the_rest_can_be_given_up(clock, caller, prompt):
    """A 429 is known as soon as it has come; where waiting is pointless the record stands as it is after the last try,
    and a wait that was not sat out is none."""
    told = []

    def sleep(seconds):
        told.append(seconds)
        return len(told) == 3  # sat out once, cut short the second time

    made = caller(BASE, Scripted(clock, *[refusal(429, headers=[("Retry-After", "0")])] * 4), clock=clock, sleep=sleep,
                  policy=POLICY)  # fmt: skip
    made.on_first = told.append
    record = made.run(Call(lambda: prompt, labels()))
    assert told == ["rate_limited", 0.0, 0.0]
    assert record.outcome == "rate_limited"
    assert [attempt["wait_ms"] for attempt in record.attempts] == [0.0, None]
    assert record.retry_wait_ms == 0.0


@pytest.mark.parametrize(
    ("exchange", "outcome"),
    [
        (refusal(400), "bad_request"),
        (refusal(401), "auth"),
        (refusal(403), "forbidden"),
        (refusal(404), "not_found"),
        (refusal(413), "payload_too_large"),
        (refusal(422), "bad_request"),
        (refusal(500), "server_error"),
        (refusal(429, b'{"error":{"message":"x","code":"insufficient_quota"}}'), "quota_exhausted"),
        (refusal(429, headers=[("Retry-After", "31")]), "rate_limited"),
        ((200, SSE, [(5, token(b"a")), (6, b'data: {"error":{"code":503,"message":"x"}}\n\n')], "eof"), "stream_error"),
        (End("fault", Outcome.CONNECT_ERROR, "refused", 5_000 * MS), "connect_error"),
    ],
)
def test_what_is_final(exchange, outcome, clock, caller, prompt):
    """Refusals that stay, waits beyond the cap, errors after a token, and unasked connect faults end the request."""
    made = caller(BASE, Scripted(clock, exchange), clock=clock, sleep=clock.sleep, policy=POLICY)
    record = made.run(Call(lambda: prompt, labels()))
    assert (record.outcome, len(record.attempts), clock.waits) == (outcome, 1, [])
    assert record.retry_wait_ms is None


@pytest.mark.parametrize(
    "exchange",
    [
        refusal(503),
        refusal(529),
        (200, SSE, [(5, b'data: {"error":{"type":"overloaded_error","message":"x"}}\n\n')], "eof"),
    ],
)
def test_what_is_tried_again(exchange, clock, caller, prompt):
    """Overload by status, or in-band before a token, is tried again with a jittered wait of our own."""
    transport = Scripted(clock, exchange, (200, SSE, STREAM, "eof"))
    made = caller(BASE, transport, clock=clock, sleep=clock.sleep, policy=POLICY)
    record = made.run(Call(lambda: prompt, labels()))
    assert [attempt["outcome"] for attempt in record.attempts] == ["overloaded", "ok"]
    assert clock.waits == [random.Random(3).uniform(0, 1.0)]


def test_connect_faults_when_asked(clock, caller, prompt):
    """A server that is not there yet is tried again only where the user asked for it."""
    fault = End("fault", Outcome.CONNECT_ERROR, "refused", clock.now)
    policy = RetryPolicy(connect_faults=True)
    transport = Scripted(clock, fault, (200, SSE, STREAM, "eof"))
    record = caller(BASE, transport, clock=clock, sleep=clock.sleep, policy=policy).run(Call(lambda: prompt, labels()))
    assert [attempt["outcome"] for attempt in record.attempts] == ["connect_error", "ok"]


def test_budget_is_shared_by_the_run(clock, caller, prompt):
    """A server that refuses everything gets at most a fifth more requests than were meant for it."""
    transport = Scripted(clock, *[refusal(429)] * 200)
    made = caller(
        BASE, transport, clock=clock, sleep=clock.sleep, policy=POLICY, budget=RetryBudget(ratio=0.2, reserve=0)
    )
    for _ in range(100):
        made.run(Call(lambda: prompt, labels()))
    assert len(transport.requests) == 120


def test_retry_after_date_counts_from_the_wall_clock(clock, caller, prompt):
    """Without a Date header a Retry-After date is read against the wall clock given."""
    now = datetime(2025, 11, 30, 10, 0, tzinfo=UTC)
    transport = Scripted(clock, refusal(429, headers=[("Retry-After", "Sun, 30 Nov 2025 10:00:20 GMT")]))
    made = caller(BASE, transport, clock=clock, wall=lambda: now)
    assert made.run(Call(lambda: prompt, labels())).retry_after_ms == 20_000.0


def test_a_stepped_wall_clock_changes_no_mark(clock, caller, prompt):
    """The wall clock is a label: an hour back in the middle of a request moves only the label."""
    walls = iter([datetime(2025, 11, 30, 10, 0, tzinfo=UTC) - timedelta(hours=n) for n in range(5)])
    transport = Scripted(clock, (200, SSE, STREAM, "eof"))
    record = caller(BASE, transport, clock=clock, wall=lambda: next(walls)).run(Call(lambda: prompt, labels()))
    assert (record.timestamp, record.ttft_ms) == ("2025-11-30T10:00:00.000+00:00", 100.0)


class Meter:
    """A counter and a probe in one."""

    def __init__(self):
        self.count = 3
        self.asked = []

    def enter(self):
        self.count += 1
        return self.count

    def leave(self):
        self.count -= 1

    def max_since(self, start_ns):
        self.asked.append(start_ns)
        return 1.25


def test_streams_in_flight_and_loop_lag(clock, caller, prompt):
    """The count at t0 includes this stream, is given back after each attempt, and waits are not in flight."""
    meter = Meter()
    seen = []

    def sleep(seconds):
        seen.append(meter.count)

    transport = Scripted(clock, refusal(503), (200, SSE, STREAM, "eof"))
    made = caller(BASE, transport, clock=clock, sleep=sleep, policy=POLICY, counter=meter, probe=meter)
    record = made.run(Call(lambda: prompt, labels()))
    assert (record.inflight_at_send, record.hub_lag_max_ms, meter.count, seen) == (4, 1.25, 3, [3])


class Killed(BaseException):
    """Stands for GreenletExit: not an Exception."""


def stopped(caller, call):
    """Run a call that is stopped; return the records handed over."""
    records = []
    caller.on_record = records.append
    with pytest.raises((Killed, ZeroDivisionError)):
        caller.run(call)
    return records


def test_stopped_in_the_middle_of_a_stream(clock, caller, prompt):
    """The record has what was measured until then, as aborted; the stream is no longer counted in flight."""
    meter = Meter()
    transport = Scripted(clock, (200, SSE, [*STREAM[:2], (170, Killed())], "eof"))
    (record,) = stopped(caller(BASE, transport, clock=clock, counter=meter), Call(lambda: prompt, labels()))
    assert (record.outcome, record.ttft_ms, record.token_events, record.done_ms) == ("aborted", 100.0, 2, 170.0)
    assert (record.attempts[0]["outcome"], record.error_message, meter.count) == ("aborted", "stopped by us", 3)


def test_stopped_after_the_end_of_the_answer(clock, caller, prompt):
    """An answer that was complete is a success, although reading its last bytes was interrupted."""
    finished = (150, token(b"b") + STOP)
    transport = Scripted(clock, (200, SSE, [STREAM[0], finished, (170, Killed())], "eof"))
    (record,) = stopped(caller(BASE, transport, clock=clock), Call(lambda: prompt, labels()))
    assert (record.outcome, record.ttft_ms) == ("ok", 100.0)


def test_stopped_while_building(clock, caller):
    """Nothing was sent; there is a record all the same."""

    def killed():
        raise Killed

    (record,) = stopped(caller(BASE, Scripted(clock), clock=clock), Call(killed, labels()))
    assert (record.outcome, record.request_id, record.attempts) == ("aborted", "r1", [])
    assert (record.sent_ms, record.done_ms, record.timestamp) == (None, None, None)


def test_stopped_while_other_streams_are_read(clock, caller, prompt):
    """The rest before the building is part of the request: stopped there, it has its record, and nothing was built."""

    def killed():
        raise Killed

    built = []
    made = caller(BASE, Scripted(clock), clock=clock, rest=killed)
    (record,) = stopped(made, Call(lambda: built.append(1) or prompt, labels()))
    assert (record.outcome, record.request_id, record.build_ms, built) == ("aborted", "r1", None, [])


def test_stopped_when_only_the_handing_over_is_left(clock, caller, prompt):
    """The rest before the record is handed on changes nothing of it: the answer was there, and it stays a success."""
    turns = iter([None, Killed()])

    def rest():
        if (fault := next(turns)) is not None:
            raise fault

    made = caller(BASE, Scripted(clock, (200, SSE, STREAM, "eof")), clock=clock, rest=rest)
    (record,) = stopped(made, Call(lambda: prompt, labels()))
    assert (record.outcome, record.ttft_ms, record.error_message) == ("ok", 100.0, None)


def test_the_parts_of_a_request_that_stay_are_made_once(clock, caller, prompt):
    """Two requests with the same limit have the same body around the prompt; another limit has its own."""
    transport = Scripted(clock, *[(200, SSE, STREAM, "eof")] * 3)
    made = caller(BASE, transport, clock=clock)
    for limit in (5, 5, 7):
        made.run(Call(lambda: prompt, labels(), max_tokens=limit))
    one, two, three = (request.body for request in transport.requests)
    assert one[0] is two[0]
    assert b'"max_tokens":5' in one[0] + one[-1]
    assert b'"max_tokens":7' in three[0] + three[-1]


def test_stopped_while_waiting_to_retry(clock, caller, prompt):
    """The refusal stays in the attempts; the request as a whole was stopped."""

    def sleep(seconds):
        raise Killed

    made = caller(BASE, Scripted(clock, refusal(429)), clock=clock, sleep=sleep, policy=POLICY)
    (record,) = stopped(made, Call(lambda: prompt, labels()))
    assert (record.outcome, record.http_status) == ("aborted", 429)
    assert record.attempts[0]["outcome"] == "rate_limited"


def test_a_kill_is_not_lost_to_what_a_listener_raises(clock, caller, prompt):
    """What takes the record may raise to steer its user; one that is being killed ends all the same."""
    records = []

    def steer(record):
        records.append(record.outcome)
        raise LookupError

    def run(*reads):
        made = caller(BASE, Scripted(clock, (200, SSE, [*reads], "eof")), clock=clock, on_record=steer)
        return made.run(Call(lambda: prompt, labels()))

    with pytest.raises(Killed):
        run(*STREAM[:2], (170, Killed()))
    with pytest.raises(LookupError):
        run(*STREAM)
    assert records == ["aborted", "ok"]


def test_a_bug_is_named_and_raised(clock, caller, prompt):
    """An error of our own is not blamed on the server: it is raised, with a record that says so."""
    transport = Scripted(clock, (200, SSE, [(5, ZeroDivisionError("x"))], "eof"))
    (record,) = stopped(caller(BASE, transport, clock=clock), Call(lambda: prompt, labels()))
    assert (record.outcome, record.error_message) == ("aborted", "internal error: ZeroDivisionError")


def test_each_request_hands_over_one_record(clock, caller, prompt):
    """on_record is called once, with the record that is returned."""
    records = []
    made = caller(BASE, Scripted(clock, (200, SSE, STREAM, "eof")), clock=clock, on_record=records.append)
    returned = made.run(Call(lambda: prompt, labels()))
    assert len(records) == 1
    assert records[0] is returned


def test_nothing_sent_has_no_marks(clock, caller, prompt):
    """A connection that was refused leaves every mark after t0 empty, and its own name and words."""
    transport = Scripted(clock, End("fault", Outcome.CONNECT_ERROR, "ConnectionRefusedError", clock.now))
    made = caller(BASE, transport, clock=clock, timeouts=Timeouts(connect=3))
    record = made.run(Call(lambda: prompt, labels()))
    marks = ("sent_ms", "headers_ms", "first_byte_ms", "ttft_ms", "done_ms", "connect_ms", "timestamp", "http_status")
    assert [getattr(record, name) for name in marks] == [None] * len(marks)
    assert (record.outcome, record.error_message) == ("connect_error", "ConnectionRefusedError")
    assert transport.deadlines == [(clock.now + 3_000 * MS, Outcome.CONNECT_TIMEOUT)]


def test_no_key_in_records(clock, caller, prompt):
    """A server that echoes the key does not get it into the record; long messages are clipped."""
    key = "zq-SECRET-0123456789"
    body = b'{"error":{"message":"bad key %s %s"}}' % (key.encode(), b"x" * 2000)
    record = caller(BASE, Scripted(clock, refusal(401, body)), clock=clock, key=key).run(Call(lambda: prompt, labels()))
    assert record.outcome == "auth"
    assert "SECRET" not in str(record.to_json())
    assert len(record.error_message) <= 800
    assert key not in repr(caller(BASE, None, key=key).ask)


def test_compression_is_named(clock, caller, prompt):
    """An answer compressed against our wish is a bad shape, and the message says why."""
    headers = [*SSE, ("Content-Encoding", "gzip")]
    transport = Scripted(clock, (200, headers, [(5, b"\x1f\x8b\x08\x00")], "eof"))
    record = caller(BASE, transport, clock=clock).run(Call(lambda: prompt, labels()))
    assert record.outcome == "bad_response_shape"
    assert "gzip" in record.error_message


def test_finish_without_done_is_complete(clock, caller, prompt):
    """A server that stays silent after its finish reason has answered; the transport ends it as stopped."""
    transport = Scripted(clock, (200, SSE, [STREAM[0], (150, token(b"b") + STOP)], "stopped"))
    record = caller(BASE, transport, clock=clock).run(Call(lambda: prompt, labels()))
    assert (record.outcome, record.flags) == ("ok", ["no_done"])


def test_a_flood_is_bounded(clock, caller, prompt, monkeypatch):
    """An answer beyond the size limit is left, and is not the model's fault."""
    monkeypatch.setattr("loadkit.call.attempt.MAX_BODY_BYTES", 1000)
    transport = Scripted(clock, (200, SSE, [(n, token(b"a")) for n in range(1, 100)], "eof"))
    record = caller(BASE, transport, clock=clock).run(Call(lambda: prompt, labels()))
    assert (record.outcome, record.bytes_received < 1200) == ("protocol_error", True)
    assert "larger" in record.error_message


@pytest.mark.parametrize(
    ("protocol", "path"),
    [("openai-completions", "/v1/completions"), ("anthropic", "/v1/messages"), ("ollama", "/api/chat")],
)
def test_each_protocol_has_its_path(protocol, path, clock, caller, prompt):
    """Base URL and operation are joined by the plan's table."""
    transport = Scripted(clock, refusal(400))
    record = caller("http://h.test", transport, clock=clock, protocol=protocol).run(Call(lambda: prompt, labels()))
    assert (record.path, transport.requests[0].url) == (path, f"http://h.test{path}")
