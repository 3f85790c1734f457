"""The sans-IO response reader: every framing, every split, every limit, and h11 as the second opinion."""

import itertools

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.call.wire import ResponseReader, WireLimits

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def read(*pieces, method="POST", limits=None):
    """Feed the pieces; return (reader, body)."""
    reader = ResponseReader(method, limits)
    return reader, b"".join(reader.feed(piece) for piece in pieces)


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


WHOLE = {
    "chunked": (CHUNKED + chunk(b"data: a\n\n") + chunk(b"b" * 300) + b"0\r\n\r\n", b"data: a\n\n" + b"b" * 300),
    "chunk extensions and padding": (CHUNKED + b"3;x=y\r\nabc\r\n2 \r\nde\r\n000\r\n\r\n", b"abcde"),
    "trailers": (CHUNKED + chunk(b"abc") + b"0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n", b"abc"),
    "content-length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
    "same length twice": (b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
    "no body by length": (b"HTTP/1.1 429 \r\nContent-Length: 0\r\n\r\n", b""),
    "no body by status": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "1xx first": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\nLink: x\r\n\r\n" + CHUNKED + b"0\r\n\r\n", b""),
    "no reason": (b"HTTP/1.1 413\r\nContent-Length: 2\r\n\r\nno", b"no"),
    "bare LF in the head": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", b"hi"),
    "both framings": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"x") + b"0\r\n\r\n",
        b"x",
    ),
}

BROKEN = {
    "another protocol": b"SSH-2.0-OpenSSH_9.7\r\n",
    "HTTP/2": b"HTTP/2 200\r\n\r\n",
    "TLS bytes": b"\x15\x03\x03\x00\x02\x02\x28",
    "bad status": b"HTTP/1.1 2x0 OK\r\n\r\n",
    "status 99": b"HTTP/1.1 099 \r\n\r\n",
    "switching protocols": b"HTTP/1.1 101 \r\nUpgrade: x\r\n\r\n",
    "blank before colon": b"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n",
    "no colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    "zero byte": b"HTTP/1.1 200 OK\r\nA: b\x00c\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    "endless length": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    "word as length": b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
    "gzip coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    "chunk size not hex": CHUNKED + b"xyz\r\n",
    "negative chunk size": CHUNKED + b"-3\r\nabc\r\n",
    "empty chunk size": CHUNKED + b"\r\n",
    "chunk size too long": CHUNKED + b"1" * 40 + b"\r\n",
    "bare LF after chunk size": CHUNKED + b"3\nabc\r\n",
    "chunk without its end": CHUNKED + b"3\r\nabcdef\r\n",
    "endless chunk size line": CHUNKED + b"3;" + b"x" * 20_000,
    "endless trailers": CHUNKED + b"0\r\n" + b"X-A: b\r\n" * 20_000,
    "bad trailer": CHUNKED + b"0\r\nnonsense\r\n",
    "endless head": b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 20_000,
    "endless header line": b"HTTP/1.1 200 OK\r\nX-A: " + b"b" * 100_000,
    "long header line": b"HTTP/1.1 200 OK\r\nX-A: " + b"b" * 17_000 + b"\r\n\r\n",
    "too many headers": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 201 + b"\r\n",
    "endless 1xx": b"HTTP/1.1 100 Continue\r\n\r\n" * 4_000,
}


@pytest.mark.parametrize("name", WHOLE)
def test_every_framing_gives_its_body(name):
    """A whole response in one read yields its body and its proper end."""
    raw, body = WHOLE[name]
    reader, found = read(raw)
    assert (reader.error, reader.finished, reader.excess, found) == (None, True, False, body)


@pytest.mark.parametrize("name", WHOLE)
def test_bytes_one_by_one(name):
    """Nothing depends on where the network cuts: one byte per read gives the same body and end."""
    raw, body = WHOLE[name]
    reader, found = read(*(raw[at : at + 1] for at in range(len(raw))))
    assert (reader.error, reader.finished, found) == (None, True, body)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_responses_are_named_and_bounded(name):
    """A response that breaks the rules sets `error`, in one read or many, and further bytes change nothing."""
    raw = BROKEN[name]
    for size in (len(raw), 7):
        reader, _ = read(*(raw[at : at + size] for at in range(0, len(raw), size)))
        assert reader.error
        assert not reader.finished
        assert reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx") == b""


def test_body_before_a_broken_chunk_is_kept():
    """What came before the damage in the same read is still told."""
    reader, body = read(CHUNKED + chunk(b"data: a\n\n") + b"zz\r\n")
    assert body == b"data: a\n\n"
    assert reader.error == "illegal chunk size"


def test_close_delimited_body_ends_with_the_connection():
    """Without length or coding the body is all that comes, and a FIN is its proper end; keep-alive is off."""
    reader, body = read(b"HTTP/1.1 200 OK\r\n\r\nab", b"cd")
    assert body == b"abcd"
    assert (reader.finished, reader.open_ended, reader.reusable) == (False, True, False)


@pytest.mark.parametrize(
    ("raw", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: keep-alive, Close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", False),
    ],
)
def test_when_a_connection_may_be_used_again(raw, reusable):
    """HTTP/1.1 without `close` and with one framing only."""
    reader, _ = read(raw)
    assert (reader.finished, reader.reusable) == (True, reusable)


def test_bytes_after_the_end_are_seen_and_not_told():
    """A pipelined second answer is no part of the first."""
    for pieces in ((CHUNKED + chunk(b"a") + b"0\r\n\r\nHTTP/1.1 200 OK\r\n",), (CHUNKED + b"0\r\n\r\n", b"x")):
        reader, body = read(*pieces)
        assert reader.finished
        assert reader.excess
        assert body in (b"a", b"")


def test_head_request_has_no_body():
    """The method decides, whatever length the head states."""
    reader, _ = read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", method="HEAD")
    assert reader.finished


def test_folded_header_lines_are_joined():
    """A folded line continues the value before it."""
    reader, _ = read(b"HTTP/1.1 200 OK\r\nX-A: one\r\n  two\r\nContent-Length: 0\r\n\r\n")
    assert reader.headers[0] == ("X-A", "one two")


def test_limits_are_the_callers():
    """A smaller limit is kept to the byte."""
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    assert read(raw, limits=WireLimits(head_bytes=len(raw)))[0].error is None
    assert read(raw, limits=WireLimits(head_bytes=len(raw) - 1))[0].error == "response head longer than 37 bytes"


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
def test_no_bytes_can_make_it_raise(noise, cuts):
    """Any bytes, behind nothing, a status line or a chunked head, are survived."""
    for opening in (b"", b"HTTP/1.1 200 OK\r\n", CHUNKED):
        raw = opening + noise
        edges = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
        read(*(raw[a:b] for a, b in itertools.pairwise(edges)))


def by_h11(raw):
    """(status, body, error seen) of the response as h11 reads it, without the connection's end."""
    peer = h11.Connection(h11.CLIENT)
    peer.send(h11.Request(method="POST", target="/", headers=[("Host", "h"), ("Content-Length", "0")]))
    peer.send(h11.EndOfMessage())
    status, body = None, b""
    try:
        peer.receive_data(raw)
        while True:
            event = peer.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif event in (h11.NEED_DATA, h11.PAUSED) or isinstance(event, h11.EndOfMessage):
                return status, body, False
    except h11.RemoteProtocolError:
        return status, body, True


@given(st.data())
def test_h11_reads_the_same(data):
    """On valid and on damaged responses status, body and refusal are those of h11."""
    raw = data.draw(st.sampled_from([raw for raw, _ in WHOLE.values()]))
    at = data.draw(st.integers(0, len(raw)))
    raw = raw[:at] + data.draw(st.sampled_from([b"", b"\r", b"\n", b" ", b":", b"0", b"5", b"x"])) + raw[at:]
    reader, body = read(raw)
    status, expected, refused = by_h11(raw)
    if reader.error is None:
        assert (reader.status, body, refused) == (status, expected, False)


sizes = st.lists(st.sampled_from([b"a", b"bc", b"\r\n", b"0\r\n\r\n", b"x" * 17]), min_size=1, max_size=12)
spellings = st.sampled_from(["%x\r\n", "%X\r\n", "0%x\r\n", "%x;n=1\r\n", "%x \r\n"])


@given(sizes, spellings, st.lists(st.integers(0, 200), max_size=6), st.booleans())
def test_chunks_that_are_reads_of_their_own(pieces, spelling, cuts, whole):
    """A chunk a read, again and again, or cut anywhere: the body is the same, and so is its end."""
    chunks = [(spelling % len(piece)).encode() + piece + b"\r\n" for piece in pieces]
    raw = b"".join(chunks)
    edges = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
    reads = chunks if whole else [raw[a:b] for a, b in itertools.pairwise(edges)]
    reader, body = read(CHUNKED, *reads, b"0\r\n\r\n")
    assert (body, reader.finished, reader.error, reader.excess) == (b"".join(pieces), True, None, False)


@pytest.mark.parametrize("wrong", [b"3\r\nabcXX", b"3\r\nabcd\r\n", b"+3\r\nabc\r\n", b"3_0\r\nabc\r\n"])
def test_a_read_like_the_one_before_is_still_checked(wrong):
    """After chunks that were whole reads, one of almost the same shape is refused as it always is."""
    reader, body = read(CHUNKED, b"3\r\nabc\r\n", b"3\r\ndef\r\n", wrong)
    assert reader.error in ("chunk data not followed by CRLF", "illegal chunk size")
    assert body.startswith(b"abcdef")
