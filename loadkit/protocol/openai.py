"""OpenAI chat completions and completions, as spoken by vLLM, SGLang, llama.cpp, Azure, OpenRouter and others."""

from typing import Any

from loadkit.protocol.answer import Chunk, ServerTimes, Usage, count, mapping, milliseconds, text
from loadkit.protocol.contract import PROMPT, Ask, Protocol

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
    return Chunk(
        content=content,
        reasoning=reasoning,
        tool=tool,
        finish_reason=_reason(finish),
        finish_detail=finish if isinstance(finish, dict) else None,
        usage=_usage(doc, choices),
        times=_times(doc),
        response_id=text(doc.get("id")) or None,
        model=text(doc.get("model")) or None,
        fingerprint=text(doc.get("system_fingerprint")) or None,
        known="choices" in doc or isinstance(doc.get("usage"), dict),
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


def _usage(doc: dict[str, Any], choices: list[dict[str, Any]]) -> Usage | None:
    stated = doc.get("usage") or mapping(doc.get("x_groq")).get("usage")
    stated = stated or next((choice["usage"] for choice in choices if choice.get("usage")), None)
    timings = mapping(doc.get("timings"))  # llama.cpp
    if not isinstance(stated, dict):
        cached, prompt_n = count(timings.get("cache_n")), count(timings.get("prompt_n"))
        if prompt_n is None:
            return None
        return Usage(prompt=prompt_n + (cached or 0), completion=count(timings.get("predicted_n")), cached=cached)
    prompt_details = mapping(stated.get("prompt_tokens_details"))
    completion_details = mapping(stated.get("completion_tokens_details"))
    cached = (prompt_details.get("cached_tokens"), stated.get("prompt_cache_hit_tokens"), timings.get("cache_n"))
    reasoning = (completion_details.get("reasoning_tokens"), stated.get("reasoning_tokens"))
    return Usage(
        prompt=count(stated.get("prompt_tokens")),
        completion=count(stated.get("completion_tokens")),
        cached=next((n for n in map(count, cached) if n is not None), None),
        reasoning=next((n for n in map(count, reasoning) if n is not None), None),
    )


def _times(doc: dict[str, Any]) -> ServerTimes | None:
    """llama.cpp `timings` in ms."""
    timings = doc.get("timings")
    if not isinstance(timings, dict):
        return None
    return ServerTimes(prefill=milliseconds(timings.get("prompt_ms")), decode=milliseconds(timings.get("predicted_ms")))


CHAT = Protocol(name="openai-chat", path="/chat/completions", auth="bearer", fields=chat_fields, read=read)
COMPLETIONS = Protocol(
    name="openai-completions", path="/completions", auth="bearer", fields=completion_fields, read=read
)
