"""A request leaves nothing behind that only the cyclic collector could free: it is off while streams are measured."""

import gc

import pytest

from loadkit.call.wire import ResponseReader

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
ANSWERS = {
    "chunked": HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "counted": HEAD + b"Content-Length: 3\r\n\r\nabc",
    "until close": HEAD + b"\r\nabc",
    "in mid-head": HEAD,
    "no answer": b"220 hello\r\n\r\n",
}


@pytest.fixture
def garbage():
    """garbage(function): what calling it leaves for the cyclic collector."""

    def left(function):
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            function()
            gc.collect()
            return list(gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()

    return left


@pytest.mark.parametrize("name", ANSWERS)
def test_a_reader_that_is_done_with_is_gone(garbage, name):
    """However the body is framed, and wherever it stopped."""

    def read():
        ResponseReader().feed(ANSWERS[name])

    assert garbage(read) == []


def test_a_cycle_would_be_seen(garbage):
    """The tests above can fail: a list that holds itself is left."""

    def cycle():
        ring = []
        ring.append(ring)

    assert len(garbage(cycle)) == 1
