"""llama.cpp's own HTTP server in a process of its own: `python llamacpp_server.py MODEL.gguf CONTEXT`.

One thread (its workers spin, and would take the core of whoever measures), one slot, no prompt cache. Prints its
address as one JSON line when it answers; ends when standard input does.
"""

import json
import sys
import urllib.request

import xllamacpp


def main(model: str, context: int) -> None:
    """Serve until standard input ends."""
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"bytes"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = context
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.fit_params = False
    params.cache_prompt = False
    params.cache_ram_mib = 0
    server = xllamacpp.Server(params)
    with urllib.request.urlopen(f"{server.listening_address}/health", timeout=60) as answer:
        assert json.load(answer) == {"status": "ok"}
    print(json.dumps({"url": server.listening_address}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
