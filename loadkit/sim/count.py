"""Prompt counting without parsing giant strings: the JSON body is scanned as it arrives, and only small strings are
kept. A literal longer than `KEEP` bytes is measured in place and dropped, so a 4 MB prompt costs about a millisecond
in all, spread over its reads, and no memory.

The counting rule: 1 token = `bytes_per_token` UTF-8 bytes of the message text (rounded up over all messages), plus
a fixed template overhead. A lone surrogate half counts 2 bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any

TEMPLATE_TOKENS = 8
BOS_TOKENS = 1
KEEP = 1024
HEAD_BYTES = 64
# Every decoded byte needs at most six raw ones (\u0041), so this many raw bytes always hold the head.
_WINDOW = 8192
_RAW_HEAD = HEAD_BYTES * 6 + 16

_TWO_OR_LESS = re.compile(rb"\\u0[0-7]")
_ONE = re.compile(rb"\\u00[0-7]")
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_LONE = re.compile("[\ud800-\udfff]")


class Text:
    """A string of the body: its size in UTF-8 bytes and its first bytes."""

    __slots__ = ("head", "size")

    def __init__(self, size: int, head: bytes) -> None:
        self.size = size
        self.head = head


def text_of(value: str) -> Text:
    """Measure a string that was kept whole."""
    data = value.encode("utf-8", "surrogatepass")
    lone = 0 if value.isascii() else len(_LONE.findall(value))
    return Text(len(data) - lone, data[:HEAD_BYTES])


def decoded_size(raw: bytes) -> int:
    """UTF-8 bytes of the string whose escaped form is `raw` (whole escapes only)."""
    if b"\\" not in raw:
        return len(raw)
    # Once the escaped backslashes are one plain byte, every backslash left starts an escape of another kind; deleting
    # it leaves the byte it stands for. translate() does it at memory speed however many there are.
    plain = raw.replace(b"\\\\", b".")
    size = len(plain.translate(None, b"\\"))
    wide = plain.count(b"\\u")
    if wide:
        size -= 2 * wide + sum(len(kind.findall(plain)) for kind in (_TWO_OR_LESS, _ONE, _HALF))
    return size


def _whole_escapes(data: bytes, start: int) -> int:
    """The largest cut of data[start:] that splits no escape."""
    end = len(data)
    last = data.rfind(b"\\", max(start, end - 6))
    if last < 0 or _run_before(data, start, last) % 2:
        return end
    needed = 6 if data[last + 1 : last + 2] == b"u" else 2
    return end if last + needed <= end else last


def _run_before(data: bytes, start: int, at: int) -> int:
    """How many backslashes stand in a row just before `at`, not looking further back than `start`."""
    part = data[start:at]
    return len(part) - len(part.rstrip(b"\\"))


class BodyScan:
    """Feed a JSON body in pieces of any size; `parse()` then gives the document with `str` for short strings and
    `Text` for long ones."""

    def __init__(self, keep: int = KEEP) -> None:
        self._keep = keep
        self._skeleton: list[bytes] = []
        self._texts: list[Text] = []
        self._tail = b""
        self._inside = False
        self._raw: list[bytes] = []
        self._raw_size = 0
        self._size = 0

    def feed(self, data: bytes) -> None:
        data = self._tail + data if self._tail else data
        self._tail = b""
        position = 0
        while position < len(data):
            position = self._string(data, position) if self._inside else self._outside(data, position)

    def _outside(self, data: bytes, position: int) -> int:
        quote = data.find(b'"', position)
        if quote < 0:
            self._skeleton.append(data[position:])
            return len(data)
        self._skeleton.append(data[position:quote])
        self._inside = True
        return quote + 1

    def _string(self, data: bytes, position: int) -> int:
        quote = data.find(b'"', position)
        if quote >= 0 and _run_before(data, position, quote) % 2:
            return self._with_quotes(data, position)
        if quote < 0:
            cut = _whole_escapes(data, position)
            self._add(data[position:cut])
            self._tail = data[cut:]
            return len(data)
        self._add(data[position:quote])
        self._close()
        return quote + 1

    def _with_quotes(self, data: bytes, position: int) -> int:
        """A window of a string that holds escaped quotes: hide all of them at once instead of visiting each."""
        end = _whole_escapes(data[: position + _WINDOW], position)
        quote = data[position:end].replace(b"\\\\", b"..").replace(b'\\"', b"..").find(b'"')
        if quote < 0:
            self._add(data[position:end])
            if end == position:
                self._tail = data[position:]
                return len(data)
            return end
        self._add(data[position : position + quote])
        self._close()
        return position + quote + 1

    def _add(self, raw: bytes) -> None:
        self._size += decoded_size(raw)
        if self._raw_size <= self._keep:
            # What goes beyond the limit is needed only for the head, so a giant piece is not held.
            self._raw.append(raw[: max(self._keep, _RAW_HEAD) + 1])
        self._raw_size += len(raw)

    def _close(self) -> None:
        raw = b"".join(self._raw)
        if self._raw_size <= self._keep:
            self._skeleton.append(b'"' + raw + b'"')
        else:
            # NaN is no JSON, so it can stand for "the next long text" without ever meeting a real value.
            self._skeleton.append(b"NaN")
            self._texts.append(Text(self._size, _head(raw)))
        self._inside, self._raw, self._raw_size, self._size = False, [], 0, 0

    def parse(self) -> Any:
        """The document; ValueError when the body is not JSON."""
        if self._inside:
            raise ValueError("unterminated string")
        long_texts = iter(self._texts)

        def constant(name: str) -> Text:
            text = next(long_texts, None) if name == "NaN" else None
            if text is None:
                raise ValueError(f"{name} is not JSON")
            return text

        try:
            document = json.loads(b"".join(self._skeleton).decode("utf-8"), parse_constant=constant)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        if next(long_texts, None) is not None:
            raise ValueError("a long string stands where no value can")
        return document


def _head(raw: bytes) -> bytes:
    first = raw[:_RAW_HEAD]
    start = first[: _whole_escapes(first, 0)].decode("utf-8", "replace")
    try:
        return json.loads(f'"{start}"', strict=False).encode("utf-8", "surrogatepass")[:HEAD_BYTES]
    except ValueError:
        return raw[:HEAD_BYTES]


def tokens_for(size: int, bytes_per_token: int) -> int:
    """Tokens of `size` bytes of text, without any overhead."""
    return -(-size // bytes_per_token)
