"""How the embedded engine serves several streams: ratios within one run, so that the machine's speed is in both sides.

    python benchmarks/engine_serving.py [--model MODEL] [--threads 2] [--tokens 96] [--rounds 3]

Together: tokens per second of eight streams that decode at the same time, over those of one alone.
Beside a long prompt: while a prompt of 2,000 tokens is read, how long the gaps between the tokens of four other streams
become, over their median before it came.

Without --model the real weights are taken where they are, else the built-in model.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from loadkit.measure.quantile import nearest_rank
from loadkit.target.weights import find

STREAMS, OTHERS, LONG = 8, 4, 2000
WARM = 24  # tokens of each of the others before the long prompt is sent


class Stream:
    """One request for a stream of tokens; `times` are when each arrived, in seconds."""

    def __init__(self, port: int, prompt: list[int], tokens: int) -> None:
        self._port = port
        self._body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True}
        self.times: list[float] = []
        self.timings: dict[str, Any] = {}

    async def run(self) -> None:
        """Send, and read to the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        body = json.dumps(self._body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        status = await reader.readline()
        if b" 200 " not in status:
            raise SystemExit(f"the engine says: {(await reader.read()).decode()[-300:]}")
        async for line in reader:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if "error" in event:
                    raise SystemExit(f"the engine says: {event['error']['message']}")
                if event["choices"][0]["finish_reason"] is None:
                    self.times.append(time.perf_counter())
                self.timings = event.get("timings", self.timings)
        writer.close()

    @property
    def gaps(self) -> list[float]:
        """Seconds between one token and the next."""
        return [late - early for early, late in zip(self.times, self.times[1:], strict=False)]


async def together(port: int, streams: int, tokens: int) -> float:
    """Tokens per second of some streams while all of them decode."""
    run = [Stream(port, [100 + index, 7, 8, 9], tokens) for index in range(streams)]
    await asyncio.gather(*(stream.run() for stream in run))
    begin, end = max(stream.times[0] for stream in run), min(stream.times[-1] for stream in run)
    return sum(begin < at <= end for stream in run for at in stream.times) / (end - begin)


async def beside(port: int, tokens: int) -> dict[str, float]:
    """Gaps of the other streams, in seconds, before a long prompt is sent and while it is read."""
    others = [Stream(port, [200 + index, 7, 8, 9], tokens) for index in range(OTHERS)]
    running = [asyncio.create_task(stream.run()) for stream in others]
    while min(len(stream.times) for stream in others) < WARM:
        await asyncio.sleep(0.005)
    long = Stream(port, [5 + index % 90 for index in range(LONG)], 1)
    sent = time.perf_counter()
    await long.run()
    if any(task.done() for task in running):
        raise SystemExit("the other streams ended before the long prompt was read")
    for task in running:
        task.cancel()
    before = [gap for stream in others for at, gap in zip(stream.times[1:], stream.gaps, strict=True) if at <= sent]
    during = [gap for stream in others for at, gap in zip(stream.times[1:], stream.gaps, strict=True) if at > sent]
    return {
        "median": statistics.median(before),
        "p50": nearest_rank(during, 0.5) or 0.0,
        "p99": nearest_rank(during, 0.99) or 0.0,
        "max": max(during),
        "n": len(during),
        "ttft": long.times[0] - sent,
    }


async def measure(port: int, tokens: int, rounds: int, window: int) -> None:
    """Both measurements, and one line for each round."""
    ratios = []
    for _ in range(rounds):
        one, eight = await together(port, 1, tokens), await together(port, STREAMS, tokens)
        ratios.append(eight / one)
        print(f"one stream {one:7.1f} tokens/s   {STREAMS} streams {eight:7.1f} tokens/s   ratio {ratios[-1]:.2f}")
    stretched = []
    for _ in range(rounds):
        gap = await beside(port, window - 8)
        stretched.append(gap["p99"] / gap["median"])
        print(
            f"gaps of {OTHERS} streams: median before {1e3 * gap['median']:6.1f} ms; while {LONG} tokens are read "
            f"({gap['ttft']:.1f} s, {gap['n']} gaps): p50 {1e3 * gap['p50']:6.1f}, p99 {1e3 * gap['p99']:6.1f}, "
            f"max {1e3 * gap['max']:6.1f} ms   p99 to median {stretched[-1]:.2f}"
        )
    print(f"{STREAMS} streams over one: {statistics.median(ratios):.2f} (at least 3 is asked)")
    print(f"ITL p99 beside a long prompt over the median before: {statistics.median(stretched):.2f} (below 3 is asked)")


def main() -> None:
    """Start an engine, measure, end it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default=str(find(os.environ, Path.cwd()) or "builtin"))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tokens", type=int, default=96, help="tokens of each stream of the first measurement")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    command = [sys.executable, "-m", "loadkit.engine", "serve", "--stdin-guard", "--model", options.model]
    command += ["--threads", str(options.threads), "--slots", str(STREAMS), "--queue", "32"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as engine:
        assert engine.stdout is not None
        line = engine.stdout.readline()
        if not line:
            raise SystemExit("the engine did not start")
        ready = json.loads(line)
        size = f"{ready['parameters'] / 1e6:.0f} M parameters, window {ready['context']}"
        print(f"{ready['model']}, {size}, {ready['threads']} threads, {ready['blas']}")
        port = int(ready["url"].rsplit(":", 1)[1].split("/")[0])
        asyncio.run(measure(port, options.tokens, options.rounds, ready["context"]))
        assert engine.stdin is not None
        engine.stdin.close()


if __name__ == "__main__":
    main()
