"""OpenAI chat completions and completions, as spoken by vLLM, SGLang, llama.cpp, Azure, OpenRouter and others."""

from typing import Any

from loadkit.protocol.answer import Chunk, ServerTimes, Usage, count, mapping, milliseconds, text
from loadkit.protocol.contract import PROMPT, Ask, Protocol

_PERF = ("timings", "perf", "usage")  # where servers on RKLLM put the engine's statistics, if they state them
_REASONING = ("reasoning_content", "reasoning", "thinking")  # some servers send two of them with the same text


def fields(ask: Ask) -> dict[str, Any]:
    """The request body, without what carries the user message."""
    body: dict[str, Any] = {"model": ask.model, ask.max_tokens_field: ask.max_tokens}
    if ask.temperature is not None:
        body["temperature"] = ask.temperature
    body["stream"] = ask.stream
    if ask.stream:
        body["stream_options"] = {"include_usage": True}
    if ask.ignore_eos:
        body["ignore_eos"] = True
    if ask.min_tokens is not None:
        body["min_tokens"] = ask.min_tokens
    return body


def chat_fields(ask: Ask) -> dict[str, Any]:
    """The body of /chat/completions with one user message."""
    return fields(ask) | {"messages": [{"role": "user", "content": PROMPT}]}


def completion_fields(ask: Ask) -> dict[str, Any]:
    """The body of /completions."""
    return fields(ask) | {"prompt": PROMPT}


def read(name: bytes | None, doc: Any) -> Chunk:
    """One chunk or whole answer of either endpoint. `choices` may be absent, null or empty, `delta` too."""
    doc = mapping(doc)
    choices = doc.get("choices")
    choices = [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
    content = reasoning = tool = ""
    finish: Any = None
    whole = False
    for choice in choices:
        said = choice.get("delta")
        if not isinstance(said, dict):
            said = mapping(choice.get("message"))
            whole = whole or bool(said)
        content += _content(said.get("content")) + text(said.get("refusal")) + text(choice.get("text"))
        reasoning += _reasoning(said)
        tool += _tools(said)
        finish = choice.get("finish_reason") or finish
    stated = _stated(doc, choices)
    return Chunk(
        content=content,
        reasoning=reasoning,
        tool=tool,
        finish_reason=_reason(finish),
        finish_detail=finish if isinstance(finish, dict) else None,
        usage=_usage(doc, stated),
        times=_times(doc, stated),
        response_id=text(doc.get("id")) or None,
        model=text(doc.get("model")) or None,
        fingerprint=text(doc.get("system_fingerprint")) or None,
        known="choices" in doc or "usage" in doc or text(doc.get("object")).endswith("completion.chunk"),
        whole=whole,
    )


def _content(value: Any) -> str:
    """Content as a string, or as a list of parts whose thinking is left to `_reasoning`."""
    if not isinstance(value, list):
        return text(value)
    return "".join(text(part.get("text")) for part in value if isinstance(part, dict))


def _reasoning(said: dict[str, Any]) -> str:
    found = next((said[key] for key in _REASONING if isinstance(said.get(key), str) and said[key]), "")
    parts = said.get("content")
    if found or not isinstance(parts, list):
        return found
    thoughts = (part.get("thinking") for part in parts if isinstance(part, dict))
    return "".join(_content(thought) for thought in thoughts)


def _tools(said: dict[str, Any]) -> str:
    """Payload of tool calls: an entry that holds only its index or type is none."""
    calls = said.get("tool_calls")
    calls = [mapping(call) for call in calls] if isinstance(calls, list) else []
    payload = "".join(_call(mapping(call.get("function"))) or text(call.get("id")) for call in calls)
    return payload + _call(mapping(said.get("function_call")))


def _call(function: dict[str, Any]) -> str:
    return text(function.get("name")) + text(function.get("arguments"))


def _reason(finish: Any) -> str | None:
    """The finish reason; SGLang's native form is an object with a type."""
    if isinstance(finish, dict):
        return text(finish.get("type")) or "error"
    return text(finish) or None


def _stated(doc: dict[str, Any], choices: list[dict[str, Any]]) -> dict[str, Any]:
    """The usage object: at the top, in `x_groq`, or in a choice (Moonshot)."""
    usage = doc.get("usage")
    if usage:
        return mapping(usage)
    places = (mapping(doc.get("x_groq")).get("usage"), *(choice.get("usage") for choice in choices))
    return next((mapping(place) for place in places if place), {})


def _usage(doc: dict[str, Any], stated: dict[str, Any]) -> Usage | None:
    timings = mapping(doc.get("timings"))  # llama.cpp
    perf = _perf(doc)
    if not stated and not timings and not perf:
        return None
    cached = (
        mapping(stated.get("prompt_tokens_details")).get("cached_tokens"),
        stated.get("prompt_cache_hit_tokens"),  # DeepSeek
        timings.get("cache_n"),
    )
    reasoning = (
        mapping(stated.get("completion_tokens_details")).get("reasoning_tokens"),
        stated.get("reasoning_tokens"),  # SGLang
    )
    cache_n, prompt_n = count(timings.get("cache_n")), count(timings.get("prompt_n"))
    prompt = None if prompt_n is None else prompt_n + (cache_n or 0)
    return Usage(
        prompt=_first((stated.get("prompt_tokens"), prompt, perf.get("prefill_tokens"))),
        completion=_first((stated.get("completion_tokens"), timings.get("predicted_n"), perf.get("generate_tokens"))),
        cached=_first(cached),
        reasoning=_first(reasoning),
    )


def _perf(doc: dict[str, Any]) -> dict[str, Any]:
    """RKLLMPerfStat as a server passes it on, under the names of the runtime's own structure; {} without it."""
    places = (doc, *(mapping(doc.get(name)) for name in _PERF))
    return next((place for place in places if "prefill_time_ms" in place), {})


def _first(values: tuple[Any, ...]) -> int | None:
    return next((n for n in map(count, values) if n is not None), None)


def _times(doc: dict[str, Any], stated: dict[str, Any]) -> ServerTimes | None:
    """llama.cpp `timings` and RKLLM statistics in ms, or the seconds Groq and rkllama put beside token counts."""
    if perf := _perf(doc):
        names = ("prefill_time_ms", "generate_time_ms", "tokenize_ms")
        prefill, decode, tokenize = (milliseconds(perf.get(name)) for name in names)
        return ServerTimes(prefill=prefill, decode=decode, tokenize=tokenize)
    timings = doc.get("timings")
    if isinstance(timings, dict):
        # Queue and tokenizer are the embedded engine's own; llama.cpp states none.
        keys = ("queue_ms", "prompt_ms", "predicted_ms", "tokenize_ms")
        queue, prefill, decode, tokenize = (milliseconds(timings.get(key)) for key in keys)
        return ServerTimes(queue=queue, prefill=prefill, decode=decode, tokenize=tokenize)
    if "prompt_eval_duration" in stated:
        prefill, decode = (milliseconds(stated.get(f"{key}eval_duration"), 1000.0) for key in ("prompt_", ""))
        return ServerTimes(prefill=prefill or None, decode=decode or None)
    seconds = stated if "queue_time" in stated else mapping(doc.get("time_info"))  # Cerebras puts them beside
    if "queue_time" not in seconds:
        return None
    queue, prefill, decode = (
        milliseconds(seconds.get(key), 1000.0) for key in ("queue_time", "prompt_time", "completion_time")
    )
    return ServerTimes(queue=queue, prefill=prefill, decode=decode)


CHAT = Protocol(name="openai-chat", path="/chat/completions", auth="bearer", fields=chat_fields, read=read)
COMPLETIONS = Protocol(
    name="openai-completions", path="/completions", auth="bearer", fields=completion_fields, read=read
)
