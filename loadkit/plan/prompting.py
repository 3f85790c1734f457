"""What the options say about prompts: how they are counted, and what they are made of."""

import os
from pathlib import Path
from typing import Any

from loadkit.plan.errors import ConfigError
from loadkit.plan.given import Given
from loadkit.plan.text import BYTES_PER_TOKEN


def prompting(options: Given, cwd: Path) -> dict[str, Any]:
    """The fields of a plan that are about prompts; paths are absolute. ConfigError where options exclude each other."""
    filler, shared = options.text("filler"), options.number("shared-prefix", float, 0, 0.99)
    tokenizer, prompts = _existing(options, "tokenizer", cwd), _existing(options, "prompts", cwd)
    if filler is not None and filler not in BYTES_PER_TOKEN:
        raise ConfigError(f"--filler {filler[:40]!r}: must be one of {', '.join(BYTES_PER_TOKEN)}")
    if prompts is not None:
        if not options.flag("prompts-are-public"):
            raise ConfigError(
                "--prompts sends the texts of the file to the endpoint: say --prompts-are-public if nothing in them is "
                "private, or leave --prompts out"
            )
        if filler is not None or shared is not None:
            raise ConfigError("--prompts are sent as they are: leave --filler and --shared-prefix out")
    if (ids := options.flag("token-ids")) and tokenizer is None:
        raise ConfigError("--token-ids needs --tokenizer FILE, the model's own tokenizer.json")
    made = {"filler": filler or "en", "shared_prefix": shared or 0.0, "tokenizer": tokenizer, "prompts": prompts}
    return {**made, "token_ids": ids}


def _existing(options: Given, name: str, cwd: Path) -> str | None:
    text = options.text(name)
    if text is None:
        return None
    path = cwd / Path(text).expanduser()
    if not os.path.exists(path):
        raise ConfigError(f"--{name} {text}: there is no such file")
    return str(path.absolute())
