"""Over real sockets: cuts of the network change no record, and no bytes at all can make a call raise or hang."""

import json
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadkit.call.choose import TRANSPORTS
from loadkit.call.request import Call
from loadkit.plan.endpoint import Timeouts
from loadkit.protocol import replay
from loadkit.record.names import Flag, Outcome
from loadkit.record.record import FIELDS

EXAMPLES = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
LIMITS = Timeouts(connect=5, ttft=0.15, read=0.15, total=0.3, ttft_scales=False)
# What is left of a record when times and the cuts of the network are taken away.
FACTS = ("outcome", "http_status", "finish_reason", "response_id", "response_model", "prompt_tokens", "cached_tokens")
FACTS += ("output_tokens", "output_tokens_source", "reasoning_tokens", "output_chars", "token_events", "event_tokens")
FACTS += ("bytes_received", "error_code", "error_type", "error_message", "limit_tokens", "requested_tokens")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
GOOD = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def pieces(data, cuts):
    """The bytes cut at some places."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} - {0})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def framed(body, framing, cuts):
    """A whole response with this body: chunked at the cuts, or by its length, or by the close."""
    if framing == "chunked":
        frames = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces(body, cuts) if piece)
        return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + frames + b"0\r\n\r\n"
    if framing == "counted":
        return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    return HEAD + b"Connection: close\r\n\r\n" + body


@pytest.fixture
def ask(serve, caller, prompt):
    """Send one request to a server that answers with these writes; return the record."""
    server = serve()

    def run(name, writes, hold=False):
        done = threading.Event()

        def script(peer):
            peer.request()
            peer.send(*writes)
            if hold:
                peer.gone()
            done.wait(10)

        server.scripts.append(script)
        transport = TRANSPORTS[name](None)
        made = caller(server.url(path="/v1"), transport, timeouts=LIMITS if hold else None)
        if not hold:
            done.set()
        record = made.run(Call(lambda: prompt, {}))
        transport.close()
        done.set()
        return record

    return run


cut_places = st.lists(st.integers(0, 10**6), max_size=12)


@pytest.mark.parametrize("name", sorted(TRANSPORTS))
@EXAMPLES
@given(st.data(), st.sampled_from(["chunked", "counted", "close"]), cut_places, cut_places)
def test_the_record_does_not_depend_on_the_cut(name, ask, cases, data, framing, chunks, writes):
    """Any stream, cut into any chunks and any TCP writes, gives the facts it gives in one read."""
    streams = [case for case in cases.CASES if case["status"] == 200 and cases.scenario.how_of(case) != "reset"]
    body = b"".join(read for _, read in cases.scenario.reads_of(data.draw(st.sampled_from(streams))))
    record = ask(name, pieces(framed(body, framing, chunks), writes)).to_json()
    once = replay("openai-chat", [(1, body)], "eof", 200, {"content-type": "text/event-stream"}) if body else None
    once = once or replay("openai-chat", [], "eof", 200, {})
    if once["prompt_tokens"] is None:
        record["prompt_tokens"] = None  # the Caller's own count of its prompt
    # Bytes behind the end marker are told or not, as they share its read or not.
    facts = [fact for fact in FACTS if fact != "bytes_received" or record["bytes_received"] == len(body)]
    assert {fact: record[fact] for fact in facts} == {fact: once[fact] for fact in facts}


def spoilt(draw):
    """A good response with some bytes taken out, put in or changed."""
    data = bytearray(framed(GOOD, draw(st.sampled_from(["chunked", "counted", "close"])), draw(cut_places)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        new = draw(st.binary(max_size=3) | st.sampled_from([b"\r\n", b"\0", b"\xff" * 9, b"\r\n\r\n", b"data:", b"{"]))
        data[at : at + draw(st.integers(0, 4))] = new
        data = data or bytearray(b"\n")
    return bytes(data)


garbage = st.one_of(
    st.binary(max_size=400),
    st.binary(max_size=200).map(lambda body: framed(body, "close", [])),
    st.binary(max_size=200).map(lambda body: framed(body, "chunked", [7])),
    st.binary(max_size=60).map(lambda tail: b"HTTP/1.1 " + tail),
    st.builds(
        lambda status, body: b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body,
        st.integers(100, 999),
        st.binary(max_size=80),
    ),
    st.composite(spoilt)(),
)


@pytest.mark.parametrize("name", sorted(TRANSPORTS))
@EXAMPLES
@given(garbage, cut_places, st.sampled_from([False, False, False, True]))
def test_garbage_ends_in_a_closed_outcome_in_time(name, ask, response, writes, hold):
    """Whatever comes as a response, and whether the socket then closes or stays open: one record, closed names."""
    record = ask(name, pieces(response, writes), hold).to_json()
    assert tuple(record) == FIELDS
    assert Outcome(record["outcome"]) is not Outcome.OK or record["token_events"] >= 1
    assert all(Flag(flag) for flag in record["flags"])
    assert len(record["error_message"] or "") <= 800
    assert record["done_ms"] < 5000
    json.dumps(record, allow_nan=False)
