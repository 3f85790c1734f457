"""`python -m loadkit.engine serve`: the command line, and the thread limits that NumPy reads when it is imported."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from loadkit.engine.errors import EngineError

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after a clean stop, 2 when the engine cannot start, 130 for Ctrl-C while it loads."""
    options = parser().parse_args(arguments)
    for variable in THREAD_VARIABLES:
        os.environ[variable] = "1"  # the engine splits its work itself, see model.py
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from loadkit.engine.process import serve  # NumPy comes in here, after its thread limits are set

    values = vars(options)
    values.pop("verb")
    try:
        serve(**values)
    except EngineError as error:
        print(f"loadkit engine: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `serve`."""
    top = argparse.ArgumentParser(prog="python -m loadkit.engine", description="A pure NumPy LLM server.")
    add = top.add_subparsers(dest="verb", required=True).add_parser("serve", help="serve a model").add_argument
    add("--model", default="builtin", help="a GGUF file, a Hugging Face folder, or builtin (default, seeded weights)")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0 takes a free one; it is in the ready line")
    add("--threads", type=_positive, default=os.cpu_count() or 1, help="threads of a prefill")
    add("--context", type=_positive, default=None, help="window in tokens, at most the model's own")
    add("--slots", type=_positive, default=4, help="requests computed at the same time")
    add("--queue", type=_count, default=16, help="requests that may wait; more are answered 429")
    add("--seed", type=int, default=0, help="weights of the built-in model")
    add("--stdin-guard", action="store_true", help="stop when stdin ends")
    return top


def _count(text: str) -> int:
    return _at_least(0, text)


def _positive(text: str) -> int:
    return _at_least(1, text)


def _at_least(low: int, text: str) -> int:
    if not text.isdecimal() or int(text) < low:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least {low}")
    return int(text)


if __name__ == "__main__":
    code = main()
    # Not sys.exit: it would wait for threads in the middle of a long product whose result nobody wants any more.
    sys.stderr.flush()
    os._exit(code)
