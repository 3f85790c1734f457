"""The written-out streams with their right answers, and how their names read as record fields. Loaded by path.

streams.json has what users met in the field; the scenarios of the truth table stand beside the benchmark that prints
it. Where a case defines a value otherwise than we do, our definition stands, and a table here says so.
"""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
BENCHMARKS = HERE.parents[1] / "benchmarks"


def module_at(path: Path) -> ModuleType:
    """The module in a file that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


scenario = module_at(BENCHMARKS / "scenario.py")
CASES: list[dict[str, Any]] = [*scenario.load(HERE / "streams.json"), *scenario.load(BENCHMARKS / "truth_table.json")]

COUNTS = {
    "output_tokens": "output_tokens",
    "output_tokens_source": "output_tokens_source",
    "prompt_tokens": "prompt_tokens",
    "cached_tokens": "cached_tokens",
    "reasoning_tokens": "reasoning_tokens",
    "finish_reason": "finish_reason",
    "n_token_events": "token_events",
    "token_events": "token_events",
    "limit_tokens": "limit_tokens",
    "requested_tokens": "requested_tokens",
}
# Each is the time of one read of the case.
MOMENTS = {"ttft_ms": "ttft_ms", "ttft_content_ms": "ttft_content_ms", "e2e_ms": "e2e_ms"}
# Made of the times of several reads.
SPANS = {"tpot_ms": "tpot_ms", "itl_chunk_ms": "itl_ms"}
# What a case says about its request.
REQUEST = {"max_tokens": "max_tokens", "intended_prompt_tokens": "target_tokens"}
# Looked at by tests of their own.
OTHERS = {"outcome", "error_class", "any_of_error_class", "counts_in_latency", "flag", "content", "reasoning"}
OTHERS |= {"malformed", "saw_done", "retryable", "retry_after_s", "hint"}

OUTCOMES = {
    # An error after a token is a stream_error whatever its class; before a token it is classified.
    "P31-a Error object inside an HTTP 200 stream": "stream_error",
    # A 404 that names the model has an outcome of its own.
    "P47-f 503/529: warming up, shedding, or in-stream": "model_not_found",
}
# Its end-to-end time ends at [DONE]; ours at the last token, and the end of the stream is `done_ms`.
END_TO_END = {"P30-a Socket left open after [DONE]; odd endings": "done_ms"}


def field_of(case: dict[str, Any], name: str) -> str | None:
    """The record field that a name of a right answer means; None for those of OTHERS."""
    if name == "e2e_ms":
        return END_TO_END.get(case["name"], "e2e_ms")
    return {**COUNTS, **MOMENTS, **SPANS}.get(name)


def known_of(case: dict[str, Any]) -> dict[str, Any]:
    """Record fields that the request of a case settles."""
    return {REQUEST[key]: value for key, value in case.get("request", {}).items() if key in REQUEST}


def right_outcome(case: dict[str, Any], outcome: str) -> bool:
    """Whether the outcome of a record is the one of the case."""
    expect = case["expect"]
    wanted = expect.get("error_class") or expect.get("any_of_error_class", [None])[0] or expect.get("outcome")
    wanted = OUTCOMES.get(case["name"], wanted)
    if "counts_in_latency" in expect and (outcome == "ok") is not expect["counts_in_latency"]:
        return False
    if wanted == "error":
        return outcome != "ok"
    return wanted is None or outcome == wanted
