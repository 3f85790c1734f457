"""One text in, a model card out: a GGUF file, a config.json, a model folder, or a name of the catalogue."""

from difflib import get_close_matches
from pathlib import Path

from loadkit.capacity import config, gguf_card
from loadkit.capacity.card import ModelCard
from loadkit.capacity.catalogue import cards, lookup, normal
from loadkit.capacity.errors import CardError


def card_given(text: str, cwd: Path) -> ModelCard:
    """The card of `text`, a path seen from `cwd` or a model name. CardError with near names when there is none."""
    path = cwd / Path(text).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return gguf_card.read(path)
    if path.is_file() or (path / "config.json").is_file():
        return config.read(path)
    card = lookup(text)
    if card is None:
        near = get_close_matches(normal(text), cards(), 3)
        advice = f"; near it: {', '.join(near)}" if near else ""
        raise CardError(
            f"no model card for {text[:80]!r}{advice}; give a config.json, a model folder or a GGUF file instead"
        )
    return card
