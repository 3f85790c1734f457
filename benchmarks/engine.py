"""The NumPy engine beside what this machine can do: its sgemm peak, its read bandwidth, llama.cpp and PyTorch.

    python benchmarks/engine.py [--dims qwen2.5-0.5b] [--threads N] [--gguf FILE] [--torch PYTHON] [--quick]

Everything is measured in this run, so read the ratios. Prefill counts 2 x parameters x tokens of the linear layers,
plus attention (2 x (h + h) per head, layer and pair of tokens at or below the diagonal), plus the head once. Decode
counts the bytes of all weights, and the keys and values read. The peaks are the best seen anywhere in the run, by as
many threads: independent products for sgemm, dot products over the model's own embedding for reading. Where xllamacpp
is installed and there is a GGUF file, both engines read that file; where torch and transformers are installed (here, or
in the Python of --torch), a model of the same dimensions runs in float32.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_others import best, llamacpp, pytorch

LENGTHS, DECODE_AFTER, STREAMS = (128, 256, 512, 1024, 1536, 2048, 4096), 128, 8
ROUNDS, STEPS = 3, 12
GGUF = Path("weights/SmolLM2-135M-Instruct.Q4_1.gguf")


def main() -> None:
    """Run each engine in a process of its own and print the table."""
    args = _arguments()
    if args.child is not None:
        print(json.dumps(CHILDREN[args.child](args)))
        return
    found = _child(args, "ours", sys.executable)
    assert found is not None
    print_ours(found, args)
    if found["gguf"] and (theirs := _child(args, "llamacpp", sys.executable)):
        print_beside(f"llama.cpp on {args.gguf.name}", found["gguf"], theirs)
    if theirs := _child(args, "torch", args.torch or sys.executable):
        print_beside(f"PyTorch {theirs['version']} float32, same dimensions", found, theirs)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dims", default="qwen2.5-0.5b")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--gguf", type=Path, default=GGUF)
    parser.add_argument("--torch", metavar="PYTHON", help="a Python that has torch and transformers")
    parser.add_argument("--quick", action="store_true", help="two rounds, prompts up to 1024 tokens")
    parser.add_argument("--child", choices=("ours", "llamacpp", "torch"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _child(args: argparse.Namespace, name: str, python: str) -> dict[str, Any] | None:
    """What a child found, None where what it needs is not installed. BLAS gets one thread, the engine has its own."""
    words = ["--child", name, "--dims", args.dims, "--threads", str(args.threads), "--gguf", str(args.gguf)]
    words += ["--quick"] if args.quick else []
    blas = {} if name == "torch" else {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    path = {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [python, __file__, *words], env={**os.environ, **blas, **path}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)  # llama.cpp talks there even when all is well, so only now
    return json.loads(done.stdout.splitlines()[-1])


def _lengths(args: argparse.Namespace) -> list[int]:
    return [length for length in LENGTHS if length <= (1024 if args.quick else 4096)]


def ours(args: argparse.Namespace) -> dict[str, Any]:
    """Our engine, the machine's limits between its turns, and its memory."""
    from loadkit.engine import dims, machine
    from loadkit.engine.builtin import random_weights
    from loadkit.engine.model import Model

    config = dims.of(args.dims)
    lengths = _lengths(args)
    weights = random_weights(config, 1)
    model = Model(config, weights, context=max(lengths) + STEPS, threads=args.threads)
    turn = Turns(model)
    turn.prefill(max(lengths), 1)  # the largest first: memory is read before anything else takes some
    memory = _high_water()
    limits = Limits(weights, args.threads)
    rounds = 2 if args.quick else ROUNDS
    limits.look()
    prefill = {}
    for length in lengths:
        prefill[length] = turn.prefill(length, rounds if length < 2048 else 1)
        limits.look()
    decode = turn.decode(DECODE_AFTER, 1)
    limits.look()
    streams = turn.decode(DECODE_AFTER, STREAMS)
    limits.look()
    return {
        "machine": machine.facts(),
        "parameters": config.parameters,
        "dimensions": config.dimensions,
        "weight_bytes": _bytes(weights),
        "kv_bytes": config.kv_bytes(max(lengths) + STEPS),
        "kv_decode_bytes": config.kv_bytes(DECODE_AFTER),
        "high_water_bytes": memory,
        "sgemm": limits.sgemm,
        "read": limits.read,
        "prefill_s": prefill,
        "decode_s": decode,
        "streams_s": streams,
        "gguf": _ours_gguf(args),
    }


class Turns:
    """One model's turns at the two things it does."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def prefill(self, length: int, rounds: int) -> float:
        """Seconds of a prompt, the fastest of `rounds`."""
        prompt = [token % self.model.config.vocab for token in range(length)]
        return best(lambda: self.model.prefill(prompt, self.model.new_cache(length)), rounds)

    def decode(self, after: int, streams: int) -> float:
        """Seconds of one decode step of `streams` sequences, the fastest of STEPS."""
        caches = [self.model.new_cache(after + STEPS) for _ in range(streams)]
        for cache in caches:
            self.model.prefill(list(range(after)), cache)
        return best(lambda: self.model.decode([7] * streams, caches), STEPS)


class Limits:
    """The best this machine has shown so far, FLOP/s and bytes/s."""

    SHAPES = ((512, 896, 4864), (1024, 1024, 1024))

    def __init__(self, weights: Any, threads: int) -> None:
        import numpy as np

        self.sgemm = self.read = 0.0
        self._np = np
        self._threads = threads
        self._data = np.array_split(weights.embedding.reshape(-1), threads)

    def look(self) -> None:
        """Measure both once more."""
        np, rng = self._np, self._np.random.default_rng(0)
        for m, k, n in self.SHAPES:
            sides = [(rng.random((m, k), np.float32), rng.random((k, n), np.float32)) for _ in range(self._threads)]
            outs = [np.empty((m, n), np.float32) for _ in sides]
            work = [lambda a=a, b=b, out=out: np.matmul(a, b, out=out) for (a, b), out in zip(sides, outs, strict=True)]
            seconds = best(lambda work=work: _together(work, 6), 3)
            self.sgemm = max(self.sgemm, 6 * self._threads * 2 * m * k * n / seconds)
        step = 2**18
        reads = [
            lambda part=part: [np.dot(part[i : i + step], part[i : i + step]) for i in range(0, len(part), step)]
            for part in self._data
        ]
        self.read = max(self.read, sum(part.nbytes for part in self._data) / best(lambda: _together(reads, 1), 4))


def _together(works: list[Callable[[], object]], times: int) -> None:
    import threading

    threads = [threading.Thread(target=lambda work=work: [work() for _ in range(times)]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _ours_gguf(args: argparse.Namespace) -> dict[str, Any] | None:
    """Our engine on the GGUF file."""
    if not args.gguf.exists():
        return None
    from loadkit.engine.load import load
    from loadkit.engine.model import Model

    loaded = load(str(args.gguf))
    turn = Turns(Model(loaded.config, loaded.weights, context=1100, threads=args.threads))
    prefill = {length: turn.prefill(length, ROUNDS) for length in (512, 1024)}
    return {"prefill_s": prefill, "decode_s": turn.decode(DECODE_AFTER, 1)}


def _bytes(weights: Any) -> int:
    arrays = {id(weights.embedding): weights.embedding, id(weights.head): weights.head}
    layers = [matrix for layer in weights.layers for matrix in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    return sum(array.nbytes for array in (*arrays.values(), *layers))


def _high_water() -> int:
    """The largest resident set this process has had, bytes."""
    status = Path("/proc/self/status").read_text("utf-8")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def linear(shape: dict[str, Any]) -> float:
    """FLOP per prompt token of the linear layers, the head left out."""
    width = shape["heads"] * shape["head_dim"]
    attention = shape["hidden"] * (2 * width + 2 * shape["kv_heads"] * shape["head_dim"])
    return 2 * shape["layers"] * (attention + 3 * shape["hidden"] * shape["ffn"])


def attention(shape: dict[str, Any], tokens: int) -> float:
    """FLOP of causal attention over a prompt."""
    return 4 * shape["layers"] * shape["heads"] * shape["head_dim"] * tokens * (tokens + 1) / 2


def operations(shape: dict[str, Any], tokens: int) -> float:
    """FLOP of a prompt: linear layers, causal attention, the head once."""
    return linear(shape) * tokens + attention(shape, tokens) + 2 * shape["hidden"] * shape["vocab"]


def flatness(shape: dict[str, Any], prefill: dict[str, float]) -> dict[str, float]:
    """Unit prices over constant + the model card's attention term, with the constant that fits best.

    The card takes attention to run as fast as the linear layers: price(n) = c (1 + attention(n) / (n linear)).
    """
    ratio = {n: s / int(n) / (1 + attention(shape, int(n)) / (int(n) * linear(shape))) for n, s in prefill.items()}
    constant = (max(ratio.values()) + min(ratio.values())) / 2
    return {n: value / constant for n, value in ratio.items()}


def print_ours(found: dict[str, Any], args: argparse.Namespace) -> None:
    """Our engine against the machine's limits."""
    told, shape, prefill = found["machine"], found["dimensions"], found["prefill_s"]
    flat = flatness(shape, prefill)
    print(
        f"{args.dims}: {found['parameters'] / 1e6:.0f} M parameters in float32, random weights, {args.threads} threads"
    )
    print(f"{told['cpu']}, {told['cores']} cores; {told['blas']}, kernel {told['blas_kernel']}; numpy {told['numpy']}")
    print(f"sgemm peak {found['sgemm'] / 1e9:.0f} GFLOP/s, read bandwidth {found['read'] / 1e9:.1f} GB/s\n")
    print("prompt tokens    ms/token    of sgemm peak    of constant + attention")
    for tokens, seconds in prefill.items():
        share = operations(shape, int(tokens)) / seconds / found["sgemm"]
        print(f"{tokens:>13}{1000 * seconds / int(tokens):12.3f}{share:17.2f}{flat[tokens]:27.3f}")
    size = found["weight_bytes"]
    share = (size + found["kv_decode_bytes"]) / found["decode_s"] / found["read"]
    gain = STREAMS * found["decode_s"] / found["streams_s"]
    print(
        f"\ndecode: {1000 * found['decode_s']:.1f} ms/token after {DECODE_AFTER} tokens, {share:.2f} of read bandwidth"
    )
    print(f"decode of {STREAMS} streams: {gain:.2f} times the tokens/s of one")
    longest = max(map(int, prefill))
    unit_ms = 1000 * prefill["512"] / 512
    print(f"prefill_parallelism at 512 tokens: {1000 * found['decode_s'] / unit_ms:.1f}")
    limit = 1.3 * size + found["kv_bytes"] + 200e6
    print(
        f"memory: {found['high_water_bytes'] / 1e6:.0f} MB at most with {longest} tokens, "
        f"{found['high_water_bytes'] / limit:.2f} of weights x 1.3 + KV + 200 MB"
    )


def print_beside(name: str, mine: dict[str, Any], other: dict[str, Any]) -> None:
    """Our times over another engine's: below 1 ours is faster."""
    cells = [f"prefill {tokens} {mine['prefill_s'][tokens] / s:.2f}" for tokens, s in other["prefill_s"].items()]
    cells.append(f"decode {mine['decode_s'] / other['decode_s']:.2f}")
    print(f"\nour time over that of {name}: {', '.join(cells)}")


CHILDREN = {"ours": ours, "llamacpp": llamacpp, "torch": pytorch}

if __name__ == "__main__":
    main()
