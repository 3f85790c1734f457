"""The shipped catalogue of model cards, and how a name that a server reports finds its row.

A name matches when an alias and words that change neither size nor shape (instruct, a quantisation, a date, a context
length) use it up. Anything left over (another size, vision, a version) matches nothing: better none than a wrong one.
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from loadkit.capacity.card import Dimensions, LinearAttention, Mla, ModelCard, Moe, Sliding
from loadkit.capacity.errors import CardError
from loadkit.capacity.params import check

PARTS = {"mla": Mla, "moe": Moe, "sliding": Sliding, "linear": LinearAttention}
WORDS = (
    "instruct|it|chat|base|hf|thinking|turbo|latest|free|preview",
    "gguf|mlx|awq|gptq|exl[23]|bnb|unsloth|ud|dynamic|quanti[sz]ed|imat|i1",
    r"fp(?:4|8|16|32)|bf16|f16|f32|int[48]|nf4|mxfp4|nvfp4|[2-8]-?bit|w\d{1,2}a\d{1,2}|g\d{2,3}",
    r"i?q\d(?:-(?:k|0|1))?(?:-(?:xxs|xs|s|m|l|xl|nl))?",
    r"\d{1,4}k|v\d(?:\.\d)?|\d{4}(?:\d{2,4})?",
)
HARMLESS = re.compile(rf"(?:[-.](?:{'|'.join(WORDS)}))*")
SHARD = re.compile(r"-\d{5}-of-\d{5}$")


@cache
def cards() -> dict[str, ModelCard]:
    """Every row by each of its aliases, its counts checked. CardError when a row contradicts itself."""
    found: dict[str, ModelCard] = {}
    for row in tomllib.loads(_text())["model"]:
        card = check(_card(row))
        for alias in row["aliases"]:
            if alias in found:
                raise CardError(f"catalogue: {alias} names both {found[alias].name} and {card.name}")
            found[alias] = card
    return found


def lookup(name: str) -> ModelCard | None:
    """The card of a model name such as `Qwen/Qwen2.5-7B-Instruct-AWQ` or `llama3.1:8b-instruct-q4_K_M`, or None."""
    plain = normal(name)
    fitting = [alias for alias in cards() if plain.startswith(alias) and HARMLESS.fullmatch(plain, len(alias))]
    return cards()[max(fitting, key=len)] if fitting else None


def normal(name: str) -> str:
    """A name as aliases are written: no organisation, folder, file ending or shard, lower case, words joined by -."""
    last = re.split(r"[/\\]", name.strip().rstrip("/\\"))[-1].casefold()
    joined = re.sub(r"[-_: ]+", "-", last.removesuffix(".gguf"))
    return SHARD.sub("", joined)


def dimensions(raw: Mapping[str, Any]) -> Dimensions:
    """Dimensions from plain numbers and tables, as in the catalogue. CardError or TypeError when they are not right."""
    parts = {name: kind(**raw[name]) for name, kind in PARTS.items() if raw.get(name) is not None}
    return Dimensions(**{**raw, **parts})


def _text() -> str:
    return resources.files("loadkit.capacity").joinpath("catalogue.toml").read_text("utf-8")


def _card(row: Mapping[str, Any]) -> ModelCard:
    rest = {key: value for key, value in row.items() if key not in ("aliases", "dims")}
    dims = dimensions(row["dims"]) if "dims" in row else None
    return ModelCard(**{"context": dims.context if dims else None, **rest, "dims": dims})
