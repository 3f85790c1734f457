"""The page over a socket: who is answered what, which port, and how long it lingers."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from loadkit.live import render
from loadkit.live.exporter import FINAL_SCRAPES, LEAST_LINGER_S, MOST_LINGER_S, Exporter


class Clock:
    """Seconds that pass only while somebody sleeps; `events` happen on the way: (at, what)."""

    def __init__(self, *events):
        self.at = 100.0
        self.events = sorted(events, key=lambda event: event[0])

    def now(self):
        return self.at

    def sleep(self, seconds):
        self.at += seconds
        while self.events and self.events[0][0] <= self.at:
            self.events.pop(0)[1]()


@pytest.fixture
def serve(registry):
    """serve(registry, port): an exporter that listens."""
    started = []

    def start(made=None, port=0, **options):
        started.append(Exporter(made or registry(), port=port, **options))
        started[-1].start()
        return started[-1]

    yield start
    for exporter in started:
        exporter.stop()


def ask(exporter, text):
    """The raw answer to a raw request."""
    with socket.create_connection(("127.0.0.1", exporter.port), timeout=30) as client:
        client.sendall(text)
        parts = []
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_the_page_is_served_in_the_format_that_is_asked_for(serve, fetch, registry):
    """OpenMetrics for who asks for it, as Prometheus does, else text 0.0.4; the length is right."""
    exporter = serve(registry(cells=[(n, 1) for n in range(1, 60)]))
    kind, text = fetch(exporter.url)
    assert (kind, text.endswith("# EOF\n")) == (render.TEXT, False)
    kind, text = fetch(exporter.url, "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
    assert (kind, text.endswith("# EOF\n")) == (render.OPENMETRICS, True)
    head, _, body = ask(exporter, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    assert int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]) == len(body) > 500_000
    assert len(exporter.scrapes) == 3


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"200"),
        (b"HEAD / HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /favicon.ico HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /metrics?x=1 HTTP/1.1\r\n\r\n", b"200"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\xff\x00\r\n\r\n", b"405"),
    ],
)
def test_other_requests_are_answered_too(serve, request_, status):
    """One line, and the page goes on to be served."""
    exporter = serve()
    assert ask(exporter, request_).split(b" ")[1] == status
    assert ask(exporter, b"GET /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_a_request_without_end_is_cut(serve):
    """More than any scrape says is not read; the page goes on to be served."""
    exporter = serve()
    with socket.create_connection(("127.0.0.1", exporter.port), timeout=30) as client, suppress(ConnectionError):
        while True:
            client.sendall(b"x" * 4096)
    assert ask(exporter, b"GET /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_head_is_no_scrape(serve):
    """A probe of a load balancer has seen no numbers."""
    exporter = serve()
    assert ask(exporter, b"HEAD /metrics HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")
    assert exporter.scrapes == []


def test_clients_that_hang_block_nobody(serve, fetch):
    """Some connect and say nothing; a scrape is answered all the same."""
    exporter = serve()
    idle = [socket.create_connection(("127.0.0.1", exporter.port)) for _ in range(4)]
    assert "loadkit_run_info" in fetch(exporter.url)[1]
    for client in idle:
        client.close()


def test_several_scrape_at_once(serve, fetch):
    """Each gets a whole page."""
    exporter = serve()
    with ThreadPoolExecutor(4) as pool:
        pages = list(pool.map(lambda _: fetch(exporter.url, "application/openmetrics-text")[1], range(4)))
    assert all(text.endswith("# EOF\n") for text in pages)


def test_a_port_that_is_taken_is_passed_over(serve):
    """The next free one is served, and it is known that it is another."""
    first = serve()
    assert not first.moved
    second = serve(port=first.port)
    assert second.port > first.port
    assert second.moved


def test_an_address_of_another_machine_is_an_error(registry):
    """Whoever starts it can say so."""
    with pytest.raises(OSError, match="assign"):
        Exporter(registry(), "192.0.2.1", 0).start()


def test_nothing_listens_after_the_end(serve):
    """The port is free again, and the thread is gone."""
    exporter = serve()
    threads = threading.active_count()
    exporter.stop()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", exporter.port))
    assert threading.active_count() <= threads


def lingering(registry, scrapes, clock, hurried=lambda: False):
    """How long an exporter with these scrapes lingers, and whether the end was seen."""
    exporter = Exporter(registry, now=clock.now, sleep=clock.sleep)
    exporter.scrapes += scrapes
    clock.events = [(at, lambda at=at: exporter.scrapes.append(at)) for at, _ in clock.events]
    since = clock.at
    return exporter.linger(hurried), pytest.approx(clock.at - since, abs=0.15)


def test_nobody_scraped_nobody_is_waited_for(registry):
    """The process ends at once."""
    assert lingering(registry(), [], Clock()) == (False, 0.0)


def test_it_lingers_until_two_scrapes_have_seen_the_end(registry):
    """Not one, which may have begun before; and not a moment longer."""
    clock = Clock((102.0, None), (107.0, None))
    assert FINAL_SCRAPES == 2
    assert lingering(registry(), [92.0, 97.0], clock) == (True, 7.0)


@pytest.mark.parametrize(
    ("scrapes", "longest"), [([99.0], LEAST_LINGER_S), ([80.0, 90.0], 25.0), ([10.0, 70.0], MOST_LINGER_S)]
)
def test_it_does_not_wait_for_ever(registry, scrapes, longest):
    """Two and a half of the intervals that were seen, a minute at most."""
    seen, waited = lingering(registry(), scrapes, Clock())
    assert not seen
    assert waited == longest


def test_a_signal_ends_the_wait(registry):
    """Who presses Ctrl-C has seen enough."""
    clock = Clock()
    assert lingering(registry(), [99.0], clock, hurried=lambda: clock.at >= 101.0) == (False, 1.0)


def test_writing_a_page_gives_way(registry):
    """Between slices of a millisecond others run; a clock that jumps a millisecond a piece shows a pause per piece."""
    pauses = []
    ticks = iter(range(10**6))
    exporter = Exporter(registry(), now=lambda: next(ticks) * 2e-3, sleep=pauses.append)
    pieces = list(exporter._in_slices(iter([b"a", b"b", b"c"])))
    assert pieces == [b"a", b"b", b"c"]
    assert len(pauses) == 3
    assert all(seconds > 0 for seconds in pauses)
