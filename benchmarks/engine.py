"""The NumPy engine beside what this machine can do: its sgemm peak, its read bandwidth, llama.cpp and PyTorch.

    python benchmarks/engine.py [--dims qwen2.5-0.5b] [--threads N] [--gguf FILE] [--torch PYTHON] [--quick]

Everything is measured in this run, so read the ratios. Prefill counts 2 x parameters x tokens of the linear layers,
plus attention (2 x (h + h) per head, layer and pair of tokens at or below the diagonal), plus the head once; the sgemm
peak is the best that independent products of as many threads have shown anywhere in the run.

Decode counts the bytes of all weights, and the keys and values read. A virtual machine shares its memory: how fast it
reads moves by half within seconds. So decode steps take turns with reading the same weights once through, each thread
what it reads in a step, by dot products as long as the second-level cache; the medians of both are compared. The best
of each is printed beside.

Where xllamacpp is installed and there is a GGUF file, both engines read that file; where torch and transformers are
installed (here, or in the Python of --torch), a model of the same dimensions runs in float32.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_others import best, llamacpp, pytorch, seconds

LENGTHS, DECODE_AFTER, STREAMS = (128, 256, 512, 1024, 1536, 2048, 4096), 128, 8
ROUNDS, STEPS = 3, 24
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
    weights = random_weights(config, 1, args.threads)
    model = Model(config, weights, context=max(lengths) + STEPS)
    turn = Turns(model)
    prefill = {max(lengths): turn.prefill(max(lengths))}  # the largest first: before anything else takes memory
    memory = _high_water()
    peak = Peak(args.threads)
    peak.look()
    for number in range(2 if args.quick else ROUNDS):
        for length in lengths:  # in turn, so that a slow minute is not one length's alone
            if number == 0 or length < 2048:
                prefill[length] = min(turn.prefill(length), prefill.get(length, math.inf))
        peak.look()
    decode, reads = turn.decode(DECODE_AFTER, 1, Reading(weights))
    streams, _ = turn.decode(DECODE_AFTER, STREAMS)
    peak.look()
    return {
        "machine": machine.facts(),
        "parameters": config.parameters,
        "dimensions": config.dimensions,
        "weight_bytes": _bytes(weights),
        "kv_bytes": config.kv_bytes(max(lengths) + STEPS),
        "kv_decode_bytes": config.kv_bytes(DECODE_AFTER),
        "high_water_bytes": memory,
        "sgemm": peak.sgemm,
        "read_s": {"median": statistics.median(reads), "best": min(reads)},
        "prefill_s": {length: prefill[length] for length in lengths},
        "decode_s": min(decode),
        "decode_median_s": statistics.median(decode),
        "streams_median_s": statistics.median(streams),
        "gguf": _ours_gguf(args),
    }


class Turns:
    """One model's turns at the two things it does."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def prefill(self, length: int) -> float:
        """Seconds of a prompt."""
        prompt = [token % self.model.config.vocab for token in range(length)]
        return seconds(lambda: self.model.prefill(prompt, self.model.new_cache(length)))

    def decode(
        self, after: int, streams: int, between: Callable[[], object] = lambda: None
    ) -> tuple[list[float], list[float]]:
        """Seconds of each of STEPS decode steps of `streams` sequences, and of what is done between two steps."""
        caches = [self.model.new_cache(after + STEPS) for _ in range(streams)]
        for cache in caches:
            self.model.prefill(list(range(after)), cache)
        times = [(seconds(between), seconds(lambda: self.model.decode([7] * streams, caches))) for _ in range(STEPS)]
        return [step for _, step in times], [other for other, _ in times]


class Peak:
    """The most FLOP/s that products of matrices have shown so far."""

    SHAPES = ((512, 896, 4864), (1024, 1024, 1024))

    def __init__(self, threads: int) -> None:
        self.sgemm = 0.0
        self._threads = threads

    def look(self) -> None:
        """Measure once more."""
        import numpy as np

        rng = np.random.default_rng(0)
        for m, k, n in self.SHAPES:
            sides = [(rng.random((m, k), np.float32), rng.random((k, n), np.float32)) for _ in range(self._threads)]
            outs = [np.empty((m, n), np.float32) for _ in sides]
            work = [lambda a=a, b=b, out=out: np.matmul(a, b, out=out) for (a, b), out in zip(sides, outs, strict=True)]
            fastest = best(lambda work=work: _together(work, 6), 3)
            self.sgemm = max(self.sgemm, 6 * self._threads * 2 * m * k * n / fastest)


class Reading:
    """All weights read once, by each thread those that it reads in a decode step."""

    PIECE = 2**18  # numbers of one dot product

    def __init__(self, weights: Any) -> None:
        import numpy as np

        self._works: list[Callable[[], object]] = []
        for rank, head in enumerate(np.array_split(weights.head, weights.threads)):
            arrays = [*(array for parts in weights.layers for array in parts[rank].matrices), head]
            flat = [array.reshape(-1) for array in arrays]
            pieces = [array[at : at + self.PIECE] for array in flat for at in range(0, len(array), self.PIECE)]
            self._works.append(lambda pieces=pieces: [np.dot(piece, piece) for piece in pieces])

    def __call__(self) -> None:
        """Read them."""
        _together(self._works, 1)


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

    loaded = load(str(args.gguf), threads=args.threads)
    turn = Turns(Model(loaded.config, loaded.weights, context=1100))
    prefill = {length: min(turn.prefill(length) for _ in range(ROUNDS)) for length in (512, 1024)}
    return {"prefill_s": prefill, "decode_s": min(turn.decode(DECODE_AFTER, 1)[0])}


def _bytes(weights: Any) -> int:
    arrays = {id(weights.embedding): weights.embedding, id(weights.head): weights.head}
    layers = [matrix for parts in weights.layers for part in parts for matrix in part.matrices]
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

    The card takes attention to run as fast as the linear layers: price(n) = c (1 + attention(n) / (n linear)). Of all
    constants c, the one between the dearest and the cheapest length leaves the smallest largest deviation.
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
    size = found["weight_bytes"]
    read = {name: size / took / 1e9 for name, took in found["read_s"].items()}
    print(
        f"sgemm peak {found['sgemm'] / 1e9:.0f} GFLOP/s; reading the weights {read['median']:.1f} GB/s "
        f"(best {read['best']:.1f})\n"
    )
    print("prompt tokens    ms/token    of sgemm peak    of constant + attention")
    for tokens, took in prefill.items():
        share = operations(shape, int(tokens)) / took / found["sgemm"]
        print(f"{tokens:>13}{1000 * took / int(tokens):12.3f}{share:17.2f}{flat[tokens]:27.3f}")
    moved = (size + found["kv_decode_bytes"]) / 1e9
    share = moved / found["decode_median_s"] / read["median"]
    share_of_best = moved / found["decode_s"] / read["best"]
    gain = STREAMS * found["decode_median_s"] / found["streams_median_s"]
    print(
        f"\ndecode: {1000 * found['decode_median_s']:.1f} ms/token after {DECODE_AFTER} tokens, {share:.2f} of read "
        f"bandwidth (best {1000 * found['decode_s']:.1f} ms, {share_of_best:.2f} of the best)"
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
