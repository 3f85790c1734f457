"""Reads that are held and taken together: the record is the one it would be, whatever ends the stream and when.

The server writes a read when the client's socket has returned the one before: each is a read of its own, and none waits
until the client has worked it out.
"""

import json
import threading
import time

import gevent
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadkit.call.connection import Connection, TlsConnection
from loadkit.call.exchange import HELD_BYTES, MOST_HELD
from loadkit.call.request import Call
from loadkit.call.watcher import WatcherTransport
from loadkit.call.wire import ResponseReader
from loadkit.plan.endpoint import Timeouts
from loadkit.protocol import replay

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
QUICK = Timeouts(connect=5, ttft=5, read=1.0, total=20, ttft_scales=False)


def chunk(data):
    """An HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def token(text='"a"', finish="null"):
    """An event of one token; `text` is JSON."""
    return f'data: {{"id":"c1","choices":[{{"delta":{{"content":{text}}},"finish_reason":{finish}}}]}}\n\n'.encode()


class Heard:
    """The reads of every connection as the socket returned them."""

    def __init__(self, step):
        self.step = step
        self.reads = []

    def note(self, read):
        self.reads.append(read)
        self.step.tell(free=read[2])


@pytest.fixture
def heard(step, monkeypatch):
    """What the sockets return from now on."""
    found = Heard(step)
    for kind in (Connection, TlsConnection):
        returned = kind.receive

        def receive(self, scratch, clock, returned=returned):
            read = returned(self, scratch, clock)
            found.note(read)
            return read

        monkeypatch.setattr(kind, "receive", receive)
    return found


def stepwise(step, parts, after=lambda peer: None):
    """A script that writes each part when the one before was read, and then does something."""

    def script(peer):
        peer.request()
        for part in parts:
            before = step.told
            peer.send(part)
            step.wait(before + 1)
        after(peer)

    return script


class Sink:
    """Finds bodies alike that begin with `<` and end with `>`, from the first on; notes when it is told."""

    settled = True

    def __init__(self, log):
        self.log = log
        self.told = []  # how many reads there had been when each was told

    def __getattr__(self, name):
        return getattr(self.log, name)

    @property
    def alike(self):
        return (b"<", b">") if self.log.reads else (b"", b"")


def told(serve, heard, log, wire_request, parts, framing=b"Transfer-Encoding: chunked\r\n\r\n", **options):
    """Stream the parts to a sink; return it."""
    server = serve(stepwise(heard.step, [HEAD + framing, *parts]), **options)
    sink = Sink(log())
    read = log.read

    def noted(ns, data):
        sink.told.append(len(heard.reads))
        return read(sink.log, ns, data)

    sink.read = noted
    transport = WatcherTransport()
    end = transport.exchange(wire_request(server.url()), sink)
    transport.close()
    assert end.how == "eof"
    return sink


def test_reads_that_are_alike_are_told_with_the_next_that_is_not(serve, heard, log, wire_request):
    """Each with the stamp of its own read, in order; the first is told at once, since nothing is known before it."""
    parts = [chunk(b"<%d>" % n) for n in range(6)] + [chunk(b"end"), b"0\r\n\r\n"]
    sink = told(serve, heard, log, wire_request, parts)
    assert [data for _, data in sink.log.reads] == [b"<0>", b"<1>", b"<2>", b"<3>", b"<4>", b"<5>", b"end"]
    assert sink.told == [2, *[8] * 6]  # the head is a read, too
    stamps = [ns for ns, data, _ in heard.reads if data]
    assert [ns for ns, _ in sink.log.reads] == stamps[1:8]
    assert stamps == sorted(set(stamps))


def test_no_more_are_held_than_so_many_and_none_that_is_long(serve, heard, log, wire_request):
    """The one that finds the place full is told with all before it; a long one is told at once."""
    parts = [chunk(b"<%d>" % n) for n in range(MOST_HELD + 3)]
    parts += [chunk(b"<" + b"x" * HELD_BYTES + b">"), b"0\r\n\r\n"]
    sink = told(serve, heard, log, wire_request, parts)
    assert len(sink.log.reads) == MOST_HELD + 4
    full = 2 + MOST_HELD + 1
    assert sink.told == [2, *[full] * (MOST_HELD + 1), *[full + 2] * 2]


@pytest.mark.parametrize("framing", [b"Content-Length: 10\r\n\r\n", b"Connection: close\r\n\r\n"])
def test_bodies_without_chunks_are_held_too(serve, heard, log, wire_request, framing):
    """And told when the body ends, by its length or with the connection."""
    sink = told(serve, heard, log, wire_request, [b"<0>", b"<1>", b"<2>", b"."], framing)
    assert sink.log.body == b"<0><1><2>."
    assert sink.told == [2, 5, 5, 5]


def run(serve, heard, caller, prompt, parts, after=lambda peer: peer.gone(), **fields):
    """The record of a request that is answered with these parts."""
    server = serve(stepwise(heard.step, [CHUNKED, *parts], after))
    transport = WatcherTransport()
    record = caller(server.url(path="/v1"), transport, **fields).run(Call(lambda: prompt, {}))
    heard.step.tell(free=True)  # a server whose client has had enough waits for no more reads
    transport.close()
    server.close()  # and has ended before the steps of another begin
    return record


TEN = [chunk(token()) for _ in range(10)]


def test_a_silence_after_held_reads_is_the_timeout_it_is(serve, heard, caller, prompt):
    """All tokens count, and the gap is counted from the last of them."""
    record = run(serve, heard, caller, prompt, TEN, timeouts=QUICK)
    assert (record.outcome, record.token_events) == ("read_timeout", 10)
    last_ms = (heard.reads[-1][0] - heard.reads[1][0]) / 1e6 + record.ttft_ms
    assert record.last_token_ms == pytest.approx(last_ms, abs=1e-3)
    assert 1000 <= record.done_ms - record.last_token_ms < 2000


def test_a_gap_is_counted_from_a_read_that_is_held(serve, heard, caller, prompt):
    """Twenty tokens 0.1 s apart last longer than the allowed gap, and no gap is as long."""

    def slowly(peer):
        for _ in range(20):
            threading.Event().wait(0.1)
            peer.send(chunk(token()))
        peer.send(chunk(DONE) + b"0\r\n\r\n")

    record = run(serve, heard, caller, prompt, TEN[:2], slowly, timeouts=Timeouts(read=1.5, ttft_scales=False))
    assert (record.outcome, record.token_events) == ("ok", 22)


def test_a_reset_after_held_reads_keeps_them(serve, heard, caller, prompt):
    """The connection broke after ten tokens, and ten are in the record."""
    record = run(serve, heard, caller, prompt, TEN, lambda peer: peer.reset())
    assert (record.outcome, record.token_events) == ("stream_truncated", 10)


def test_a_clean_close_after_held_reads_keeps_them(serve, heard, caller, prompt):
    """So does the end of a body that was not complete."""
    record = run(serve, heard, caller, prompt, TEN, lambda peer: None)
    assert (record.outcome, record.token_events) == ("stream_truncated", 10)


def test_a_killed_user_keeps_what_was_held(serve, heard, caller, prompt):
    """Everything that was read counts, with its own time."""
    kept = []
    server = serve(stepwise(heard.step, [CHUNKED, *TEN], lambda peer: peer.gone()))
    made = caller(server.url(path="/v1"), WatcherTransport(), on_record=kept.append)
    greenlet = gevent.spawn(made.run, Call(lambda: prompt, {}))
    with gevent.Timeout(20):
        while len(heard.reads) < 11:
            gevent.sleep(0.005)
    greenlet.kill()
    assert [(one.outcome, one.token_events) for one in kept] == [("aborted", 10)]


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        (token('"b"', '"stop"'), "ok"),
        (DONE, "ok"),
        (b'data: {"error":{"message":"no capacity","code":503}}\n\n', "stream_error"),
    ],
)
def test_what_ends_an_answer_is_taken_at_once(serve, heard, caller, prompt, last, outcome, monkeypatch):
    """The server keeps the connection open, and the request is over long before any timeout."""
    monkeypatch.setattr("loadkit.call.deadlines.FINISH_S", 0.1)
    started = time.monotonic()
    record = run(serve, heard, caller, prompt, [*TEN, chunk(last)], timeouts=Timeouts(read=60))
    assert record.outcome == outcome
    assert time.monotonic() - started < 5


def test_an_error_that_ends_like_a_token_is_taken_at_once(serve, heard, caller, prompt):
    """Anthropic's errors end with the same bytes as its tokens, and begin with others."""
    kind = b'"type":"content_block_delta"'
    delta = b'event: content_block_delta\ndata: {%b,"index":0,"delta":{"type":"text_delta","text":"a"}}\n\n' % kind
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    assert error.endswith(delta[-5:])
    parts = [chunk(delta)] * 8 + [chunk(error)]
    started = time.monotonic()
    record = run(serve, heard, caller, prompt, parts, protocol="anthropic", timeouts=Timeouts(read=60))
    assert (record.outcome, record.token_events) == ("stream_error", 8)
    assert time.monotonic() - started < 5


def test_tokens_over_tls_are_held_too(serve, heard, caller, prompt, certificates):
    """With the stamp taken before anything was decrypted."""
    server_context, client_context = certificates
    done = chunk(DONE) + b"0\r\n\r\n"
    server = serve(stepwise(heard.step, [CHUNKED, *TEN, done]), tls=server_context)
    transport = WatcherTransport(client_context)
    record = caller(server.url(path="/v1"), transport).run(Call(lambda: prompt, {}))
    transport.close()
    assert (record.outcome, record.token_events) == ("ok", 10)


EVENTS = st.one_of(
    st.just(token()),
    st.just(token()),
    st.text(max_size=6).map(lambda text: token(json.dumps(text))),
    st.sampled_from(
        [token() * 2, b": ping\n\n", b"data: {", b'"choices":[]}\n\n', b"data: no json\n\n", b"\n", b"\r\n"]
    ),
    st.just(b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}\n\n'),
)


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(EVENTS, max_size=40), st.sampled_from([DONE, token('""', '"length"'), b""]), st.integers(0, 3))
def test_the_record_is_the_one_of_reads_taken_one_by_one(serve, heard, caller, prompt, events, last, merge):
    """Whatever comes between tokens: every time and count is that of the same reads, parsed as they came."""
    bodies = [token(), token(), token(), *events, *([last] if last else [])]
    parts = [chunk(body) for body in bodies]
    for at in range(min(merge, len(parts) // 2)):  # a read of two chunks
        parts[at : at + 2] = [b"".join(parts[at : at + 2])]
    heard.reads.clear()
    heard.step.free = False
    record = run(serve, heard, caller, prompt, [*parts, b"0\r\n\r\n"], lambda peer: None).to_json()
    reader = ResponseReader()
    got = [(ns, reader.feed(data)) for ns, data, _ in heard.reads]
    t0 = round(record["start_ms"] * 1e6)
    reads = [((ns - t0) / 1e6, body) for ns, body in got if body]
    once = replay("openai-chat", reads, "chunked_end", 200, {"content-type": "text/event-stream"})
    whole = ("outcome", "token_events", "event_read", "event_tokens", "output_chars", "output_tokens", "finish_reason")
    assert {name: record[name] for name in whole} == {name: once[name] for name in whole}
    times = ("ttft_ms", "last_token_ms", "finish_ms", "usage_ms", "decode_ms")
    assert [record[name] for name in times] == pytest.approx([once[name] for name in times], abs=1e-3)
    assert record["itl_ms"] == pytest.approx(once["itl_ms"], abs=1e-3)
