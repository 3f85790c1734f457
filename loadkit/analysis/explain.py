"""What to check, in order, for every outcome and flag a record can hold, and for the HTTP codes behind them."""

from difflib import get_close_matches

CHECK_ORDER = (
    "the status code: it says which of the lines below applies",
    "401: the key (is its variable set in this process, without blanks or a newline; is the header name right)",
    "404: the model name and the path (the base URL ends in /v1 or the like, without /chat/completions)",
    "timeouts: the limits on this side, then the length of the prompt against the window",
)

EXPLANATIONS: dict[str, tuple[str, ...]] = {
    # outcomes
    "ok": ("nothing: status 200, at least one token, and a terminal signal",),
    "auth": (
        "401: the key variable is set in the process that sends, with no blank or newline around the value",
        "the key belongs to this service and is not revoked",
        "the header: Authorization: Bearer for OpenAI-style services, x-api-key for Anthropic-style ones",
        "the base URL is the one this key was issued for (regions and plans have their own)",
    ),
    "forbidden": (
        "403: the key is known but may not use this model or region",
        "a gateway or firewall in front refuses this address",
    ),
    "not_found": (
        "404: the base URL carries the version part (/v1, /api/v1) exactly once",
        "the path is not in the base URL already: /chat/completions is added by loadkit",
        "the protocol: chat, completions, Anthropic and Ollama have different paths",
    ),
    "model_not_found": (
        "the model name, letter by letter, against what /models lists",
        "the alias is served by this base URL and open to this key",
    ),
    "bad_request": (
        "400: read error_message, it names the field",
        "a field of --extra-body or --ignore-eos the server does not take",
        "max_tokens against the server's own limit",
        "the payload's length and the model, when the message says nothing",
    ),
    "context_length_exceeded": (
        "prompt tokens + max_tokens against the server's window (limit_tokens and requested_tokens, if it says them)",
        "the window the server was started with can be smaller than the model's",
        "an alias may have moved to a model with a smaller window",
    ),
    "payload_too_large": (
        "413: the body limit of the proxy in front (client_max_body_size and the like), before the server's own",
        "the body in bytes: a long prompt is 4 to 6 bytes per token",
    ),
    "rate_limited": (
        "429: lower the concurrency first, then let the back-off work (it honours Retry-After)",
        "the limit of tokens per minute: one long prompt can use it up",
        "the limit of requests per minute",
        "this is a limit of rate, not of length: the tier is not unsupported",
    ),
    "quota_exhausted": (
        "the account's balance or monthly quota; waiting does not help",
        "the key belongs to the project that pays",
    ),
    "overloaded": (
        "503 or 529: the server is full or still loading the model",
        "its queue limit against the planned concurrency",
        "try the same cell later, at a lower concurrency",
    ),
    "server_error": (
        "500: the server's log at this request id",
        "out of memory at this length and concurrency (KV cache)",
        "the same request alone: does it fail too",
    ),
    "bad_gateway": (
        "502: the server behind the proxy died or closed the connection",
        "the proxy's upstream and its keep-alive time",
    ),
    "gateway_timeout": (
        "504: the proxy gave up before the first token: its read timeout against the TTFT of this tier",
        "the prefill queue: a lower concurrency shows it",
        "streaming is on, and the proxy does not buffer",
        "one timeout does not make a tier unavailable: look at the other rounds",
    ),
    "http_other": ("the status and error_message of the record", "a redirect, a login page or a proxy's own answer"),
    "connect_error": (
        "the server runs and listens on this host and port",
        "http or https, and the port, in the base URL",
        "a firewall; the server's backlog at this concurrency",
    ),
    "dns_error": ("the host name in the base URL", "the resolver of this machine or pod"),
    "tls_error": (
        "https against a port that speaks http, or the other way round",
        "the certificate: expired, another name, or a private authority (SSL_CERT_FILE)",
        "the clock of this machine",
    ),
    "proxy_error": (
        "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY in this process; error_message names the one that was used",
        "does the server need the proxy at all: try --no-proxy",
        "the proxy's own log and login",
    ),
    "connect_timeout": (
        "packets are dropped: firewall, security group, wrong address",
        "the server's accept queue is full at this concurrency",
        "--connect-timeout",
    ),
    "pool_timeout": (
        "a fault of this side: no free connection when the request was due; the sample is not the server's",
        "fewer streams per worker, or more workers",
    ),
    "write_timeout": ("the upload of a long body over a slow link", "a server that stops reading while it is busy"),
    "ttft_timeout": (
        "--ttft-timeout against the prefill time of this tier (the sentence on growth predicts it)",
        "the prefill queue: run the same tier at concurrency 1",
        "a proxy that buffers the stream",
        "the server still loading the model",
    ),
    "read_timeout": (
        "the stream fell silent after it began: the server's log at this time",
        "--read-timeout (600 s and more for the longest tiers)",
        "a proxy's idle timeout",
        "the queue for prefill or decode: one timeout does not make a tier unavailable",
    ),
    "total_timeout": ("the total limit against TTFT + max_tokens x TPOT of this tier",),
    "reset": (
        "the server or a proxy closed the connection: a crash, a restart, out of memory",
        "an idle limit between server, proxy and load balancer",
    ),
    "stream_truncated": (
        "the stream ended without a terminal signal: a proxy cut it or the server died",
        "a limit on response time or size in front of the server",
    ),
    "stream_error": (
        "error_message: the server reported an error inside a stream of status 200",
        "finish_reason abort or error: the server gave the request up (memory, preemption, its own timeout)",
    ),
    "empty_response": (
        "status 200 and no token: the filter, the chat template, or a stop sequence at the very start",
        "max_tokens is at least 1",
        "the channel: tool calls and reasoning count, keep-alives do not",
    ),
    "bad_response_shape": (
        "the protocol matches the server (openai-chat, openai-completions, anthropic, ollama)",
        "a page or JSON of a proxy instead of the answer",
    ),
    "protocol_error": (
        "bytes that are not the protocol: damaged chunked framing, invalid UTF-8, a line without end",
        "a proxy between HTTP/1.1 and HTTP/2",
    ),
    "aborted": ("we stopped it: a signal, a budget, or the end of the drain time; it says nothing of the server",),
    # flags
    "tokens_per_event_gt_1": (
        "the server sends several tokens per event (multi-token prediction, speculative decoding, buffering)",
        "use TPOT; ITL percentiles are withheld",
    ),
    "hidden_reasoning": (
        "reasoning tokens were counted but not streamed: TTFT includes the time to think",
        "switch reasoning off, or compare ttft_content_ms only between equal settings",
    ),
    "not_streamed": (
        "the answer came in one piece: TTFT equals E2E and says nothing of prefill",
        "stream: true reached the server; the proxy does not buffer",
    ),
    "bursty": (
        "several events per network read: a proxy buffers, or the server flushes in batches",
        "proxy_buffering off, X-Accel-Buffering: no, no compression of the stream",
        "the load generator was busy: look at hub lag",
    ),
    "events_are_characters": (
        "the server streams one character an event and states no usage, so the tokens of the answer are not known: "
        "counted as tokens they would make decode several times too fast",
        "Rockchip's RKLLM demo adds text to a list with += in its callback; with .append an event is a token",
        "TTFT stands; for decode use a server that states usage, or the engine's own log",
    ),
    "no_done": ("the stream ended by finish_reason without [DONE]: harmless, but a proxy may have cut the end",),
    "no_finish_reason": ("the stream ended by [DONE] without finish_reason: output may be cut short",),
    "empty_output": ("tokens were counted but no text arrived: a channel loadkit does not show, or a filter",),
    "short_output": (
        "fewer output tokens than asked: the model stopped by itself; TPOT rests on few gaps",
        "--ignore-eos, where the server takes it",
    ),
    "prompt_truncated": (
        "the server read fewer tokens than were sent: its window cuts prompts silently",
        "the server's context setting (num_ctx, --max-model-len, -c)",
        "TTFT of this request belongs to a shorter prompt",
    ),
    "prefix_cache_hit": (
        "wanted under --shared-prefix; otherwise part of the prompt came from a cache: TTFT is too good for the length",
        "the server caches across requests, and these prompts were sent before (same seed)",
        "unit price is per uncached token; use another --seed or switch the cache off",
    ),
    "hit_max_tokens": ("output stopped at max_tokens, as planned for fixed output lengths",),
    "client_saturated": (
        "hub lag or CPU of the load generator was too high: the numbers include its own delay",
        "fewer streams per worker, more workers, another machine than the server's",
    ),
    "too_few_rounds": ("fewer than three rounds answered: no verdict; run with --rounds 3 or more",),
    "low_n": ("fewer than 100 samples: p99 is the maximum or nearly so; read it as such",),
    "model_drift": (
        "the model or system_fingerprint in the answers changed during the run",
        "an alias was switched, or a router spreads requests over different servers",
        "compare only requests of one model: pin its full name",
    ),
    "cold": ("the first request on a new connection: connect time is apart, but caches on the way were cold",),
    "throttled": (
        "the board lowered its clock: temperature, power supply, or governor",
        "cooling; then repeat the cell",
    ),
    "unlocked": ("clocks were not locked: repeat with locked clocks before comparing boards",),
    "decode_drop": (
        "tokens got slower inside the answer: reads of a growing KV cache, or another load on the machine",
        "a fixed output length and an idle machine, then repeat",
        "thermal throttling on a board",
    ),
}

# Faults of a configuration, found before anything is sent: they stand in messages, never in records.
CONFIGURATION: dict[str, tuple[str, ...]] = {
    "endpoint_style_mix": (
        "the key's variable belongs to one style (ANTHROPIC_*, OPENAI_*) and `protocol` to the other; a server answers "
        "such a request with 401, as if the key were wrong",
        "export this endpoint's key under a name of its own, such as LAB_API_KEY, and name it in key_env",
        "or change `protocol`: anthropic goes to /v1/messages with x-api-key, openai-chat to /chat/completions with "
        "Authorization: Bearer",
        "for one key, path, header and model alias can all differ between two tools: compare `loadkit curl` of both",
    ),
}

STATUS_CODES: dict[str, str] = {
    "400": "bad_request",
    "401": "auth",
    "403": "forbidden",
    "404": "not_found",
    "413": "payload_too_large",
    "429": "rate_limited",
    "500": "server_error",
    "502": "bad_gateway",
    "503": "overloaded",
    "504": "gateway_timeout",
    "529": "overloaded",
}


def explain(name: str | None = None) -> tuple[str, ...]:
    """Causes of an outcome, flag, HTTP status or configuration fault, in the order to check them.

    Without a name: the fixed first checks.

    Raises ValueError with one line for an unknown name.
    """
    if name is None:
        return CHECK_ORDER
    wanted = name.strip().lower().replace("-", "_")
    wanted = STATUS_CODES.get(wanted, wanted)
    known = EXPLANATIONS | CONFIGURATION
    if wanted in known:
        return known[wanted]
    near = get_close_matches(wanted, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; one of: {' '.join(known)}"
    raise ValueError(f"no outcome, flag or status code is called {name!r}{hint}")
