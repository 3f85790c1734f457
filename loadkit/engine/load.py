"""One name or path in, everything a server needs out: model dimensions, weights, tokenizer, chat template."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loadkit.engine import builtin, gguf_file, gguf_tokenizer, hf_folder
from loadkit.engine.chat import ChatTemplate
from loadkit.engine.config import ModelConfig
from loadkit.engine.errors import EngineError
from loadkit.engine.tokenizer import ByteTokenizer, Tokenizer, from_folder, special_text, stop_tokens
from loadkit.engine.weights import Weights


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to serve."""

    name: str  # what requests call it
    source: str  # "builtin", "gguf" or "safetensors"
    config: ModelConfig
    weights: Weights
    tokenizer: Tokenizer
    template: ChatTemplate | None
    stops: frozenset[int]  # tokens that end an answer
    suppressed: tuple[int, ...] = ()  # tokens never generated


def load(model: str, *, seed: int = 0) -> Loaded:
    """Load "builtin", a GGUF file or a Hugging Face folder. Raises EngineError, one line that says what is wrong."""
    if model == "builtin":
        return _builtin(seed)
    path = Path(model).expanduser()
    if path.is_dir():
        return _folder(path)
    if path.is_file():
        return _gguf(path)
    raise EngineError(f"--model {model}: no such file or folder; give a GGUF file, a Hugging Face folder or builtin")


def _builtin(seed: int) -> Loaded:
    tokenizer = ByteTokenizer()
    return Loaded(
        name=builtin.NAME,
        source="builtin",
        config=builtin.CONFIG,
        weights=builtin.random_weights(builtin.CONFIG, seed),
        tokenizer=tokenizer,
        template=ChatTemplate(builtin.CHAT_TEMPLATE),
        stops=stop_tokens(tokenizer, [tokenizer.specials["<|endoftext|>"]]),
        suppressed=builtin.SUPPRESSED,
    )


def _gguf(path: Path) -> Loaded:
    file = gguf_file.GgufFile(path)
    metadata = file.metadata
    tokenizer = gguf_tokenizer.build(metadata)  # before the weights: a wrong kind is told at once
    source = metadata.get("tokenizer.chat_template")
    tokens = metadata["tokenizer.ggml.tokens"]
    ids = {name: metadata.get(f"tokenizer.ggml.{name}_id") for name in ("bos_token", "eos_token")}
    named = {name: tokens[index] for name, index in ids.items() if index is not None and index < len(tokens)}
    eos = [metadata[key] for key in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id") if key in metadata]
    config, weights = gguf_file.load(file)
    return Loaded(
        name=path.stem,
        source="gguf",
        config=config,
        weights=weights,
        tokenizer=tokenizer,
        template=ChatTemplate(source, variables=named) if source else None,
        stops=stop_tokens(tokenizer, eos),
    )


def _folder(path: Path) -> Loaded:
    raw = hf_folder.read_json(path / "config.json")
    settings_path = path / "tokenizer_config.json"
    settings = hf_folder.read_json(settings_path) if settings_path.exists() else {}
    tokenizer = from_folder(path, settings)
    template_file = path / "chat_template.jinja"  # newer folders keep the template here
    source = template_file.read_text("utf-8") if template_file.exists() else settings.get("chat_template")
    named = {name: special_text(settings.get(name)) for name in ("bos_token", "eos_token")}
    generation = path / "generation_config.json"
    eos = (hf_folder.read_json(generation) if generation.exists() else raw).get("eos_token_id", raw.get("eos_token_id"))
    config, weights = hf_folder.load(path)
    return Loaded(
        name=path.resolve().name,
        source="safetensors",
        config=config,
        weights=weights,
        tokenizer=tokenizer,
        template=ChatTemplate(source, variables={k: v for k, v in named.items() if v}) if source else None,
        stops=stop_tokens(tokenizer, eos if isinstance(eos, list) else [eos] if isinstance(eos, int) else []),
    )
