"""Throughput of the four stream parsers, with `json.loads` behind a naive line splitter beside it in the same run.

    python benchmarks/parsers.py [--events 2000] [--repeat 5]

The naive reader splits at line ends and parses every payload, and draws nothing from it: no channels, usage, errors or
marks, no other line ends. Chunks are `plain`, where they differ in their text only, or `changing`, where something else
differs in each: running usage (OpenAI), the content block (Anthropic), the time of day (Ollama, as it really is).
A read brings 1 or 16 events, or half of one. The best of the repeats counts, as the machine's noise only adds.
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice
from typing import Any

from loadkit.prompt.filler import filler
from loadkit.protocol import PROTOCOLS

COLUMNS = ("protocol", "chunks", "read", "events/s", "us/event", "MB/s", "naive us/event", "ratio")
BATCH = 16
Reads = list[bytes]


def chat(number: int, word: str, changing: bool) -> dict[str, Any]:
    """A chunk of /chat/completions as vLLM writes it."""
    choice = {"index": 0, "delta": {"content": word}, "logprobs": None, "finish_reason": None}
    return openai("chat.completion.chunk", choice, number, changing)


def completion(number: int, word: str, changing: bool) -> dict[str, Any]:
    """A chunk of /completions."""
    choice = {"index": 0, "text": word, "logprobs": None, "finish_reason": None, "stop_reason": None}
    return openai("text_completion", choice, number, changing)


def openai(kind: str, choice: dict[str, Any], number: int, changing: bool) -> dict[str, Any]:
    """What both have around the choice."""
    usage = {"prompt_tokens": 512, "total_tokens": 513 + number, "completion_tokens": 1 + number}
    head = {"id": "chatcmpl-6f1c2a9be0d84d17", "object": kind, "created": 1767225600, "model": "llama-3.1-8b"}
    return head | {"choices": [choice]} | ({"usage": usage} if changing else {})


def anthropic(number: int, word: str, changing: bool) -> dict[str, Any]:
    """A content_block_delta of /v1/messages."""
    delta = {"type": "text_delta", "text": word}
    return {"type": "content_block_delta", "index": number if changing else 0, "delta": delta}


def ollama(number: int, word: str, changing: bool) -> dict[str, Any]:
    """A line of /api/chat."""
    at = f"2026-01-01T00:00:00.{number if changing else 0:06d}Z"
    return {"model": "llama3.1", "created_at": at, "message": {"role": "assistant", "content": word}, "done": False}


CHUNKS: dict[str, Callable[[int, str, bool], dict[str, Any]]] = {
    "openai-chat": chat,
    "openai-completions": completion,
    "anthropic": anthropic,
    "ollama": ollama,
}
BEFORE = {"anthropic": b"event: content_block_delta\ndata: ", "ollama": b""}
AFTER = {"ollama": b"\n"}
TYPES = {"ollama": "application/x-ndjson"}


def events_of(protocol: str, count: int, changing: bool) -> Reads:
    """Token events as bytes; their words are those of a natural text, some with a line end to escape."""
    words = cycle(re.findall(r"\s?\S{1,6}", filler("en").text))
    before, after = BEFORE.get(protocol, b"data: "), AFTER.get(protocol, b"\n\n")
    return [
        before + json.dumps(CHUNKS[protocol](number, word, changing), separators=(",", ":")).encode() + after
        for number, word in enumerate(islice(words, count))
    ]


def halves(events: Reads) -> Iterator[bytes]:
    """Each event in two reads."""
    for event in events:
        yield event[: len(event) // 2]
        yield event[len(event) // 2 :]


CUTS: dict[str, Callable[[Reads], Reads]] = {
    "1 event": list,
    f"{BATCH} events": lambda events: [b"".join(events[at : at + BATCH]) for at in range(0, len(events), BATCH)],
    "half": lambda events: list(halves(events)),
}


def ours(protocol: str, reads: Reads) -> int:
    """Feed a parser; the token events it found."""
    parser = PROTOCOLS[protocol].parser(TYPES.get(protocol, "text/event-stream"), 200)
    for read in reads:
        parser.feed(time.perf_counter_ns(), read)
    return len(parser.answer.event_times)


def naive(protocol: str, reads: Reads) -> int:
    """Split at line ends and parse what follows `data: `; the payloads parsed."""
    prefix = BEFORE.get(protocol, b"data: ").rpartition(b"\n")[2]
    rest, stamps = b"", []
    for read in reads:
        at = time.perf_counter_ns()
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            if line and line.startswith(prefix):
                json.loads(line[len(prefix) :])
                stamps.append(at)
    return len(stamps)


def seconds(reader: Callable[[str, Reads], int], protocol: str, reads: Reads, events: int, repeat: int) -> float:
    """The shortest time in which the reader found all events."""
    best = float("inf")
    for _ in range(repeat):
        started = time.perf_counter()
        found = reader(protocol, reads)
        best = min(best, time.perf_counter() - started)
        if found != events:
            raise SystemExit(f"{reader.__name__} found {found} of {events} events of {protocol}")
    return best


def row(protocol: str, changing: bool, cut: str, count: int, repeat: int) -> str:
    """One line of the table."""
    events = events_of(protocol, count, changing)
    reads = CUTS[cut](events)
    mine, theirs = (seconds(reader, protocol, reads, count, repeat) for reader in (ours, naive))
    cells = [
        protocol,
        "changing" if changing else "plain",
        cut,
        f"{count / mine:,.0f}",
        f"{mine / count * 1e6:.2f}",
        f"{sum(map(len, events)) / mine / 1e6:.1f}",
        f"{theirs / count * 1e6:.2f}",
        f"{mine / theirs:.2f}",
    ]
    return line(cells)


def line(cells: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2000, help="events of one answer")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    print(line(COLUMNS))
    print(line("---" for _ in COLUMNS))
    for protocol in PROTOCOLS:
        for changing in (False, True):
            for cut in CUTS:
                print(row(protocol, changing, cut, args.events, args.repeat), flush=True)


if __name__ == "__main__":
    main()
