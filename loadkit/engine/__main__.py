"""`python -m loadkit.engine`: its command line, and the thread limits that NumPy reads when it is imported."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from loadkit.engine.errors import EngineError

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
MODELS = "a GGUF file, a Hugging Face folder, builtin (a small model of seeded weights), or random:qwen2.5-0.5b"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after a clean stop, 2 when the engine cannot start, 130 for Ctrl-C while it loads."""
    options = parser().parse_args(arguments)
    for variable in THREAD_VARIABLES:
        os.environ[variable] = "1"  # the engine splits its work itself, see model.py
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # NumPy comes in here, after its thread limits are set.
    from loadkit.engine.bench import bench
    from loadkit.engine.process import serve

    values = vars(options)
    try:
        if values.pop("verb") == "bench":
            bench(**values)
        else:
            serve(**values)
    except EngineError as error:
        print(f"loadkit engine: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


PROGRAM = "LOADKIT_PROGRAM"  # what a caller that became this program was called, for the usage


def parser() -> argparse.ArgumentParser:
    """The options of `serve` and `bench`."""
    program = os.environ.get(PROGRAM) or "python -m loadkit.engine"
    top = argparse.ArgumentParser(prog=program, description="A pure NumPy LLM server.")
    verbs = top.add_subparsers(dest="verb", required=True)
    _add_serve(verbs.add_parser("serve", help="serve a model"))
    _add_bench(verbs.add_parser("bench", help="time prefill and decode of a model in this process"))
    return top


def _add_serve(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", default="builtin", help=f"{MODELS}; default builtin")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0 takes a free one; it is in the ready line")
    _add_compute(parser)
    add("--context", type=_positive, default=None, help="window in tokens, at most the model's own")
    add("--slots", type=_positive, default=4, help="requests computed at the same time")
    add("--queue", type=_count, default=16, help="requests that may wait; more are answered 503 with Retry-After")
    add("--connections", type=_positive, default=16384, help="connections held open; the longest idle one makes room")
    add("--prefix-cache-mib", type=_count, default=256, help="keys and values kept for requests with cache_prompt")
    add("--grace", type=_seconds, default=0.5, help="seconds that answers under way have after SIGTERM")
    add("--stdin-guard", action="store_true", help="stop when stdin ends")


def _add_bench(parser: argparse.ArgumentParser) -> None:
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--model", help=MODELS)
    model.add_argument("--dims", help="random weights of the dimensions of a model, such as qwen2.5-0.5b")
    _add_compute(parser)
    add = parser.add_argument
    add(
        "--tokens", type=_lengths, default=(128, 512, 1024), metavar="LIST", help="prompt lengths; default 128,512,1024"
    )
    add("--rounds", type=_positive, default=3, help="times of each, of which the fastest counts; default 3")
    add("--output-tokens", type=_positive, default=10, help="tokens decoded after the longest prompt; default 10")
    add("--json", action="store_true", dest="as_json", help="print JSON")


def _add_compute(parser: argparse.ArgumentParser) -> None:
    """What bears on the time of a pass."""
    add = parser.add_argument
    add("--threads", type=_positive, default=_cores(), help="threads that share a pass; default all cores it may use")
    add("--seed", type=int, default=0, help="of random weights")
    add(
        "--prefill-mode",
        choices=("batched", "sequential"),
        default="batched",
        help="sequential reads a prompt token by token, as engines without batches do",
    )


def _cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(_positive(part) for part in text.split(","))


def _count(text: str) -> int:
    return _at_least(0, text)


def _positive(text: str) -> int:
    return _at_least(1, text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def _at_least(low: int, text: str) -> int:
    if not text.isdecimal() or int(text) < low:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least {low}")
    return int(text)


if __name__ == "__main__":
    code = main()
    # Not sys.exit: it would wait for threads in the middle of a long product whose result nobody wants any more.
    sys.stderr.flush()
    os._exit(code)
