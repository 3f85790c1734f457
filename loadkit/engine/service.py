"""What the endpoints do, without HTTP: tokenise, check against the window, queue, describe the model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from loadkit.engine import request
from loadkit.engine.errors import ApiError, EngineError
from loadkit.engine.generation import Finished, Generation, Sampling
from loadkit.engine.load import Loaded
from loadkit.engine.metrics import Metrics
from loadkit.engine.model import CHUNK, Model
from loadkit.engine.prefix import PrefixCache
from loadkit.engine.request import Asked
from loadkit.engine.scheduler import Scheduler

BODY_BYTES_PER_TOKEN = 64  # bytes of JSON for a token of the window; text takes 3 to 12
MIN_BODY = 2**20  # bytes that any body may have
COMPLETION_TOKENS = 16  # OpenAI's default of max_tokens for /v1/completions; a chat may use the rest of the window


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked request with its prompt in tokens, within the window."""

    asked: Asked
    prompt: list[int]
    sampling: Sampling
    tokenize_s: float  # seconds that the template and the tokenizer took


class Service:
    """A loaded model with its scheduler; the caller gives the scheduler a thread."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        context: int | None,
        slots: int,
        queue: int,
        prefix_cache_bytes: int,
        prefill_mode: str = "batched",
    ) -> None:
        self.loaded = loaded
        self.model = Model(loaded.config, loaded.weights, context=context, prefill_mode=prefill_mode)
        if slots > CHUNK // 2:
            raise EngineError(f"--slots may be at most {CHUNK // 2}, it is {slots}")
        self.slots = slots
        self.metrics = Metrics()
        self.scheduler = Scheduler(
            self.model,
            slots=slots,
            queue=queue,
            metrics=self.metrics,
            prefixes=PrefixCache(loaded.config, prefix_cache_bytes),
            stops=loaded.stops,
            suppressed=loaded.suppressed,
        )
        self._started = int(time.time())

    @property
    def max_body(self) -> int:
        """Bytes of a request body that are still read: far more than a prompt that fits the window has."""
        return max(MIN_BODY, BODY_BYTES_PER_TOKEN * self.model.context)

    @property
    def bos_tokens(self) -> int:
        """BOS tokens at the head of every prompt this server tokenises: 0 or 1."""
        return 0 if self.loaded.tokenizer.bos is None else 1

    def models(self) -> dict[str, Any]:
        """The body of /v1/models."""
        config = self.loaded.config
        meta = {
            "n_ctx": self.model.context,
            "n_ctx_train": config.context_length,
            "n_vocab": config.vocab,
            "n_params": config.parameters,
        }
        entry = {
            "id": self.loaded.name,
            "object": "model",
            "created": self._started,
            "owned_by": "loadkit",
            "max_model_len": self.model.context,
            "bos_tokens": self.bos_tokens,
            "meta": meta,
        }
        return {"object": "list", "data": [entry]}

    def tokenize(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """{"content": text} -> its tokens without BOS; {"messages": [...]} -> the whole prompt of a chat."""
        if "messages" in raw:
            tokens = self._chat_prompt(request.parse_messages(raw["messages"]))
        elif isinstance(raw.get("content"), str):
            tokens = self.loaded.tokenizer.encode(raw["content"])
        else:
            raise ApiError(400, "invalid_value", "content must be a string, or messages an array", param="content")
        return {"tokens": tokens, "count": len(tokens)}

    def metrics_text(self) -> str:
        """The body of /metrics."""
        scheduler = self.scheduler
        used = scheduler.kv_tokens / (self.slots * self.model.context)
        return self.metrics.render(running=scheduler.running, waiting=scheduler.waiting, kv_usage=used)

    def prepare(self, raw: Mapping[str, Any], *, chat: bool) -> Prepared:
        """Check a request body and tokenise its prompt; ApiError 400 when it is wrong or above the window.

        May take long for a long prompt; any thread may do it.
        """
        asked = request.parse(raw, chat=chat, model=self.loaded.name, vocab=self.loaded.config.vocab)
        began = time.perf_counter()
        prompt = self._prompt(asked)
        tokenize_s = time.perf_counter() - began
        if not prompt:
            raise ApiError(400, "invalid_value", "the prompt has no tokens", param="prompt")
        sampling = Sampling(
            max_tokens=self._max_tokens(asked, len(prompt)),
            min_tokens=asked.min_tokens,
            ignore_eos=asked.ignore_eos,
            temperature=asked.temperature,
            seed=asked.seed,
        )
        return Prepared(asked, prompt, sampling, tokenize_s)

    def start(
        self, prepared: Prepared, alive: Callable[[], bool], emit: Callable[[int | Finished], None]
    ) -> Generation:
        """Queue a generation; ApiError 503 when the queue is full."""
        generation = Generation(
            prepared.prompt,
            prepared.sampling,
            alive,
            emit,
            tokenize_s=prepared.tokenize_s,
            reuse=prepared.asked.cache_prompt,
        )
        self.scheduler.submit(generation)
        return generation

    def _prompt(self, asked: Asked) -> list[int]:
        if asked.messages is not None:
            return self._chat_prompt(asked.messages)
        if isinstance(asked.prompt, str):
            return self._with_bos(self.loaded.tokenizer.encode(asked.prompt))
        return asked.prompt or []

    def _chat_prompt(self, messages: list[dict[str, str]]) -> list[int]:
        if self.loaded.template is None:
            raise ApiError(400, "no_chat_template", "this model has no chat template; use /v1/completions")
        return self._with_bos(self.loaded.tokenizer.encode(self.loaded.template.render(messages)))

    def _with_bos(self, tokens: list[int]) -> list[int]:
        """BOS in front, unless the model wants none or its template has written it already."""
        bos = self.loaded.tokenizer.bos
        return tokens if bos is None or tokens[:1] == [bos] else [bos, *tokens]

    def _max_tokens(self, asked: Asked, prompt: int) -> int:
        window = self.model.context
        what = "messages" if asked.chat else "prompt"
        limit = f"This model's maximum context length is {window} tokens. However, "
        advice = f" Please reduce the length of the {what} or completion."
        if prompt >= window:
            text = f"{limit}your {what} resulted in {prompt} tokens.{advice}"
            raise ApiError(400, "context_length_exceeded", text, param=what)
        wanted = asked.max_tokens
        if wanted is not None and prompt + wanted > window:
            text = (
                f"{limit}you requested {prompt + wanted} tokens "
                f"({prompt} in the {what}, {wanted} in the completion).{advice}"
            )
            raise ApiError(400, "context_length_exceeded", text, param=what)
        if wanted is None:
            return window - prompt if asked.chat else min(COMPLETION_TOKENS, window - prompt)
        return wanted
