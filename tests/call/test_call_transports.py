"""The contract of a transport, over every transport of the dict, against a server that misbehaves on purpose."""

import socket
import threading
import time

import pytest

from loadkit.call.choose import TRANSPORTS
from loadkit.call.request import Call
from loadkit.record.names import Outcome

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"data: {}\n\n"
GONE = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"


def chunk(data):
    """One chunk of the chunked coding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


OK = HEAD + chunk(EVENT) + chunk(EVENT) + b"0\r\n\r\n"


def answer(*pieces, after=lambda peer: peer.gone()):
    """A script: read the request, send the pieces, then do `after`."""

    def script(peer):
        peer.request()
        peer.send(*pieces)
        after(peer)

    return script


def close(peer):
    """End with a FIN: nothing of the client's is left unread."""


def reset(peer):
    """End with a RST, after the client has taken what was sent."""
    time.sleep(0.1)  # a RST may destroy bytes the client has not read yet; no result depends on the length
    peer.reset()


# name: (script, how, outcome, status, body)
CASES = {
    "chunked": (answer(OK), "eof", None, 200, EVENT * 2),
    "chunked byte by byte": (answer(*(OK[i : i + 1] for i in range(len(OK)))), "eof", None, 200, EVENT * 2),
    "trailers": (answer(HEAD + chunk(EVENT) + b"0\r\nX-A: b\r\n\r\n"), "eof", None, 200, EVENT),
    "content-length": (answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"hi"), "eof", None, 200, b"hi"),
    "close-delimited": (answer(b"HTTP/1.1 200 OK\r\n\r\nhi", after=close), "eof", None, 200, b"hi"),
    "HTTP/1.0": (answer(b"HTTP/1.0 200 OK\r\n\r\nhi", after=close), "eof", None, 200, b"hi"),
    "empty body": (answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), "eof", None, 200, b""),
    "204": (answer(b"HTTP/1.1 204 No Content\r\n\r\n"), "eof", None, 204, b""),
    "1xx before": (answer(b"HTTP/1.1 102 P\r\n\r\n", b"HTTP/1.1 103 \r\n\r\n" + OK), "eof", None, 200, EVENT * 2),
    "1xx for ever": (answer(b"HTTP/1.1 102 P\r\n\r\n" * 9000), "fault", Outcome.PROTOCOL_ERROR, None, b""),
    "garbage without an end": (answer(b"\x15\x03\x03\x00\x02"), "fault", Outcome.PROTOCOL_ERROR, None, b""),
    "redirect": (
        answer(b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 2\r\n\r\nno"),
        "eof", None, 307, b"no",
    ),
    "gzip": (
        answer(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08"),
        "eof", None, 200, b"\x1f\x8b\x08",
    ),
    "refusal": (answer(GONE), "eof", None, 503, b"busy"),
    "cut chunked": (answer(HEAD + chunk(EVENT), after=close), "truncated", None, 200, EVENT),
    "cut inside a chunk": (answer(HEAD + b"ff\r\ndata", after=close), "truncated", None, 200, b"data"),
    "cut content-length": (
        answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", after=close), "truncated", None, 200, b"hi",
    ),
    "reset in the body": (answer(HEAD + chunk(EVENT), after=reset), "reset", None, 200, EVENT),
    "reset before the answer": (answer(after=reset), "reset", Outcome.RESET, None, b""),
    "closed before the answer": (answer(after=close), "reset", Outcome.RESET, None, b""),
    "closed in the head": (answer(b"HTTP/1.1 200 OK\r\nA: b\r\n", after=close), "reset", Outcome.RESET, None, b""),
    "garbage": (answer(b"SSH-2.0-OpenSSH_9.7\r\n\r\n"), "fault", Outcome.PROTOCOL_ERROR, None, b""),
    "bad chunk": (answer(HEAD + chunk(EVENT) + b"zz\r\n"), "fault", Outcome.PROTOCOL_ERROR, 200, EVENT),
    "bad length": (
        answer(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), "fault", Outcome.PROTOCOL_ERROR, None, b"",
    ),
    "101": (answer(b"HTTP/1.1 101 \r\nUpgrade: x\r\n\r\n"), "fault", Outcome.PROTOCOL_ERROR, None, b""),
    "giant header": (
        answer(b"HTTP/1.1 200 OK\r\nA: " + b"b" * 200_000 + b"\r\n\r\n"), "fault", Outcome.PROTOCOL_ERROR, None, b"",
    ),
    "endless head": (
        answer(b"HTTP/1.1 200 OK\r\n", *[b"A: b\r\n" * 1000] * 60), "fault", Outcome.PROTOCOL_ERROR, None, b"",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_ending_has_one_name(case, transport, serve, wire_request, log):
    """Each transport tells the same status, body, end and outcome for the same bytes."""
    script, how, outcome, status, body = CASES[case]
    server, sink = serve(script), log()
    end = transport.exchange(wire_request(server.url()), sink)
    transport.close()
    assert (end.how, end.outcome, sink.status, sink.body) == (how, outcome, status, body)
    assert end.at_ns >= max(ns for _, ns in sink.events)


VARIES = {"transport", "host", "timestamp", "reads", "event_read", "attempts", "flags", "itl_ms"}


def steady(record):
    """A record without what two runs of the same exchange may not share: times, ports, cuts of the network."""
    return {name: value for name, value in record.to_json().items() if name not in VARIES and not name.endswith("_ms")}


@pytest.mark.parametrize("case", CASES)
def test_every_transport_gives_the_same_record(case, serve, caller, prompt):
    """One server script, one record, whichever transport read it; times that are known to one are known to all."""
    found = {}
    for name, make in TRANSPORTS.items():
        transport = make(None)
        base = serve(CASES[case][0]).url(path="/v1")
        record = caller(base, transport).run(Call(lambda: prompt, {"request_id": "r1"}))
        transport.close()
        times = {key for key, value in record.to_json().items() if key.endswith("_ms") and value is not None}
        found[name] = (steady(record), times)
    assert found["loadkit"] == found["httpx"]


def test_the_order_of_marks(transport, serve, wire_request, log):
    """connecting, connected, sending, sent, head, reads; stamps never run backwards."""
    server, sink = serve(answer(OK)), log()
    before = time.perf_counter_ns()
    end = transport.exchange(wire_request(server.url()), sink)
    assert sink.names == ["connecting", "connected", "sending", "sent", "head", "read"]
    stamps = [before, *(ns for _, ns in sink.events), end.at_ns, time.perf_counter_ns()]
    assert stamps == sorted(stamps)


def test_what_goes_over_the_wire(transport, serve, wire_request, log):
    """Target with query, Host with port, our headers, the length, and the parts of the body joined."""
    seen = []

    def script(peer):
        seen.append(peer.request())
        peer.send(OK)
        peer.gone()

    server = serve(script)
    headers = [("Authorization", "Bearer k"), ("Accept-Encoding", "identity"), ("X-Latin", "é")]
    large = b"y" * 700_000
    request = wire_request(server.url(path="/p/q?x=1"), b"{", b'"p":"', memoryview(large), b'"}', headers=headers)
    assert transport.exchange(request, log()).how == "eof"
    transport.close()
    head, body = seen[0]
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /p/q?x=1 HTTP/1.1"
    assert b"Host: 127.0.0.1:%d" % server.port in lines
    assert b"Content-Length: %d" % len(body) in lines
    assert {b"Authorization: Bearer k", b"Accept-Encoding: identity", b"X-Latin: \xe9"} <= set(lines)
    assert not [line for line in lines if line.lower().startswith(b"transfer-encoding")]
    assert body == b'{"p":"' + large + b'"}'


def test_pieces_of_one_read_are_told_together(transport, serve, wire_request, log):
    """Two chunks that arrive in one read are one read; what comes later is another with a later stamp."""
    told = threading.Event()

    def script(peer):
        peer.request()
        peer.send(HEAD + chunk(EVENT) + chunk(EVENT))
        told.wait(10)
        peer.send(chunk(EVENT) + b"0\r\n\r\n")
        peer.gone()

    sink = log(enough=lambda body: told.set() or False)
    # the second write waits for the first read: only then is it certain that they are two
    end = transport.exchange(wire_request(serve(script).url()), sink)
    transport.close()
    assert [data for _, data in sink.reads] == [EVENT * 2, EVENT]
    assert sink.reads[0][0] < sink.reads[1][0] <= end.at_ns


def test_a_connection_is_used_again(transport, serve, wire_request, log):
    """Two exchanges, one connection; the second is not told to connect."""

    def script(peer):
        for _ in range(2):
            peer.request()
            peer.send(OK)
        peer.gone()

    server, second = serve(script), log()
    assert transport.exchange(wire_request(server.url()), log()).how == "eof"
    assert transport.exchange(wire_request(server.url()), second).how == "eof"
    transport.close()
    assert server.connections == 1
    assert second.names == ["sending", "sent", "head", "read"]


@pytest.mark.parametrize("ending", ["close header", "garbage after the end", "idle close"])
def test_a_spoilt_connection_is_not_used_again(ending, transport, serve, wire_request, log):
    """After `Connection: close`, bytes behind the end, or a close while idle, the next exchange opens its own."""
    closed = threading.Event()

    def first(peer):
        peer.request()
        if ending == "close header":
            peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
        else:
            peer.send(OK + (b"HTTP/1.1 200 OK\r\n" if ending == "garbage after the end" else b""))
        if ending == "garbage after the end":
            peer.gone()
        peer.sock.close()
        closed.set()

    server = serve(first, answer(OK))
    assert transport.exchange(wire_request(server.url()), log()).how == "eof"
    if ending != "garbage after the end":
        assert closed.wait(10)
    sink = log()
    assert transport.exchange(wire_request(server.url()), sink).how == "eof"
    transport.close()
    assert (sink.body, server.connections) == (EVENT * 2, 2)
    assert sink.names[-4:] == ["sending", "sent", "head", "read"]


def test_a_stale_connection_is_replaced_once(transport, serve, wire_request, log):
    """A reused connection that dies before any answer is no failure: a new one is opened and t0 starts anew."""

    def first(peer):
        peer.request()
        peer.send(OK)
        peer.request()  # the server takes the second request and goes without a word

    server, sink = serve(first, answer(OK)), log()
    transport.exchange(wire_request(server.url()), log())
    end = transport.exchange(wire_request(server.url()), sink)
    transport.close()
    assert (end.how, sink.body, server.connections) == ("eof", EVENT * 2, 2)
    assert sink.names == ["sending", "sent", "connecting", "connected", "sending", "sent", "head", "read"]


def test_a_stale_connection_is_replaced_only_once(transport, serve, wire_request, log):
    """A new connection that dies the same way is the outcome."""

    def first(peer):
        peer.request()
        peer.send(OK)
        peer.request()

    server = serve(first, answer(after=close))
    transport.exchange(wire_request(server.url()), log())
    end = transport.exchange(wire_request(server.url()), log())
    assert (end.how, end.outcome, server.connections) == ("reset", Outcome.RESET, 2)


def test_enough_ends_without_waiting_for_the_close(transport, serve, wire_request, log):
    """A sink that has enough is not made to wait for a server that keeps the body open."""
    server = serve(answer(HEAD + chunk(EVENT)))
    sink = log(enough=lambda body: True)
    started = time.perf_counter()
    end = transport.exchange(wire_request(server.url()), sink)
    assert (end.how, end.at_ns) == ("stopped", sink.reads[0][0])
    assert time.perf_counter() - started < 5


def test_enough_then_a_proper_end_keeps_the_connection(transport, serve, wire_request, log):
    """The rest of the body is read away, and the connection serves the next exchange."""

    def script(peer):
        peer.request()
        peer.send(HEAD + chunk(EVENT), chunk(b"rest") + b"0\r\n\r\n")
        peer.request()
        peer.send(OK)
        peer.gone()

    server, first = serve(script), log(enough=lambda body: True)
    assert transport.exchange(wire_request(server.url()), first).how == "stopped"
    assert transport.exchange(wire_request(server.url()), log()).how == "eof"
    transport.close()
    assert server.connections == 1


def test_enough_then_a_flood_is_bounded(transport, serve, wire_request, log):
    """A server that floods after the end is left after a megabyte or 50 ms."""

    def flood(peer):
        while True:
            peer.send(chunk(b"x" * 65536))

    server = serve(answer(HEAD + chunk(EVENT), after=flood))
    end = transport.exchange(wire_request(server.url()), log(enough=lambda body: True))
    assert end.how == "stopped"


@pytest.mark.parametrize("trickle", [b"", b": keep-alive\n\n"], ids=["silence", "keep-alives"])
def test_deadline_ends_the_exchange(trickle, transport, serve, wire_request, log):
    """Silence and a trickle of bytes are both ended at the sink's deadline, with its outcome."""
    stop = threading.Event()

    def after(peer):
        while trickle and not stop.wait(0.02):
            peer.send(chunk(trickle))
        stop.wait(10)

    server, sink = serve(answer(HEAD, after=after)), log(limit_s=0.3)
    end = transport.exchange(wire_request(server.url()), sink)
    stop.set()
    assert (end.how, end.outcome) == ("fault", Outcome.TTFT_TIMEOUT)
    assert 300e6 <= end.at_ns - sink.started < 5e9


def test_a_deadline_may_move_nearer(transport, serve, wire_request, log):
    """What the sink answers after a read counts, not what it answered when the exchange began."""
    sink = log()

    def enough(body):
        sink.limit_s, sink.outcome = (time.perf_counter_ns() - sink.started) / 1e9 + 0.2, Outcome.READ_TIMEOUT
        return False

    sink.enough = enough
    end = transport.exchange(wire_request(serve(answer(HEAD + chunk(EVENT))).url()), sink)
    assert (end.how, end.outcome, sink.body) == ("fault", Outcome.READ_TIMEOUT, EVENT)


def test_a_slow_head_is_bounded(transport, serve, wire_request, log):
    """A server that sends its head byte by byte is ended at the deadline."""
    stop = threading.Event()

    def after(peer):
        while not stop.wait(0.02):
            peer.send(b"a")

    server = serve(answer(b"HTTP/1.1 200 OK\r\nX-Slow: ", after=after))
    end = transport.exchange(wire_request(server.url()), log(limit_s=0.3))
    stop.set()
    assert (end.how, end.outcome) == ("fault", Outcome.TTFT_TIMEOUT)


def test_a_server_that_does_not_read_is_bounded(transport, serve, wire_request, log):
    """A body that nobody takes ends at the deadline, with nothing counted as sent."""
    stop = threading.Event()
    server = serve(lambda peer: stop.wait(10))
    sink = log(limit_s=0.3, outcome=Outcome.WRITE_TIMEOUT)
    end = transport.exchange(wire_request(server.url(), b"x" * 30_000_000), sink)
    stop.set()
    assert (end.how, end.outcome) == ("fault", Outcome.WRITE_TIMEOUT)
    assert "sent" not in sink.names


def test_early_refusal_while_the_body_is_sent(transport, serve, wire_request, log):
    """A server that answers 413 and closes in the middle of the upload is heard."""

    def script(peer):
        peer.head()
        peer.send(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 4\r\n\r\nhuge")
        peer.sock.shutdown(socket.SHUT_WR)

    sink = log()
    end = transport.exchange(wire_request(serve(script).url(), b"x" * 30_000_000), sink)
    assert (end.how, sink.status, sink.body) == ("eof", 413, b"huge")
    assert "sent" not in sink.names


def test_nobody_listens(transport, wire_request, log):
    """A closed port is connect_error; nothing was sent."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    sink = log()
    end = transport.exchange(wire_request(f"http://127.0.0.1:{port}/"), sink)
    assert (end.how, end.outcome, sink.names) == ("fault", Outcome.CONNECT_ERROR, ["connecting"])
    assert "refused" in end.detail.lower()


def test_connect_deadline(transport, wire_request, log):
    """A listener whose backlog is full is connect_timeout at the sink's deadline."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        sink = log(limit_s=0.3, outcome=Outcome.CONNECT_TIMEOUT)
        end = transport.exchange(wire_request(f"http://127.0.0.1:{full.getsockname()[1]}/"), sink)
        for sock in waiting:
            sock.close()
    assert (end.how, end.outcome, sink.names) == ("fault", Outcome.CONNECT_TIMEOUT, ["connecting"])
    assert 300e6 <= end.at_ns - sink.started < 5e9


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b.invalid"])
def test_unknown_name(host, transport, wire_request, log):
    """A name that cannot be looked up is dns_error."""
    if ".." in host:
        with pytest.raises(ValueError, match=r"label|host"):
            transport.exchange(wire_request(f"http://é{host}/"), log())
        return
    end = transport.exchange(wire_request(f"http://{host}/"), log())
    assert (end.how, end.outcome) == ("fault", Outcome.DNS_ERROR)


def test_ipv6(transport, serve, wire_request, log):
    """An IPv6 literal is connected to and named in brackets in the Host header."""
    seen = []

    def script(peer):
        seen.append(peer.request()[0])
        peer.send(OK)
        peer.gone()

    server = serve(script, family=socket.AF_INET6)
    assert transport.exchange(wire_request(server.url(host="[::1]")), log()).how == "eof"
    transport.close()
    assert b"Host: [::1]:%d" % server.port in seen[0]


def test_a_name_with_several_addresses(transport, serve, wire_request, log):
    """localhost is reached on whichever of its addresses answers."""
    server = serve(answer(OK))
    assert transport.exchange(wire_request(server.url(host="localhost")), log()).how == "eof"
    transport.close()


@pytest.mark.parametrize(
    "headers",
    [
        [("X-A", "b\r\nEvil: 1")],
        [("X A", "b")],
        [("Content-Length", "3")],
        [("Host", "x")],
        [("X-A", " b")],
        [("X", "Ω")],
    ],
)
def test_headers_that_would_break_the_request(headers, transport, wire_request, log):
    """A header that could change the framing, or cannot be written, is refused before anything is opened."""
    sink = log()
    with pytest.raises(ValueError, match="header"):
        transport.exchange(wire_request("http://127.0.0.1:1/", headers=headers), sink)
    assert sink.events == []


@pytest.mark.parametrize("name", sorted(TRANSPORTS))
def test_tls(name, serve, wire_request, log, certificates):
    """Over TLS the same marks, bodies both ways, reuse of the connection, and an end without close_notify."""
    tls, trusting = certificates
    seen = []

    def first(peer):
        for _ in range(2):
            seen.append(len(peer.request()[1]))
            peer.send(HEAD, chunk(EVENT), chunk(b"x" * 100_000) + b"0\r\n\r\n")
        peer.gone()

    server = serve(first, answer(b"HTTP/1.1 200 OK\r\n\r\nhi", after=close), tls=tls)
    transport = TRANSPORTS[name](trusting)
    for _ in range(2):
        sink = log()
        assert transport.exchange(wire_request(server.url(), b"y" * 3_000_000), sink).how == "eof"
        assert sink.body == EVENT + b"x" * 100_000
    assert sink.names == ["sending", "sent", "head", "read"]
    transport.close()
    sink = log()
    assert transport.exchange(wire_request(server.url(host="localhost")), sink).how == "eof"
    transport.close()
    assert (sink.body, seen, server.connections) == (b"hi", [3_000_000] * 2, 2)


def test_tls_without_trust(transport, serve, wire_request, log, certificates):
    """An unknown CA is tls_error, and nothing was sent."""
    sink = log()
    end = transport.exchange(wire_request(serve(answer(OK), tls=certificates[0]).url()), sink)
    assert (end.how, end.outcome, sink.names) == ("fault", Outcome.TLS_ERROR, ["connecting"])
    assert "certificate" in end.detail


@pytest.mark.parametrize("name", sorted(TRANSPORTS))
def test_tls_for_another_name(name, serve, wire_request, log, certificates):
    """A certificate for another host is tls_error although its CA is trusted."""
    server = serve(answer(OK), tls=certificates[0], family=socket.AF_INET6)
    end = TRANSPORTS[name](certificates[1]).exchange(wire_request(server.url(host="[::1]")), log())
    assert (end.how, end.outcome) == ("fault", Outcome.TLS_ERROR)


def test_tls_spoken_to_a_plain_server(transport, serve, wire_request, log):
    """A server that answers the handshake with text, or is silent, is named and bounded."""
    server = serve(lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n") or peer.gone())
    end = transport.exchange(wire_request(f"https://127.0.0.1:{server.port}/"), log())
    assert (end.how, end.outcome) == ("fault", Outcome.TLS_ERROR)
    silent = serve(lambda peer: peer.gone())
    sink = log(limit_s=0.3, outcome=Outcome.CONNECT_TIMEOUT)
    end = transport.exchange(wire_request(f"https://127.0.0.1:{silent.port}/"), sink)
    assert (end.how, end.outcome) == ("fault", Outcome.CONNECT_TIMEOUT)


def test_a_bug_in_the_sink_comes_out(transport, serve, wire_request, log):
    """An exception of the sink is raised to the caller, and the transport can be used again."""

    def bug(body):
        raise KeyError("bug")

    server = serve(answer(OK, after=close), answer(OK))
    with pytest.raises(KeyError, match="bug"):
        transport.exchange(wire_request(server.url()), log(enough=bug))
    assert transport.exchange(wire_request(server.url()), log()).how == "eof"
    transport.close()
