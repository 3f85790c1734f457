"""The process around a Sim: an event loop with fine timers, the ready line, and the ways in which it ends."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import logging
import os
import resource
import select
import selectors
import signal
import sys
import threading
from typing import Any

from loadkit.sim.count import BOS_TOKENS, TEMPLATE_TOKENS
from loadkit.sim.server import Settings, Sim

log = logging.getLogger("loadkit.sim")

BACKLOG = 1024
MAX_FILES = 65536
COLLECT_EVERY_S = 5.0


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop whose timers are exact to the kernel's slack. asyncio's own epoll selector rounds every timeout up
    to a whole millisecond; select() on the epoll descriptor takes microseconds."""
    if not hasattr(selectors, "EpollSelector"):
        return asyncio.new_event_loop()

    class FineSelector(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> list[Any]:
            if timeout is not None and timeout > 0:
                if not select.select([self.fileno()], (), (), timeout)[0]:
                    return []
                timeout = 0
            return super().select(timeout)

    return asyncio.SelectorEventLoop(FineSelector())


def raise_file_limit() -> None:
    """Allow as many connections as the system lets this process have; the usual soft limit of 1024 is too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def serve(settings: Settings, host: str, port: int, stdin_guard: bool) -> None:
    """Serve until SIGTERM, SIGINT or (with `stdin_guard`) the end of stdin. OSError when the port cannot be had."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.set_exception_handler(_log_one_line)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if stdin_guard:
        threading.Thread(target=_watch_stdin, args=(loop, stop), daemon=True).start()
    sim = Sim(settings)
    server = await loop.create_server(sim.connection, host, port, backlog=BACKLOG)
    print(json.dumps(_ready(settings, host, server.sockets[0].getsockname()[1])), flush=True)
    gc.freeze()
    gc.disable()
    collecting = loop.create_task(_collect_when_idle(sim))
    await stop.wait()
    collecting.cancel()
    server.close()


def _ready(settings: Settings, host: str, port: int) -> dict[str, Any]:
    name = f"[{host}]" if ":" in host else host
    root = f"http://{name}:{port}"
    law = {key: value for key, value in dataclasses.asdict(settings.law).items() if value is not None}
    return {
        "ready": True,
        "url": f"{root}/v1",
        "model": settings.model,
        "pid": os.getpid(),
        "truth": f"{root}/sim/truth",
        "window": settings.law.window,
        "bytes_per_token": settings.bytes_per_token,
        "template_tokens": TEMPLATE_TOKENS,
        "bos_tokens": BOS_TOKENS,
        "slots": settings.slots,
        "queue": settings.queue,
        "seed": settings.seed,
        "time_scale": settings.time_scale,
        "law": law,
    }


async def _collect_when_idle(sim: Sim) -> None:
    """The collector is off because a full collection would hold the loop; cycles of closed connections go here."""
    while True:
        await asyncio.sleep(COLLECT_EVERY_S)
        if sim.idle:
            gc.collect(1)


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    # os.read, because a thread blocked in sys.stdin would hold its lock when the interpreter ends.
    while True:
        try:
            if not os.read(sys.stdin.fileno(), 65536):
                break
        except OSError:
            break
    loop.call_soon_threadsafe(stop.set)


def _log_one_line(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    log.warning("%s: %s", context.get("message", "error"), f"{type(error).__name__}: {error}"[:200])
