"""What the endpoints do, without HTTP: tokenise, check against the window, queue, describe the model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from loadkit.engine import request
from loadkit.engine.errors import ApiError
from loadkit.engine.generation import Finished, Generation, Sampling
from loadkit.engine.load import Loaded
from loadkit.engine.metrics import Metrics
from loadkit.engine.model import Model
from loadkit.engine.request import Asked
from loadkit.engine.scheduler import Scheduler
from loadkit.engine.tokenizer import Detokenizer

COMPLETION_TOKENS = 16  # OpenAI's default of max_tokens for /v1/completions; a chat may use the rest of the window


class Service:
    """A loaded model with its scheduler; the caller gives the scheduler a thread."""

    def __init__(self, loaded: Loaded, *, context: int | None, threads: int, slots: int, queue: int) -> None:
        self.loaded = loaded
        self.model = Model(loaded.config, loaded.weights, context=context, threads=threads)
        self.metrics = Metrics()
        self.scheduler = Scheduler(
            self.model,
            slots=slots,
            queue=queue,
            metrics=self.metrics,
            stops=loaded.stops,
            suppressed=loaded.suppressed,
        )
        self._started = int(time.time())

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
        return self.metrics.render(running=self.scheduler.running, waiting=self.scheduler.waiting)

    def ask(self, raw: Mapping[str, Any], *, chat: bool) -> Asked:
        """Check a request body."""
        return request.parse(raw, chat=chat, model=self.loaded.name, vocab=self.loaded.config.vocab)

    def start(self, asked: Asked, alive: Callable[[], bool]) -> Generation:
        """Tokenise and queue; ApiError 400 above the window, 429 when the queue is full."""
        prompt = self._prompt(asked)
        if not prompt:
            raise ApiError(400, "invalid_value", "the prompt has no tokens", param="prompt")
        sampling = Sampling(
            max_tokens=self._max_tokens(asked, len(prompt)),
            min_tokens=asked.min_tokens,
            ignore_eos=asked.ignore_eos,
            temperature=asked.temperature,
            seed=asked.seed,
        )
        generation = Generation(prompt, sampling, alive)
        self.scheduler.submit(generation)
        return generation

    def texts(self, generation: Generation) -> Iterator[str | Finished]:
        """The answer as it comes: one text per token that completes a character, then how it ended."""
        detokenizer = Detokenizer(self.loaded.tokenizer)
        while not isinstance(event := generation.events.get(), Finished):
            if text := detokenizer.feed(event):
                yield text
        if text := detokenizer.flush():
            yield text
        yield event

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
