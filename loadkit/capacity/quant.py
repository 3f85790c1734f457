"""Bits of a stored weight from the name of a quantisation, scales included.

A group of g weights shares a 16 bit scale on Rockchip's NPU (w8a8_g128: 8 + 16 / 128). llama.cpp's blocks: q8_0 34
bytes for 32 weights, q4_0 18, q4_1 20, q5_0 22, q5_1 24. K-quants mix block types; their figures are those of
Llama-3-8B files, whose 16.06 GB at 16 bit become 4.9 GB as Q4_K_M.
"""

import re

from loadkit.capacity.errors import CardError

Q4_K_M = 4.88
NAMES = {
    "f32": 32.0, "fp32": 32.0, "f16": 16.0, "fp16": 16.0, "bf16": 16.0, "w16a16": 16.0,
    "fp8": 8.0, "int8": 8.0, "q8_0": 8.5, "q6_k": 6.6, "q5_k_m": 5.7, "q5_1": 6.0, "q5_0": 5.5,
    "q4_k_m": Q4_K_M, "q4_k_s": 4.67, "q4_1": 5.0, "q4_0": 4.5, "iq4_xs": 4.4,
    "awq": 4.25, "gptq": 4.25, "int4": 4.0, "nvfp4": 4.5, "mxfp4": 4.25,
    "q3_k_m": 4.0, "q2_k": 3.2,
}  # fmt: skip
NPU = re.compile(r"w(\d{1,2})a\d{1,2}(?:_g(\d{2,4}))?")
PLAIN = re.compile(r"(\d{1,2}(?:\.\d+)?)(?:[- ]?bits?)?")


def bits(name: str) -> float:
    """Bits per weight of `q4_k_m`, `w4a16_g128`, `fp8`, `4bit` or `4.5`. CardError for a name that is not known."""
    name = name.strip()
    plain = name.casefold().replace("-", "_")
    if plain in NAMES:
        return NAMES[plain]
    if match := NPU.fullmatch(plain):
        return int(match[1]) + (16 / int(match[2]) if match[2] else 0)
    if (match := PLAIN.fullmatch(name.casefold())) and 1 <= float(match[1]) <= 32:
        return float(match[1])
    raise CardError(f"quantisation {name[:40]!r} is not known; give bits per weight, or one of {', '.join(NAMES)}")
