"""The framing decoders: byte-exact line ends, fields and limits."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadkit.protocol.ndjson import NdjsonDecoder
from loadkit.protocol.sse import SseDecoder


def decode(*reads: bytes, limit: int = 1 << 20) -> list[tuple[bytes | None, bytes]]:
    """All events of some reads, the end of the stream included."""
    decoder = SseDecoder(limit)
    events = [event for read in reads for event in decoder.feed(read)]
    return events + decoder.flush()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_format(end):
    """LF, CRLF and CR end lines alike."""
    assert decode(b"data: a" + end * 2 + b"data: b" + end * 2) == [(None, b"a"), (None, b"b")]


def test_crlf_pair_split_between_reads_is_one_line_end():
    """CR at the end of a read and LF at the start of the next are one end, so the event is not closed early."""
    assert decode(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [(None, b"a\nb")]


@pytest.mark.parametrize("char", ["\u0085", "\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_other_separators_are_text(char):
    """Characters that str.splitlines breaks at do not end a line."""
    assert decode(f"data: x{char}y\n\n".encode()) == [(None, f"x{char}y".encode())]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"\xef\xbb\xbfdata: a\n\n", [(None, b"a")]),
        (b"data:a\n\n", [(None, b"a")]),
        (b"data:  a\n\n", [(None, b" a")]),
        (b"data: a\ndata: b\n\n", [(None, b"a\nb")]),
        (b"data\n\n", [(None, b"")]),
        (b": ping\n\n:\n\n", []),
        (b"event: error\ndata: a\n\ndata: b\n\n", [(b"error", b"a"), (None, b"b")]),
        (b"event:ping\n\ndata: b\n\n", [(None, b"b")]),
        (b"id: 7\nretry: 10\ndata: a\n\n", [(None, b"a")]),
        (b"dat: x\nxdata: y\n\n", []),
        (b"data: a", [(None, b"a")]),
        (b"data: a\n", [(None, b"a")]),
        (b"data: a\n\ndata: [DONE]\n\ndata: b\n\n", [(None, b"a")]),
        (b"data: a\ndata: [DONE]", [(None, b"a")]),
    ],
)
def test_fields(stream, events):
    """Fields are read by the format's rules; what follows [DONE] is not an event."""
    assert decode(stream) == events


@pytest.mark.parametrize("line", [b"data: [DONE]", b"data:[DONE]", b"data:   [DONE]  \n", b"data: [DONE]\r"])
def test_done_needs_no_blank_line(line):
    """The end marker counts as soon as it is there: some servers send no line end and keep the socket open."""
    decoder = SseDecoder()
    decoder.feed(b"data: x\n\n")
    decoder.feed(line)
    assert decoder.done


@pytest.mark.parametrize("line", [b"data: [DON", b": [DONE]\n", b'data: {"a":"[DONE]"}\n\n'])
def test_what_only_looks_like_done(line):
    """Half a marker, a comment and text with the marker inside end nothing."""
    decoder = SseDecoder()
    decoder.feed(line)
    assert not decoder.done


def test_a_bom_counts_only_at_the_start_and_may_be_split():
    """The byte order mark is dropped once, even when it comes in three reads."""
    assert decode(b"\xef", b"\xbb", b"\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n") == [(None, b"a")]


def test_stray_lines_are_noticed():
    """A body that is not an event stream is told apart from one with nothing in it."""
    decoder = SseDecoder()
    decoder.feed(b": ok\n\nevent: x\n\n")
    assert not decoder.stray
    decoder.feed(b'{"error": 1}\n')
    assert decoder.stray


@pytest.mark.parametrize("reads", [[b"data: " + b"x" * 200 + b"\n\n"], [b"data: ", b"x" * 200, b"\n\n"]])
def test_an_event_above_the_limit_is_refused_however_it_is_cut(reads):
    """Memory is bounded: an oversized line sets `overflow` and yields nothing."""
    decoder = SseDecoder(limit=100)
    assert [event for read in reads for event in decoder.feed(read)] == []
    assert decoder.overflow
    assert decoder.flush() == []


def test_many_lines_of_one_event_count_together_against_the_limit():
    """The limit holds for an event, not only for a line."""
    decoder = SseDecoder(limit=100)
    decoder.feed(b"data: " + b"x" * 60 + b"\n")
    assert not decoder.overflow
    decoder.feed(b"data: " + b"x" * 60 + b"\n")
    assert decoder.overflow


def test_two_million_bytes_in_small_reads_take_linear_time():
    """16 MiB in one line pass, and no read costs more the longer the line has grown."""
    decoder = SseDecoder()
    piece = b"x" * 4096
    started = time.perf_counter()
    decoder.feed(b"data: ")
    for _ in range(4096):
        decoder.feed(piece)
    events = decoder.feed(b"\n\n")
    assert len(events[0][1]) == 4096 * 4096
    assert time.perf_counter() - started < 10


@settings(deadline=None)
@given(st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\r", b"").replace(b"\n", b"")), max_size=8), st.data())
def test_decoding_does_not_depend_on_the_cut(lines, data):
    """Any bytes cut into any reads give the same events, end marker and strays."""
    ends = [data.draw(st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n"])) for _ in lines]
    heads = [data.draw(st.sampled_from([b"", b"data:", b"data: ", b"event: ", b":", b"data: [DONE]"])) for _ in lines]
    stream = b"".join(head + line + end for head, line, end in zip(heads, lines, ends, strict=True))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reads = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole, cut = SseDecoder(30), SseDecoder(30)
    events = whole.feed(stream) + whole.flush()
    pieces = [event for read in reads for event in cut.feed(read)] + cut.flush()
    assert pieces == events
    assert (cut.done, cut.stray) == (whole.done, whole.stray)


def test_ndjson_lines():
    """One event per line that is not blank; the last may lack its line end; U+2028 is text."""
    decoder = NdjsonDecoder()
    line = json.dumps({"a": "\u2028"}, ensure_ascii=False).encode()
    assert decoder.feed(line + b"\r\n\n" + line[:4]) == [(None, line)]
    assert decoder.feed(line[4:]) == []
    assert decoder.flush() == [(None, line)]


def test_ndjson_limit():
    """A line above the limit sets `overflow`."""
    decoder = NdjsonDecoder(limit=10)
    assert decoder.feed(b"1\n" + b"2" * 11 + b"\n3\n") == [(None, b"1")]
    assert decoder.overflow
