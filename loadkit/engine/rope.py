"""Rotary positions: how far each pair of a head's dimensions turns, plain or stretched as Llama 3 does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadkit.engine.errors import EngineError
from loadkit.engine.untrusted import number


def rotations(
    positions: int, head_dim: int, theta: float, factors: Sequence[float] | None = None
) -> NDArray[np.complex64]:
    """RoPE as complex factors exp(i p f_j), [positions, h/2]: a rotated pair of dimensions is one complex number.

    `factors` [h/2] divide the frequencies; None leaves them as they are.
    """
    frequencies = plain(head_dim, theta)  # [h/2]
    if factors is not None:
        frequencies = frequencies / np.array(factors)
    angles = np.arange(positions)[:, None] * frequencies  # [positions, h/2]
    return np.exp(1j * angles).astype(np.complex64)


def plain(head_dim: int, theta: float) -> NDArray[np.float64]:
    """Frequencies theta^(-2 j / h) of the h/2 pairs."""
    return theta ** (-np.arange(0, head_dim, 2) / head_dim)


def llama3_factors(head_dim: int, theta: float, scaling: Mapping[str, Any]) -> tuple[float, ...]:
    """What Llama 3 divides its frequencies by, [h/2]: 1 for waves much shorter than the window it was first trained
    for, `factor` for much longer ones, smooth in between (the rule of its reference code and of `transformers`).

    Raises EngineError when a number of `scaling` is missing or out of order.
    """
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    factor, low, high, window = (number("config.json", f"rope_scaling.{name}", scaling.get(name)) for name in names)
    if factor < 1 or not 0 < low < high or window <= 0:
        raise EngineError("config.json: the numbers of rope_scaling are out of order")
    turns = window * plain(head_dim, theta) / (2 * math.pi)  # of each pair within the first window
    smooth = np.clip((turns - low) / (high - low), 0, 1)  # 0: stretched, 1: as it was
    return tuple(float(value) for value in 1 / ((1 - smooth) / factor + smooth))
