"""The definitions of eight tools as functions of marks, each with the reasons why its number differs from loadkit's.

Read from the tools' own source: vLLM bench 0.33.0, SGLang 0.5.23, genai-bench 0.0.5, guidellm 0.8.1, aiperf 0.13.0,
inference-perf 0.7.0, evalscope 1.14.1, llmperf f1d6bed. E2E ends where each of them stops its clock: at the last token
(vLLM, guidellm and aiperf for these metrics, inference-perf), at the usage event (genai-bench), at the last JSON event
(evalscope), at the last line of the stream (SGLang). `connect` is added where the clock starts before the connection.
"""

from collections.abc import Callable
from dataclasses import dataclass

from loadkit.analysis.peers.marks import Marks
from loadkit.record.names import Flag

LINEAR, NEAREST, WEIGHTED = "linear", "nearest-rank", "inverse CDF, weighted by tokens"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a number differs, and whether that is so for a request."""

    text: str
    applies: Callable[[Marks], bool] = lambda m: True


@dataclass(frozen=True, slots=True)
class Rule:
    """One metric of one tool. `samples` gives what a request puts into the percentile, ms or tokens; empty = nothing.

    `weight` of each sample in the percentile; `absent` says why there is no such number at all.
    """

    formula: str
    samples: Callable[[Marks], list[float]]
    reasons: tuple[Reason, ...] = ()
    weight: Callable[[Marks], float] = lambda m: 1.0
    absent: str | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """One tool: its four numbers, how it takes a percentile, and what the marks of another client cannot show."""

    name: str
    ttft: Rule
    itl: Rule
    tpot: Rule
    tokens: Rule
    percentile: str
    beyond: str


CONNECT = Reason("its clock starts before the connection is opened", lambda m: m.connect > 0)
RETRIES = Reason("its clock runs from the first attempt", lambda m: m.before > 0)
REASONING = Reason(
    "reasoning is not read, so the first answer text is its first token", lambda m: m.first_visible != m.first
)
REASONING_CONTENT = Reason(
    "reasoning_content is not read (a channel named reasoning would be), so the first answer text is its first token",
    lambda m: m.first_visible != m.first and not m.tools_only,
)
NO_ONE_TOKEN = Reason("answers of one token are left out", lambda m: m.output == 1)
TO_USAGE = Reason("its clock runs on to the usage event", lambda m: m.usage is not None and m.usage > m.last)
TO_JSON = Reason("its clock runs on to the last JSON event", lambda m: _last_json(m) > m.last)
TO_END = Reason("its clock runs on to the last line of the stream", lambda m: m.done > m.last)
TOOLS = Reason("tool calls are not read", lambda m: m.tools_only)
ASKED = Reason(
    "it asks for no usage in a chat, so the tokens asked for count as generated",
    lambda m: m.asked is not None and m.asked != m.output,
)
FIRST_EVENT = Reason("the first event counts as one token, it held more", lambda m: m.first_tokens > 1)
HIDDEN = Reason(
    "tokens of reasoning that was not streamed count into the pace of the visible ones, where loadkit gives none",
    lambda m: Flag.HIDDEN_REASONING.value in m.flags,
)
AT_ONCE = Reason("an answer that came at one instant counts as 0 ms per token", lambda m: m.first == m.last)
FIRST_IN = Reason("the wait for the first token is spread over all tokens")
MEAN_GAP = Reason("the mean of each request, no gap is kept")
EVENT_GAPS = Reason("gaps between events count as gaps between tokens", lambda m: m.several)
ZERO_GAPS = Reason("an event is tokenised again and the tokens inside it get gaps of 0", lambda m: m.several)
BURSTS = Reason(
    "events that came in one read have gaps near 0, which loadkit withholds", lambda m: Flag.BURSTY.value in m.flags
)
ALL_IN = Reason("TTFT and all gaps divided by all events, those without text too")


def _last_json(m: Marks) -> float:
    return max(m.last, m.finish, m.usage or 0.0)


def _after(m: Marks) -> float:
    """Where genai-bench stops: the usage event; without one, the end of the stream."""
    return m.done if m.usage is None else m.usage


def _per_token(start: float | None, end: float, tokens: int | None) -> list[float]:
    """(end - start) / tokens; nothing where that is no time per token."""
    return [] if start is None or not tokens or tokens < 1 or end < start else [(end - start) / tokens]


def _later(tokens: int | None) -> int | None:
    """Tokens after the first."""
    return None if tokens is None else tokens - 1


def _one(value: float | None) -> list[float]:
    return [] if value is None else [value]


def _any_channel(m: Marks) -> list[float]:
    return [m.first + m.connect]


def _text(m: Marks) -> list[float]:
    """Any channel but tool calls."""
    return [] if m.tools_only else _any_channel(m)


def _vllm_first(m: Marks) -> float | None:
    return m.first if m.tools_only else m.first_visible


def _visible(m: Marks) -> list[float]:
    return [] if m.first_visible is None else [m.first_visible + m.connect]


def _sglang_tokens(m: Marks) -> int | None:
    return m.asked or m.output


def _retokenised(m: Marks) -> list[float]:
    """Gaps of inference-perf: those between events of answer text, and a 0 for each further token of an event."""
    if not m.visible_gaps:
        return []
    if m.event_tokens:
        extra = sum(max(count - 1, 0) for count in m.event_tokens[len(m.times) - len(m.visible) :])
    else:
        extra = max((m.output or 0) - len(m.times), 0) if m.several else 0
    return [*m.visible_gaps, *[0.0] * extra]


def _tokens(m: Marks) -> list[float]:
    return _one(m.output)


COUNTED = Rule("output tokens of the server's usage / window", _tokens)

VLLM = Peer(
    "vLLM bench",
    ttft=Rule(
        "first answer text or tool call - call",
        lambda m: [at + m.connect for at in _one(_vllm_first(m))],
        (CONNECT, REASONING_CONTENT),
    ),
    itl=Rule(
        "all gaps between events, pooled",
        lambda m: m.gaps if m.tools_only else m.visible_gaps,
        (REASONING_CONTENT, EVENT_GAPS, BURSTS),
    ),
    tpot=Rule(
        "(last token - first answer text) / (n - 1)",
        lambda m: _per_token(_vllm_first(m), m.last, _later(m.output)),
        (REASONING_CONTENT, FIRST_EVENT, HIDDEN, AT_ONCE),
    ),
    tokens=COUNTED,
    percentile=LINEAR,
    beyond="event: lines, data: without a space and CRLF break its parser",
)

SGLANG = Peer(
    "SGLang bench",
    ttft=Rule("first token - call", _text, (CONNECT, TOOLS)),
    itl=Rule("all gaps between events, pooled", lambda m: m.gaps, (EVENT_GAPS, BURSTS)),
    tpot=Rule(
        "(last line - first token) / (n - 1), n = max_tokens",
        lambda m: _per_token(m.first, m.done, _later(_sglang_tokens(m))),
        (ASKED, TO_END, FIRST_EVENT, HIDDEN, AT_ONCE),
    ),
    tokens=Rule("max_tokens / window", lambda m: _one(_sglang_tokens(m)), (ASKED,)),
    percentile=LINEAR,
    beyond="every request opens a connection inside its TTFT",
)

GENAI_BENCH = Peer(
    "genai-bench",
    ttft=Rule("first token - call", lambda m: [] if m.output == 1 else _text(m), (CONNECT, TOOLS, NO_ONE_TOKEN)),
    itl=Rule("-", lambda m: [], absent="no gap is kept"),
    tpot=Rule(
        "(usage event - first token) / (n - 1)",
        lambda m: _per_token(m.first, _after(m), _later(m.output)),
        (TO_USAGE, Reason(TO_END.text, lambda m: m.usage is None and m.done > m.last), FIRST_EVENT, HIDDEN, AT_ONCE),
    ),
    tokens=COUNTED,
    percentile=LINEAR,
    beyond="every request opens a connection inside its TTFT; prompts are tokenised on the measuring loop",
)

GUIDELLM = Peer(
    "guidellm",
    ttft=Rule("first token - request head sent", lambda m: [m.first]),
    itl=Rule(
        "(last token - first token) / (n - 1) of each request",
        lambda m: _per_token(m.first, m.last, _later(m.output)),
        (MEAN_GAP, FIRST_EVENT, HIDDEN, AT_ONCE),
        weight=lambda m: float(max((m.output or 1) - 1, 1)),
    ),
    tpot=Rule("(last token - t0) / n", lambda m: _per_token(0.0, m.last, m.output), (FIRST_IN, HIDDEN)),
    tokens=COUNTED,
    percentile=WEIGHTED,
    beyond="times are of the wall clock, which may step",
)

AIPERF = Peer(
    "aiperf",
    ttft=Rule("first token - call", _any_channel, (CONNECT,)),
    itl=Rule(
        "(last token - first token) / (n - tokens of the first event) of each request",
        lambda m: _per_token(m.first, m.last, None if m.output is None else m.output - m.first_tokens),
        (MEAN_GAP, HIDDEN, AT_ONCE),
    ),
    tpot=Rule("-", lambda m: [], absent="no TPOT is printed; its ITL is one, 1000 / ITL its tokens/s per user"),
    tokens=COUNTED,
    percentile=LINEAR,
    beyond="output tokens are counted by its own tokenizer unless --use-server-token-count; the wait for a free "
    "connection is inside its TTFT",
)

INFERENCE_PERF = Peer(
    "inference-perf",
    ttft=Rule(
        "first answer text - dispatch, retries included",
        lambda m: [at + m.before for at in _visible(m)] if len(m.visible) > 1 else [],
        (CONNECT, RETRIES, REASONING, NO_ONE_TOKEN),
    ),
    itl=Rule("gaps after tokenising events again, pooled", _retokenised, (REASONING, ZERO_GAPS, BURSTS)),
    tpot=Rule(
        "(last token - first answer text) / (n - 1)",
        lambda m: _per_token(m.first_visible, m.last, _later(m.output)),
        (REASONING, FIRST_EVENT, HIDDEN, AT_ONCE),
    ),
    tokens=COUNTED,
    percentile=LINEAR,
    beyond="tokens are counted by its own tokenizer, inside its E2E; CRLF streams give no token",
)

EVALSCOPE = Peer(
    "evalscope",
    ttft=Rule("first token - call", _any_channel, (CONNECT,)),
    itl=Rule("all gaps between events, pooled", lambda m: m.gaps, (EVENT_GAPS, BURSTS)),
    tpot=Rule(
        "(last JSON event - first token) / (n - 1)",
        lambda m: _per_token(m.first, _last_json(m), _later(m.output)),
        (TO_JSON, FIRST_EVENT, HIDDEN, AT_ONCE),
    ),
    tokens=COUNTED,
    percentile=NEAREST,
    beyond="empty answers count as successes with a TTFT of 0",
)

LLMPERF = Peer(
    "llmperf",
    ttft=Rule("first answer text - call", _visible, (CONNECT, REASONING)),
    itl=Rule(
        "(TTFT + all gaps) / events of each request",
        lambda m: [] if not m.visible else [(m.visible[-1] + m.connect) / m.data_events],
        (ALL_IN,),
    ),
    tpot=Rule("-", lambda m: [], absent="no TPOT is printed"),
    tokens=COUNTED,
    percentile=LINEAR,
    beyond="output tokens are counted by a Llama tokenizer whatever the model; every request opens a connection",
)

PEERS = (VLLM, SGLANG, GENAI_BENCH, GUIDELLM, AIPERF, INFERENCE_PERF, EVALSCOPE, LLMPERF)
