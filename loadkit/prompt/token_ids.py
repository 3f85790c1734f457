"""Prompts as token ids: the client tokenises before t0, so that no tokenizer of the server is inside TTFT.

For engines that take an array of ids where others take text (/completions of vLLM, SGLang and llama.cpp).
"""

import json
from dataclasses import replace
from pathlib import Path

from loadkit.plan.errors import ConfigError
from loadkit.prompt.prompt import Prompt

PROTOCOL = "openai-completions"


class TokenIds:
    """A tokenizer.json that turns prompts into the inside of a JSON array of ids, special tokens in front included."""

    def __init__(self, path: str | Path) -> None:
        """ConfigError for a file that is none, or one of another kind: only a tokenizer.json knows special tokens."""
        from tokenizers import Tokenizer

        at = Path(path)
        file = at / "tokenizer.json" if at.is_dir() else at
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # noqa: BLE001  the Rust reader raises bare Exception for any fault of the file
            raise ConfigError(
                f"--token-ids needs a tokenizer.json: {file.name} cannot be read as one: {error}"
            ) from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def ids(self, text: str) -> list[int]:
        """The ids of a text as the model reads it."""
        return list(self._tokenizer.encode(text).ids)

    def encode(self, prompt: Prompt) -> Prompt:
        """The same prompt as ids: `content` is what stands between the brackets, `tokens` their number."""
        ids = self.ids(json.loads(b'"' + b"".join(prompt.content) + b'"'))
        content = (",".join(map(str, ids)).encode(),)
        return replace(prompt, content=content, tokens=len(ids), exact=True, tokens_source="tokenizer")


def around(body: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Head and tail of a body with an array in the place of the string they were made for."""
    head, tail = body
    return head.removesuffix(b'"') + b"[", b"]" + tail.removeprefix(b'"')
