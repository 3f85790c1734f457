"""Chat templates: messages to the text a model was trained on, by Jinja in a sandbox (templates come with models)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from loadkit.engine.errors import ApiError, EngineError
from loadkit.engine.untrusted import shown


class ChatTemplate:
    """A compiled template. Raises EngineError when its source is not valid Jinja."""

    def __init__(self, source: str, *, variables: Mapping[str, str] | None = None) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.now(UTC).strftime(form)
        self._variables = dict(variables or {})  # bos_token, eos_token: names templates use
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise EngineError(f"the chat template is not valid Jinja: {shown(error)}") from None

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt text that ends where the assistant's answer begins; ApiError 400 when the template refuses."""
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._variables)
        except Exception as error:  # noqa: BLE001 (a template is a program of somebody else's, it may raise anything)
            text = f"the chat template refuses these messages: {shown(error)}"
            raise ApiError(400, "invalid_messages", text) from None


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)
