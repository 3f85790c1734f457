"""Answers written out read by read, and a server's side that plays one on a socket.

A case is a dict: `status`, `headers`, `reads` = [[ms, part, ...], ...] or a whole `body`, and `end` = {"how": ...}.
A part is text as it stands, {"hex"} bytes, or a chat chunk in short form: {"delta", "finish", "usage"}; `style` says
how chunks are spelled. `how` names the end and with it the framing of the body:

    eof            close-delimited, ended by a FIN          reset          chunked, then a RST
    chunked_end    chunked, properly ended                  open, stall    chunked, then silence on an open socket
    short_chunked  chunked, a FIN without the last chunk    counted_end    Content-Length, complete
    short_counted  Content-Length, cut by a FIN

A `body` without an end has a Content-Length. `status` null sends nothing before the end.
"""

import contextlib
import json
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

SEPARATORS = {"compact": (",", ":"), "spaced": (", ", ": ")}
HEADS: dict[str, dict[str, Any]] = {
    "compact": {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"},
    "spaced": {"id": "c1", "object": "chat.completion.chunk", "model": "m", "created": 1},
}
SHORT_BY = 100  # bytes a cut body with a Content-Length promised and did not send
Case = dict[str, Any]
Read = tuple[float, bytes]


def load(path: Path) -> list[Case]:
    """The cases of a file."""
    return json.loads(path.read_text(encoding="utf-8"))["cases"]


def part_bytes(part: Any, style: dict[str, str]) -> bytes:
    """One part of a read."""
    if isinstance(part, str):
        return part.encode()
    if "hex" in part:
        return bytes.fromhex(part["hex"])
    spacing = style.get("spacing", "compact")
    doc = dict(HEADS[spacing])
    doc["choices"] = []
    if "delta" in part:
        doc["choices"] = [{"index": 0, "delta": part["delta"], "finish_reason": part.get("finish")}]
    if "usage" in part:
        prompt, completion, *more = part["usage"]
        totals = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        doc["usage"] = totals | (more[0] if more else {})
    data = json.dumps(doc, ensure_ascii=False, separators=SEPARATORS[spacing])
    ends = style.get("eol", "\n") * 2
    return f"{style.get('before', '')}{style.get('data', 'data: ')}{data}{ends}".encode()


def reads_of(case: Case) -> list[Read]:
    """The reads of a case: [(ms, bytes)]."""
    if "body" in case:
        body = case["body"]
        return [(1.0, (body if isinstance(body, str) else json.dumps(body)).encode())]
    style = case.get("style", {})
    reads = [(at, b"".join(part_bytes(part, style) for part in parts)) for at, *parts in case["reads"]]
    step = case.get("one_byte_every_ms")
    if step is None:
        return reads
    start, data = reads[0]
    return [(start + step * i, data[i : i + 1]) for i in range(len(data))]


def how_of(case: Case) -> str:
    """How the case ends."""
    return (case.get("end") or {"how": "counted_end"})["how"]


def head_of(case: Case) -> bytes:
    """The response head, with the header that frames the body; nothing where the case has no status."""
    if case["status"] is None:
        return b""
    how, size = how_of(case), sum(len(data) for _, data in reads_of(case))
    if how == "eof":
        framing = ("Connection", "close")
    elif how in ("counted_end", "short_counted"):
        framing = ("Content-Length", str(size + (SHORT_BY if how == "short_counted" else 0)))
    else:
        framing = ("Transfer-Encoding", "chunked")
    lines = [f"HTTP/1.1 {case['status']} Said", *(f"{k}: {v}" for k, v in (*case["headers"].items(), framing))]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def play(sock: socket.socket, case: Case, before: Callable[[int], None]) -> None:
    """Answer a request that has been read, and wait until the client has closed.

    `before(i)` is called just before read i is written, and once more, with the number of reads, before the end.
    """
    how, reads, head = how_of(case), reads_of(case), head_of(case)
    chunked = b"chunked\r\n" in head
    if head:
        sock.sendall(head)
    for index, (_, data) in enumerate(reads):
        before(index)
        sock.sendall(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
    before(len(reads))
    _finish(sock, how)


def _finish(sock: socket.socket, how: str) -> None:
    if how == "reset":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        return
    if how == "chunked_end":
        sock.sendall(b"0\r\n\r\n")
    if how in ("eof", "short_chunked", "short_counted"):
        sock.shutdown(socket.SHUT_WR)
    with contextlib.suppress(OSError):
        while sock.recv(65536):  # until the client has closed
            pass
