"""The serving process: load a model, listen, say so on stdout, and run until told to stop."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import threading
import time
from typing import Any

from loadkit.engine import machine
from loadkit.engine.errors import EngineError
from loadkit.engine.load import load
from loadkit.engine.server import EngineServer
from loadkit.engine.service import Service

BACKLOG = 1024  # connections that the system holds until they are taken
OTHER_FILES = 64  # descriptors that are no connections


def serve(
    *,
    model: str,
    host: str,
    port: int,
    threads: int,
    context: int | None,
    slots: int,
    queue: int,
    seed: int,
    connections: int,
    prefix_cache_mib: int,
    prefill_mode: str,
    grace: float,
    stdin_guard: bool,
) -> None:
    """Serve until SIGTERM, SIGINT or, with `stdin_guard`, the end of stdin. Raises EngineError when it cannot start."""
    started = time.perf_counter()
    if stdin_guard:
        threading.Thread(target=_watch_stdin, daemon=True).start()
    try:
        service = Service(
            load(model, seed=seed, threads=threads),
            context=context,
            slots=slots,
            queue=queue,
            prefix_cache_bytes=prefix_cache_mib * 2**20,
            prefill_mode=prefill_mode,
        )
    except MemoryError:
        raise EngineError("there is not enough memory for this model") from None
    limit = file_limit(connections)
    facts = {
        "model": service.loaded.name,
        "source": service.loaded.source,
        "context": service.model.context,
        "bos_tokens": service.bos_tokens,
        "tokenizer": service.loaded.tokenizer.kind,
        "parameters": service.loaded.config.parameters,
        "dimensions": service.loaded.config.dimensions,
        "dtype": "float32",
        "threads": threads,
        "prefill_mode": prefill_mode,
        **machine.facts(),
        "slots": slots,
        "queue": queue,
        "connections": limit,
        "seed": seed,
        "load_s": round(time.perf_counter() - started, 3),
        "pid": os.getpid(),
    }
    threading.Thread(target=service.scheduler.run, daemon=True).start()
    asyncio.run(_listen(EngineServer(service, connections=limit), host, port, grace, facts))


async def _listen(server: EngineServer, host: str, port: int, grace_s: float, facts: dict[str, Any]) -> None:
    """Accept connections until a signal, then stop."""
    loop = asyncio.get_running_loop()
    try:
        listener = await loop.create_server(server.connection, host, port, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise EngineError(f"cannot listen on {host}:{port}: {error}") from None
    # Only now: while the model loads, which takes seconds, a signal ends the process at once.
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    sweeping = loop.create_task(server.sweep())
    address = listener.sockets[0].getsockname()
    name = f"[{address[0]}]" if ":" in host else host
    print(json.dumps({"ready": True, "url": f"http://{name}:{address[1]}/v1", **facts}), flush=True)
    await stop.wait()
    for number in (signal.SIGTERM, signal.SIGINT):  # a second one ends it at once
        loop.remove_signal_handler(number)
    listener.close()
    sweeping.cancel()
    await server.stop(grace_s)
    server.service.scheduler.stop()


def file_limit(wanted: int) -> int:
    """How many connections there may be, at most `wanted`; the limit of open files is raised as far as needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = wanted + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < need:
        soft = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(min(wanted, soft - OTHER_FILES), 1)


def _watch_stdin() -> None:
    """The parent holds the other end of stdin: its end is the parent's, and then ours."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
