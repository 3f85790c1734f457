"""Memory bandwidth as this machine's cores see it, named by who reads: it says less than what an NPU or GPU can pull.

A read is glibc's memchr over a buffer that holds no such byte; a copy is memcpy, of which both the bytes read and the
bytes written count. Buffers are far larger than caches (32 MiB each), and ctypes calls run beside each other. The
best of three rounds counts, as in STREAM (McCalpin): what else runs on the machine only takes away.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any

BYTES = 32 << 20
ROUNDS = 3


def measure(seconds: float) -> list[dict[str, Any]]:
    """Readings of about `seconds` each: {"reader", "bytes_per_s"}; one core and all cores reading, all copying."""
    cores = len(os.sched_getaffinity(0))
    wanted = [("CPU 1T read (memchr)", 1, False)]
    if cores > 1:
        wanted.append((f"CPU {cores}T read (memchr)", cores, False))
    wanted.append((f"CPU {cores}T copy (memcpy, bytes read + written)", cores, True))
    return [{"reader": name, "bytes_per_s": _best(threads, copy, seconds)} for name, threads, copy in wanted]


def _best(threads: int, copy: bool, seconds: float) -> float:
    return max(_rate(threads, copy, seconds / ROUNDS) for _ in range(ROUNDS))


def _rate(threads: int, copy: bool, seconds: float) -> float:
    barrier = threading.Barrier(threads)
    spans: list[tuple[float, float, int]] = []
    workers = [threading.Thread(target=_work, args=(barrier, spans, copy, seconds)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    began = min(start for start, _, _ in spans)
    ended = max(end for _, end, _ in spans)
    return sum(moved for _, _, moved in spans) / (ended - began)


def _work(barrier: threading.Barrier, spans: list[tuple[float, float, int]], copy: bool, seconds: float) -> None:
    libc = ctypes.CDLL(None)
    source = ctypes.create_string_buffer(BYTES)
    target = ctypes.create_string_buffer(BYTES if copy else 1)
    size = ctypes.c_size_t(BYTES)
    for buffer in (source, target):
        ctypes.memset(buffer, 1, len(buffer))  # every page is there before the clock runs
    barrier.wait()
    start = time.perf_counter()
    passes = 0
    while time.perf_counter() - start < seconds or not passes:
        if copy:
            libc.memcpy(target, source, size)
        else:
            libc.memchr(source, 7, size)
        passes += 1
    spans.append((start, time.perf_counter(), passes * BYTES * (2 if copy else 1)))
