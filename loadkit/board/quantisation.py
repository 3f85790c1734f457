"""What a model's weights were stored as, spelt out: a board's numbers mean nothing without it.

`w8a8` is 8 bit weights and 8 bit activations with one scale per channel, `w4a16_g128` 4 bit weights in groups of 128.
Group size changes the speed as much as the bits do: RK3588 decodes a 1.5B model at 16.5 tokens/s as w8a8 and at 7.0 as
w8a8_g128 (rknn-llm benchmark.md 1.2.0).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadkit.board.description import Board
from loadkit.capacity.errors import CardError
from loadkit.capacity.quant import bits
from loadkit.plan.errors import ConfigError

NPU_STYLE = re.compile(r"w(\d{1,2})a(\d{1,2})(?:_g(\d{2,4}))?")
FLOAT_STYLE = re.compile(r"(?:bf16|fp?16|fp?32)")
VAGUE = re.compile(r"(?:int|w)?_?\d+(?:\.\d+)?(?:_?bits?)?")
GGUF_GROUP = {"q4_0": 32, "q4_1": 32, "q5_0": 32, "q5_1": 32, "q8_0": 32}
EXTRA = ("method", "hybrid", "opt")
WORD = re.compile(r"[A-Za-z0-9_.+-]{1,40}")


@dataclass(frozen=True, slots=True)
class Quantisation:
    """One quantisation. `weight_bits` holds the scales too; `stored_bits` are those of a weight alone, None in a mix of
    block types. `act_bits` None: as the engine computes. `group_size` None: one scale per channel, or none at all."""

    name: str
    weight_bits: float
    stored_bits: int | None
    act_bits: int | None
    group_size: int | None
    per_channel: bool
    method: str
    hybrid: str | None = None  # share of layers in another format, as rknn-llm calls it
    opt: str | None = None  # optimisation level of the conversion

    def to_json(self) -> dict[str, Any]:
        """Builtin values, for the manifest."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Quantisation":
        """What `to_json` wrote."""
        return cls(**{name: data.get(name) for name in cls.__slots__})  # type: ignore[arg-type]


def parse(text: str) -> Quantisation:
    """From `w4a16_g128`, `w8a8,method=normal,hybrid=0.5,opt=0`, `q4_k_m` or `fp16`. ConfigError says what to add."""
    name, *extra = (part.strip() for part in text.split(","))
    plain = name.casefold().replace("-", "_")
    more = _extra(extra)
    try:
        if match := NPU_STYLE.fullmatch(plain):
            group = int(match[3]) if match[3] else None
            return Quantisation(
                plain,
                bits(plain),
                int(match[1]),
                int(match[2]),
                group,
                group is None,
                more.pop("method", "rkllm"),
                **more,
            )
        if VAGUE.fullmatch(plain):
            raise ConfigError(_vague(name))
        width = bits(plain)
    except CardError as error:
        raise ConfigError(f"--quant: {error}") from None
    stored = re.match(r"i?q(\d)", plain)
    mixed = plain.endswith(("_m", "_s", "_l", "_xs", "_k"))
    whole = 16 if FLOAT_STYLE.fullmatch(plain) and width == 16 else None
    method = more.pop("method", "none" if whole else "gguf" if stored else plain)
    width_alone = whole or (int(stored[1]) if stored and not mixed else None)
    return Quantisation(plain, width, width_alone, None, GGUF_GROUP.get(plain), False, method, **more)


def check(quant: Quantisation, board: Board) -> str:
    """Where it can run on the board: "npu", "gpu" or "cpu". ConfigError where no engine of the board runs it.

    Names of the form w8a8 are those of NPU engines where the board has one; GGUF names are llama.cpp's.
    """
    npu = [engine for engine in board.engines if engine.runs_on == "npu"]
    other = [engine for engine in board.engines if engine.runs_on != "npu"]
    if not npu or not NPU_STYLE.fullmatch(quant.name):
        return other[0].runs_on if other else "cpu"
    known = list(dict.fromkeys(name for engine in npu for name in engine.quant))
    if quant.name in known:
        return "npu"
    low = " 4 bit weights run on its CPU there: --quant q4_0 with llama.cpp." if quant.weight_bits < 8 and other else ""
    raise ConfigError(f"--quant {quant.name}: the NPU of {board.title} runs {', '.join(known)}.{low}")


def missing(board: Board) -> ConfigError:
    """The error of a board run without a quantisation."""
    known = list(dict.fromkeys(name for engine in board.engines for name in engine.quant)) or ["q4_k_m", "fp16"]
    return ConfigError(
        f"--target board needs --quant NAME, such as {', '.join(known[:4])} or q4_0: weight bits, activation bits and "
        "group size decide the speed"
    )


def _vague(name: str) -> str:
    return (
        f"--quant {name[:20]!r} says too little: write weight and activation bits and the group size, such as "
        "w4a16_g128, w4a16 (one scale per channel) or w8a8; for llama.cpp the file's type, such as q4_k_m"
    )


def _extra(parts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in parts:
        key, equals, value = (item.strip() for item in part.partition("="))
        if not equals or key not in EXTRA or not WORD.fullmatch(value):
            raise ConfigError(f"--quant: {part[:40]!r} is not known; there are: {', '.join(f'{k}=…' for k in EXTRA)}")
        found[key] = value
    return found
