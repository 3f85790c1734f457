"""The transports inside gevent: stopped greenlets, many streams on one hub, patched and unpatched processes."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
from dataclasses import replace

import gevent
import gevent.event
import pytest
from gevent.hub import Waiter

from loadkit.call.attempt import most_events
from loadkit.call.choose import TRANSPORTS
from loadkit.call.connection import Connection
from loadkit.call.hub import rest, shared
from loadkit.call.request import Call
from loadkit.call.transport import SLICE_BYTES
from loadkit.call.watcher import WatcherTransport
from loadkit.plan.endpoint import Timeouts

GUARD_S = 20.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def chunk(data):
    """One chunk of the chunked coding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


class Tap:
    """A transport that tells a gevent event when the first body bytes have been read."""

    def __init__(self, transport):
        self.transport = transport
        self.name, self.proxied = transport.name, transport.proxied
        self.seen = gevent.event.Event()

    def exchange(self, request, sink):
        read = sink.read

        def tapped(ns, data):
            enough = read(ns, data)
            self.seen.set()
            return enough

        sink.read = tapped
        return self.transport.exchange(request, sink)


def test_a_killed_greenlet_leaves_a_record_and_no_connection(serve, caller, prompt):
    """GreenletExit in the middle of a stream: aborted, with its first token; the server sees the connection go."""
    gone = threading.Event()

    def script(peer):
        peer.request()
        peer.send(HEAD, chunk(TOKEN))
        peer.gone()
        gone.set()

    records = []
    tap = Tap(WatcherTransport())
    made = caller(serve(script).url(path="/v1"), tap, on_record=records.append)
    greenlet = gevent.spawn(made.run, Call(lambda: prompt, {"request_id": "r1"}))
    assert tap.seen.wait(GUARD_S)
    greenlet.kill(timeout=GUARD_S)
    assert [(record.outcome, record.token_events) for record in records] == [("aborted", 1)]
    assert gone.wait(GUARD_S)
    assert tap.transport._connection is None


def test_a_killed_greenlet_while_connecting(serve, caller, prompt):
    """Stopped during a TLS handshake that never ends: a record, and nothing left open."""
    arrived, gone = threading.Event(), threading.Event()

    def script(peer):
        peer.sock.recv(1)
        arrived.set()
        peer.gone()
        gone.set()

    records = []
    url = serve(script).url(path="/v1").replace("http:", "https:")
    made = caller(url, WatcherTransport(), on_record=records.append)
    greenlet = gevent.spawn(made.run, Call(lambda: prompt, {}))
    with gevent.Timeout(GUARD_S):
        while not arrived.is_set():
            gevent.sleep(0.005)
    greenlet.kill(timeout=GUARD_S)
    assert [(record.outcome, record.sent_ms) for record in records] == [("aborted", None)]
    assert gone.wait(GUARD_S)


def test_many_streams_on_one_hub(serve, caller, prompt):
    """Thirty users at once: the server answers none before all have asked, and no answer is mixed up."""
    users = 30
    barrier = threading.Barrier(users)

    def script(peer):
        body = peer.request()[1]
        barrier.wait(GUARD_S)
        name = json.loads(body)["messages"][0]["content"].split()[-1]
        peer.send(HEAD, *[chunk(TOKEN.replace(b'"c1"', b'"%s"' % name.encode()))] * 5, chunk(END) + b"0\r\n\r\n")
        peer.gone()

    url = serve(*[script] * users).url(path="/v1")
    transports = [WatcherTransport() for _ in range(users)]

    def one(number):
        own = type(prompt)((b"user %d" % number,), 9, True, "tokenizer", 7, "ab")
        return caller(url, transports[number]).run(Call(lambda: own, {}))

    greenlets = [gevent.spawn(one, number) for number in range(users)]
    gevent.joinall(greenlets, timeout=GUARD_S)
    found = [(g.value.outcome, g.value.response_id, g.value.token_events) for g in greenlets]
    for transport in transports:
        transport.close()
    assert found == [("ok", str(number), 5) for number in range(users)]


def test_the_loop_polls_between_two_slices_of_a_long_prompt(serve, caller, prompt, monkeypatch):
    """One slice goes out in each round of the loop, also when the kernel takes all at once: others are read between.

    A greenlet that only yields would send them all in one round, since gevent runs its callbacks on for 5 ms. The
    first slice may share its round with the second: it is sent by what the opened connection woke.
    """
    middle = 8
    rounds, sent_in = 0, []

    def next_round():
        nonlocal rounds
        rounds += 1

    def send(connection, data):
        sent_in.append(rounds)
        if len(sent_in) == 1 + middle + 1:
            connection._sock.send(b"x")  # the server answers when it has something
        return len(data)

    def script(peer):
        peer.sock.recv(1)
        peer.send(HEAD, chunk(TOKEN), chunk(END) + b"0\r\n\r\n")
        peer.gone()

    monkeypatch.setattr(Connection, "send", send)
    check = gevent.get_hub().loop.check()
    check.start(next_round)
    transport = WatcherTransport()
    long = replace(prompt, content=(b"long ", memoryview(bytes(middle * SLICE_BYTES))))
    record = caller(serve(script).url(path="/v1"), transport).run(Call(lambda: long, {}))
    transport.close()
    check.stop()
    assert (record.outcome, len(sent_in)) == ("ok", 1 + middle + 1)
    assert len(set(sent_in)) >= middle + 1


@pytest.mark.parametrize("name", sorted(TRANSPORTS))
def test_keep_alives_do_not_satisfy_the_first_token_deadline(name, serve, caller, prompt):
    """Comments every few ms for ever: ttft_timeout at its own limit, with no token and no ttft."""
    stop = threading.Event()

    def script(peer):
        peer.request()
        peer.send(HEAD)
        while not stop.wait(0.01):
            peer.send(chunk(b": keep-alive\n\n"))

    transport = TRANSPORTS[name](None)
    limits = Timeouts(ttft=0.3, read=0.1, ttft_scales=False)
    record = caller(serve(script).url(path="/v1"), transport, timeouts=limits).run(Call(lambda: prompt, {}))
    stop.set()
    transport.close()
    assert (record.outcome, record.ttft_ms, record.token_events) == ("ttft_timeout", None, 0)
    assert 300 <= record.done_ms < 5000
    assert record.bytes_received > 0


@pytest.mark.parametrize("name", sorted(TRANSPORTS))
@pytest.mark.parametrize("after", ["token", "finish", "done"])
def test_silence_after_a_token(after, name, serve, caller, prompt):
    """Silence is read_timeout after a token, and no fault after [DONE] although the socket stays open."""
    sent = {"token": chunk(TOKEN), "finish": chunk(TOKEN) * 2, "done": chunk(TOKEN) + chunk(END)}[after]

    def script(peer):
        peer.request()
        peer.send(HEAD, sent)
        peer.gone()

    transport = TRANSPORTS[name](None)
    limits = Timeouts(ttft=GUARD_S, read=0.2, ttft_scales=False)
    record = caller(serve(script).url(path="/v1"), transport, timeouts=limits).run(Call(lambda: prompt, {}))
    transport.close()
    expected = ("ok", "stop") if after == "done" else ("read_timeout", None)
    assert (record.outcome, record.finish_reason) == expected
    assert record.ttft_ms is not None


@pytest.mark.parametrize("name", sorted(TRANSPORTS))
def test_keep_alives_after_a_token_are_silence(name, serve, caller, prompt):
    """Comments every few ms for ever after the first token: read_timeout, as if nothing came."""
    stop = threading.Event()

    def script(peer):
        peer.request()
        peer.send(HEAD, chunk(TOKEN))
        while not stop.wait(0.01):
            peer.send(chunk(b": keep-alive\n\n"))

    transport = TRANSPORTS[name](None)
    limits = Timeouts(ttft=GUARD_S, read=0.3, ttft_scales=False)
    record = caller(serve(script).url(path="/v1"), transport, timeouts=limits).run(Call(lambda: prompt, {}))
    stop.set()
    transport.close()
    assert (record.outcome, record.token_events) == ("read_timeout", 1)
    assert record.done_ms < 5000


@pytest.mark.parametrize("name", sorted(TRANSPORTS))
def test_an_answer_without_an_end_is_ended(name, serve, caller, prompt):
    """Tokens for ever: four times what was asked for and some more are read, then it is a fault of the server."""

    def script(peer):
        peer.request()
        peer.send(HEAD)
        with contextlib.suppress(OSError):
            while True:
                peer.send(chunk(TOKEN * 10))

    transport = TRANSPORTS[name](None)
    made = caller(serve(script).url(path="/v1"), transport, ask={"max_tokens": 9})
    record = made.run(Call(lambda: prompt, {}))
    transport.close()
    assert record.outcome == "protocol_error"
    assert record.token_events > most_events(9) == 100
    said = re.search(r"after (\d+) token events, far more than max_tokens", record.error_message)
    # The last read may have held a whole event that only its blank line was missing from.
    assert record.token_events - int(said[1]) in (0, 1)


PATCHED = """
import gevent.monkey
gevent.monkey.patch_all()
import json, ssl, sys, time
import gevent
from loadkit.call.choose import TRANSPORTS
from loadkit.call.connection import Connection
from loadkit.call.transport import WireRequest
from loadkit.record.names import Outcome

name, plain, tls, cafile, users = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])
context = ssl.create_default_context(cafile=cafile)

class Sink:
    settled = False
    alike = (b"", b"")
    def __init__(self): self.body, self.marks, self.begun = b"", [], time.perf_counter_ns()
    def connecting(self, ns): pass
    def connected(self, a, b): self.marks.append("connected")
    def sending(self, ns): self.marks.append("sending")
    def sent(self, ns): self.marks.append("sent")
    def head(self, ns, status, headers): self.marks.append(status)
    def read(self, ns, data): self.body += data; return False
    def deadline(self, now): return self.begun + 20_000_000_000, Outcome.TTFT_TIMEOUT

def one(url):
    sink, transport = Sink(), TRANSPORTS[name](context)
    end = transport.exchange(WireRequest("POST", url, (), (b"{}", b"x" * 500_000)), sink)
    transport.close()
    return [end.how, end.detail, sink.marks, sink.body.decode()]

for url in (plain, tls):
    greenlets = [gevent.spawn(one, url) for _ in range(users)]
    gevent.joinall(greenlets, timeout=25)
    print(json.dumps([g.value for g in greenlets]))
"""


@pytest.mark.parametrize("name", sorted(TRANSPORTS))
def test_in_a_patched_process(name, serve, certificates, certificate_folder):
    """Under gevent's patching users overlap, over TCP and TLS: the server answers none before all have asked."""
    users = 6

    def script(barrier):
        def play(peer):
            peer.request()
            barrier.wait(GUARD_S)
            peer.send(HEAD, chunk(b"data: x\n\n") + b"0\r\n\r\n")
            peer.gone()

        return play

    plain = serve(*[script(threading.Barrier(users))] * users)
    tls = serve(*[script(threading.Barrier(users))] * users, tls=certificates[0])
    argv = [name, plain.url(), tls.url(), str(certificate_folder / "cert.pem"), str(users)]
    done = subprocess.run(
        [sys.executable, "-c", PATCHED, *argv], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    good = ["eof", "", ["connected", "sending", "sent", 200], "data: x\n\n"]
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[good] * users] * 2, done.stderr


def test_reads_are_stamped_between_greenlets_that_go_on():
    """Of greenlets whose exchanges ended together, one goes on per round of the loop; a socket is read in between."""
    hub, order = gevent.get_hub(), []
    ours, theirs = socket.socketpair()

    def user(number):
        waiter = Waiter(hub)
        shared(hub).wake(waiter)
        waiter.get()
        order.append(number)
        theirs.send(b"x")

    readable = hub.loop.io(ours.fileno(), 1)
    readable.start(lambda: order.append(ours.recv(10).decode()))
    gevent.joinall([gevent.spawn(user, number) for number in range(4)], timeout=GUARD_S)
    readable.stop()
    ours.close()
    theirs.close()
    assert order[:7] == [0, "x", 1, "x", 2, "x", 3]
    assert shared(hub) is shared(hub)


def test_a_rest_lets_sockets_be_read():
    """Bytes that came while one user was busy are read before the next thing it does; greenlets rest in turn."""
    order = []
    ours, theirs = socket.socketpair()
    readable = gevent.get_hub().loop.io(ours.fileno(), 1)
    readable.start(lambda: order.append(ours.recv(10).decode()))

    def user(number):
        theirs.send(b"x")
        order.append(f"end {number}")
        rest()
        order.append(f"build {number}")
        theirs.send(b"y")

    gevent.joinall([gevent.spawn(user, number) for number in range(2)], timeout=GUARD_S)
    gevent.sleep(0.01)
    readable.stop()
    ours.close()
    theirs.close()
    assert order == ["end 0", "end 1", "xx", "build 0", "y", "build 1", "y"]
