"""One name or path in, everything a server needs out: model dimensions, weights, tokenizer, chat template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadkit.engine import builtin, dims, gguf_file, gguf_tokenizer, hf_folder
from loadkit.engine.chat import ChatTemplate
from loadkit.engine.config import ModelConfig
from loadkit.engine.errors import EngineError
from loadkit.engine.tokenizer import BpeTokenizer, ByteTokenizer, Tokenizer, from_folder, special_text, stop_tokens
from loadkit.engine.untrusted import read_json, read_text, shown
from loadkit.engine.weights import Weights


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to serve."""

    name: str  # what requests call it
    source: str  # "builtin", "random", "gguf" or "safetensors"
    config: ModelConfig
    weights: Weights
    tokenizer: Tokenizer
    template: ChatTemplate | None
    stops: frozenset[int]  # tokens that end an answer
    suppressed: tuple[int, ...] = ()  # tokens never generated


def load(model: str, *, seed: int = 0, threads: int = 1) -> Loaded:
    """Load "builtin", "random:NAME" of `dims.py`, a GGUF file or a Hugging Face folder, for as many threads.

    `seed` makes random weights. Raises EngineError, one line that says what is wrong.
    """
    if model == "builtin":
        return _random(builtin.NAME, "builtin", builtin.CONFIG, seed, threads)
    if model.startswith(dims.PREFIX):
        name = model.removeprefix(dims.PREFIX)
        return _random(f"{name.lower()}-random", "random", dims.of(name), seed, threads)
    path = Path(model).expanduser()
    if path.is_dir():
        return _folder(path, threads)
    if path.is_file():
        return _gguf(path, threads)
    raise EngineError(f"--model {model}: no such file or folder; give a GGUF file, a Hugging Face folder or builtin")


def _random(name: str, source: str, config: ModelConfig, seed: int, threads: int) -> Loaded:
    """Seeded weights behind a tokenizer of bytes."""
    tokenizer = ByteTokenizer()
    return Loaded(
        name=name,
        source=source,
        config=config,
        weights=builtin.random_weights(config, seed, threads),
        tokenizer=tokenizer,
        template=ChatTemplate(builtin.CHAT_TEMPLATE),
        stops=stop_tokens(tokenizer, [tokenizer.specials["<|endoftext|>"]]),
        suppressed=builtin.suppressed(config),
    )


def _gguf(path: Path, threads: int) -> Loaded:
    file = gguf_file.GgufFile(path)
    metadata = file.metadata
    tokenizer = gguf_tokenizer.build(metadata)  # before the weights: a wrong kind is told at once
    tokens = metadata["tokenizer.ggml.tokens"]
    ids = {name: gguf_tokenizer.token_id(metadata, f"{name}_id") for name in ("bos_token", "eos_token", "eot_token")}
    named = {name: tokens[index] for name, index in ids.items() if index is not None}
    template = _template(metadata.get("tokenizer.chat_template"), named)
    eos = [index for name, index in ids.items() if index is not None and name != "bos_token"]
    config, weights = gguf_file.load(file, threads)
    _fit(tokenizer, config)
    return Loaded(path.stem, "gguf", config, weights, tokenizer, template, stop_tokens(tokenizer, eos))


def _folder(path: Path, threads: int) -> Loaded:
    raw = read_json(path / "config.json")
    settings_path = path / "tokenizer_config.json"
    settings = read_json(settings_path) if settings_path.exists() else {}
    tokenizer = from_folder(path, settings)
    template_file = path / "chat_template.jinja"  # newer folders keep the template here
    source = read_text(template_file) if template_file.exists() else settings.get("chat_template")
    named = {name: special_text(settings.get(name)) for name in ("bos_token", "eos_token")}
    template = _template(source, {name: text for name, text in named.items() if text})
    generation = path / "generation_config.json"
    eos = (read_json(generation) if generation.exists() else raw).get("eos_token_id", raw.get("eos_token_id"))
    config, weights = hf_folder.load(path, threads)
    _fit(tokenizer, config)
    ends = [token for token in (eos if isinstance(eos, list) else [eos]) if token is not None]
    if not all(type(token) is int and 0 <= token < config.vocab for token in ends):
        raise EngineError(f"{path.name}: eos_token_id {shown(eos)} is no token")
    return Loaded(
        path.resolve().name, "safetensors", config, weights, tokenizer, template, stop_tokens(tokenizer, ends)
    )


def _template(source: Any, variables: Mapping[str, str]) -> ChatTemplate | None:
    """The chat template where there is one; of several named ones, as older folders have them, the default one."""
    if isinstance(source, list):
        source = {item.get("name"): item.get("template") for item in source if isinstance(item, dict)}.get("default")
    if source is not None and not isinstance(source, str):
        raise EngineError("the chat template is no text")
    return ChatTemplate(source, variables=variables) if source else None


def _fit(tokenizer: BpeTokenizer, config: ModelConfig) -> None:
    """Raise when the tokenizer has ids that the embedding lacks."""
    if tokenizer.highest >= config.vocab:
        raise EngineError(f"the tokenizer has ids up to {tokenizer.highest}, the embedding only {config.vocab} rows")
