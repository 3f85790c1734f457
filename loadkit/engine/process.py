"""The serving process: load a model, listen, say so on stdout, and run until told to stop."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

import numpy as np

from loadkit.engine.errors import EngineError
from loadkit.engine.load import load
from loadkit.engine.server import EngineServer
from loadkit.engine.service import Service


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
    stdin_guard: bool,
) -> None:
    """Serve until SIGTERM, SIGINT or, with `stdin_guard`, the end of stdin. Raises EngineError when it cannot start."""
    started = time.perf_counter()
    if stdin_guard:
        threading.Thread(target=_watch_stdin, daemon=True).start()
    service = Service(load(model, seed=seed), context=context, threads=threads, slots=slots, queue=queue)
    try:
        server = EngineServer((host, port), service)
    except (OSError, OverflowError) as error:
        raise EngineError(f"cannot listen on {host}:{port}: {error}") from None
    # Only now: while the model loads, which takes seconds, a signal ends the process at once.
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=service.scheduler.run, daemon=True).start()
    threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    facts = {
        "ready": True,
        "url": f"http://{host}:{server.server_address[1]}/v1",
        "model": service.loaded.name,
        "source": service.loaded.source,
        "context": service.model.context,
        "bos_tokens": service.bos_tokens,
        "tokenizer": service.loaded.tokenizer.kind,
        "parameters": service.loaded.config.parameters,
        "dimensions": service.loaded.config.dimensions,
        "dtype": "float32",
        "threads": threads,
        "blas": blas(),
        "slots": slots,
        "queue": queue,
        "seed": seed,
        "load_s": round(time.perf_counter() - started, 3),
        "pid": os.getpid(),
    }
    print(json.dumps(facts), flush=True)
    stop.wait()
    service.scheduler.stop()
    server.shutdown()


def blas() -> str:
    """Name and version of the library behind matrix products."""
    found = np.show_config(mode="dicts") or {}
    library = found.get("Build Dependencies", {}).get("blas", {})
    return f"{library.get('name', 'unknown')} {library.get('version', '')}".strip()


def _watch_stdin() -> None:
    """The parent holds the other end of stdin: its end is the parent's, and then ours."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
