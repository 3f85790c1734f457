"""From an error answer to one outcome: by code, then type, then status, with a few phrases where those say too little.

Spellings covered: OpenAI, Azure, vLLM (flat and nested), SGLang, llama.cpp, Anthropic, Ollama, OpenRouter, LiteLLM, TGI
and proxies that answer HTML. Nothing here raises, whatever the body.
"""

import html
import json
import re
from dataclasses import dataclass
from typing import Any

from loadkit.protocol import phrases
from loadkit.protocol.retry_after import Headers, retry_after_s
from loadkit.record.names import Outcome

MAX_MESSAGE = 800
_MAX_PROSE = 8192  # a phrase further inside a message than this is not looked for
_MAX_NUMBER = 2**53
_OPEN_STATUS = (None, 400, 413, 422)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]{0,500}>")
_QUOTED = re.compile(r"['`\"]([A-Za-z_]\w{0,60})['`\"]")


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong. `retryable` is the retry table's answer before any token; text is clipped, not redacted."""

    outcome: Outcome
    code: str | None = None
    type: str | None = None
    message: str | None = None
    limit_tokens: int | None = None
    requested_tokens: int | None = None
    retryable: bool = False
    retry_after_s: float | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class _Said:
    """The parts of an error body that classification reads."""

    code: str | None
    type: str | None
    message: str | None
    param: str | None
    status: int | None
    prose: str
    limit: int | None
    requested: int | None


def classify(
    status: int | None, headers: Headers, body: bytes, in_band: bool = False, now: float | None = None
) -> Failure:
    """Classify an HTTP error answer, or with `in_band` an error that came inside a 200.

    `now` (seconds since the epoch) is only needed for a Retry-After date in an answer without a Date header.
    """
    return classify_document(status, headers, document(body), in_band=in_band, now=now)


def classify_document(
    status: int | None, headers: Headers, doc: Any, *, in_band: bool = False, now: float | None = None
) -> Failure:
    """`classify` for a body that is parsed already: JSON, or a str for anything else."""
    said = _said(doc)
    effective = said.status if in_band or status in (None, 200) else status
    outcome = _outcome(effective, said)
    limit, requested = said.limit, said.requested
    if outcome is Outcome.CONTEXT_LENGTH_EXCEEDED:
        limit = limit or _first(phrases.LIMIT, said.prose)
        requested = requested or _first(phrases.REQUESTED, said.prose)
    retryable = outcome is Outcome.OVERLOADED or (outcome is Outcome.RATE_LIMITED and not _above_allowance(said.prose))
    return Failure(
        outcome=outcome,
        code=said.code,
        type=said.type,
        message=said.message,
        limit_tokens=limit,
        requested_tokens=requested,
        retryable=retryable,
        retry_after_s=retry_after_s(headers, now),
        hint=_hint(outcome, said),
    )


def in_band_error(name: bytes | None, doc: Any) -> bool:
    """True when an event or a 200 body is an error: any `error`, object or type "error", or an event of that name."""
    if name == b"error":
        return True
    if isinstance(doc, list):
        return len(doc) > 0 and isinstance(doc[0], dict) and bool(doc[0].get("error"))
    if not isinstance(doc, dict):
        return False
    return bool(doc.get("error")) or doc.get("object") == "error" or doc.get("type") == "error" or _choice_error(doc)


def document(body: bytes) -> Any:
    """The body as JSON, out of an event-stream frame if it is in one; else as clipped text."""
    text = body.decode("utf-8", "replace").lstrip("\ufeff").strip()
    candidates = [text]
    if text.startswith(("data:", "event:", ":")):
        candidates += [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    for candidate in candidates:
        try:
            doc = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(doc, dict | list):
            return doc
    return text[:_MAX_PROSE]


def clip(text: str, most: int = MAX_MESSAGE) -> str:
    """Server text made safe to store: no lone surrogates, one line's worth of characters."""
    return text[:most].encode("utf-8", "replace").decode()


def _outcome(status: int | None, said: _Said) -> Outcome:
    for name in (said.code, said.type):
        named = phrases.BY_CODE.get((name or "").lower())
        if named is Outcome.RATE_LIMITED and status in (503, 529):
            continue
        if named is not None:
            return named
    if status in _OPEN_STATUS and phrases.CONTEXT.search(said.prose):
        return Outcome.CONTEXT_LENGTH_EXCEEDED
    if status in (None, 400, 403) and phrases.QUOTA.search(said.prose):
        return Outcome.QUOTA_EXHAUSTED
    if status in (400, 404) and (phrases.MODEL.search(said.prose) or (status == 404 and said.param == "model")):
        return Outcome.MODEL_NOT_FOUND
    if status is None:
        generic = phrases.BY_GENERIC_TYPE.get((said.type or said.code or "").lower())
        return generic or phrases.BY_GENERIC_TYPE.get((said.code or "").lower(), Outcome.STREAM_ERROR)
    fallback = Outcome.SERVER_ERROR if 500 <= status <= 599 else Outcome.HTTP_OTHER
    return phrases.BY_STATUS.get(status, fallback)


def _said(doc: Any) -> _Said:
    if isinstance(doc, list):
        doc = next((item for item in doc if isinstance(item, dict)), {})
    if not isinstance(doc, dict):
        return _Said(None, None, _readable(str(doc)), None, None, str(doc)[:_MAX_PROSE].lower(), None, None)
    error = _error_object(doc)
    message = _message(error) or _message(doc)
    code = _text(error.get("code"))
    kind = _text(error.get("type")) or _text(error.get("status")) or _text(doc.get("error_type"))
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    prose = f"{message or ''}\n{raw if isinstance(raw, str) else ''}"[:_MAX_PROSE].lower()
    return _Said(
        code=code,
        type=kind,
        message=clip(message) if message else None,
        param=_text(error.get("param")),
        status=_status(error.get("code"), error.get("status_code"), doc.get("status_code"), error.get("status")),
        prose=prose,
        limit=_count(error.get("n_ctx")),
        requested=_count(error.get("n_prompt_tokens")),
    )


def _error_object(doc: dict[str, Any]) -> dict[str, Any]:
    """The object that holds code and message: nested, wrapped in a choice, or the body itself."""
    groq = doc.get("x_groq")
    errors = doc.get("errors")
    found = doc.get("error") or _error_in_choices(doc) or (groq.get("error") if isinstance(groq, dict) else None)
    if not found and isinstance(errors, list) and errors:
        found = errors[0]
    if isinstance(found, dict):
        return found
    if isinstance(found, str):
        kind = doc.get("error_type") or doc.get("type")
        return {"message": found, "code": found if " " not in found else doc.get("code"), "type": kind}
    return doc


def _error_in_choices(doc: dict[str, Any]) -> Any:
    choices = doc.get("choices")
    if not isinstance(choices, list):
        return None
    return next((c["error"] for c in choices if isinstance(c, dict) and c.get("error")), None)


def _choice_error(doc: dict[str, Any]) -> bool:
    groq = doc.get("x_groq")
    return bool(_error_in_choices(doc)) or (isinstance(groq, dict) and bool(groq.get("error")))


def _message(error: dict[str, Any]) -> str | None:
    for key in ("message", "Message", "detail", "msg", "error_description", "error"):
        value = error.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value and isinstance(value[0], dict) and isinstance(value[0].get("msg"), str):
            return value[0]["msg"]  # FastAPI: one entry per field it refused
    return None


def _readable(text: str) -> str | None:
    """Prose out of a body that is not JSON; of an HTML page its title."""
    if "<" in text:
        title = _TITLE.search(text)
        text = html.unescape(_TAG.sub(" ", title.group(1) if title else text))
    text = " ".join(text.split())
    return clip(text) if text else None


def _text(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        return None
    return clip(str(value), 100)


def _status(*values: Any) -> int | None:
    for value in values:
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_NUMBER else None


def _first(patterns: tuple[re.Pattern[str], ...], prose: str) -> int | None:
    for pattern in patterns:
        match = pattern.search(prose)
        if match and all(len(group) <= 15 for group in match.groups()):
            return sum(phrases.number(group) for group in match.groups())
    return None


def _above_allowance(prose: str) -> bool:
    """One request asks more than a whole allowance: waiting can never help."""
    match = phrases.ALLOWANCE.search(prose)
    if not match or any(len(group) > 15 for group in match.groups()):
        return False
    return phrases.number(match.group(2)) > phrases.number(match.group(1))


def _hint(outcome: Outcome, said: _Said) -> str | None:
    """The one change to the request that a refused parameter calls for."""
    if outcome is not Outcome.BAD_REQUEST:
        return None
    if not (said.code or "").startswith("unsupported_") and not phrases.UNSUPPORTED.search(said.prose):
        return None
    quoted = _QUOTED.search(said.message or "")
    param = said.param or (quoted.group(1) if quoted else None)
    swap = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
    return swap.get(param, f"leave out {param}") if param else None
