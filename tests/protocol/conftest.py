"""Written-out streams: streams.json holds chunks in short form, these fixtures turn them into bytes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SEPARATORS = {"compact": (",", ":"), "spaced": (", ", ": ")}
HEADS: dict[str, dict[str, Any]] = {
    "compact": {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"},
    "spaced": {"id": "c1", "object": "chat.completion.chunk", "model": "m", "created": 1},
}
Read = tuple[float, bytes]


def chunk_bytes(part: Any, style: dict[str, str]) -> bytes:
    """One part of a read: text as it stands, {"hex"} bytes, else a chat chunk of delta, finish, usage."""
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


def case_reads(case: dict[str, Any]) -> list[Read]:
    """The reads of a case: [(ms, bytes)]."""
    if "body" in case:
        body = case["body"]
        return [(1.0, (body if isinstance(body, str) else json.dumps(body)).encode())]
    style = case.get("style", {})
    reads = [(at, b"".join(chunk_bytes(part, style) for part in parts)) for at, *parts in case["reads"]]
    step = case.get("one_byte_every_ms")
    if step is None:
        return reads
    start, data = reads[0]
    return [(start + step * i, data[i : i + 1]) for i in range(len(data))]


@pytest.fixture(scope="session")
def reads_of() -> Callable[[dict[str, Any]], list[Read]]:
    """Turns a case of streams.json into reads."""
    return case_reads


@pytest.fixture(scope="session")
def chunk() -> Callable[..., bytes]:
    """One chat chunk in the compact style: chunk(delta={...}, finish=..., usage=[...])."""
    return lambda style=None, **part: chunk_bytes(part, style or {})


def load_cases() -> list[dict[str, Any]]:
    """All cases of streams.json."""
    return json.loads((Path(__file__).parent / "streams.json").read_text(encoding="utf-8"))["cases"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `case` runs once for every case of streams.json."""
    if "case" in metafunc.fixturenames:
        cases = load_cases()
        metafunc.parametrize("case", cases, ids=[case["name"] for case in cases])
