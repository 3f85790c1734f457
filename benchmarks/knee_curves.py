"""Labelled curves for the knee locator: laws with a known knee, the ladders they are measured on, and the noise.

`batch(seed, count)` gives cases in turn from every law of LAWS; `hard` draws shorter ladders, fewer repeats and more
noise. A case carries its truth. With L the low-regime line and excess = f / L - 1, a knee is where the mechanism
changes (hinge, break), where a + b x + c x^2 is 25 % above its tangent (smooth), where throughput reaches 90 % of its
supremum (saturation) or its maximum (peak). Cases on the fence are not drawn: a knee has an excess of 40 % or more at
the longest tier, a curve without one has 12 % or less, or its throughput is still well under 90 % of what it can reach.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

KNEE_EXCESS = 0.40
NONE_EXCESS = 0.12
K25 = 0.25
N90 = 0.9
Rng = np.random.Generator
Array = np.ndarray


@dataclass(frozen=True)
class Curve:
    """The true values at the tiers and where the knee is; `values` is a mean without noise, in any unit."""

    values: Array
    kind: str = "none"
    knee: float | None = None


@dataclass(frozen=True)
class Case:
    """One measured ladder with its truth; `step_oct` is the width in octaves of the gap that holds the knee."""

    id: str
    law: str
    axis: str
    metric: str
    x: list[float]
    samples: list[list[float]]
    kind: str
    knee: float | None
    step_oct: float | None


Law = Callable[[Rng, Array], Curve | None]


def log_uniform(rng: Rng, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def inside(rng: Rng, x: Array, below: int, above: int) -> float | None:
    """A place for a knee, log-uniform in a gap with so many tiers below and above it; None on too short a ladder."""
    if len(x) < below + above:
        return None
    gap = int(rng.integers(below - 1, len(x) - above))
    return float(x[gap] * (x[gap + 1] / x[gap]) ** rng.uniform(0.03, 0.97))


def line(rng: Rng, x: Array, at: float) -> Array:
    """a + b x with b = 1 / at; three times in ten without an intercept, else one of up to half of b at."""
    intercept = 0.0 if rng.random() < 0.3 else log_uniform(rng, 0.002, 0.5)
    return intercept + x / at


# Prompt length: TTFT.


def linear(rng: Rng, x: Array) -> Curve:
    return Curve(rng.uniform(0, 0.5) * x[0] + x)


def affine_big(rng: Rng, x: Array) -> Curve:
    """A fixed cost worth many of the shortest prompts is not a knee."""
    return Curve(log_uniform(rng, 2, 100) * x[0] + x)


def quad_beyond(rng: Rng, x: Array) -> Curve:
    low = line(rng, x, x[-1])
    return Curve(low * (1 + rng.uniform(0.01, NONE_EXCESS) * (x / x[-1]) ** 2 * low[-1] / low))


def window_cut(rng: Rng, x: Array) -> Curve | None:
    """The top tiers answer context_length_exceeded and are missing (the ladder ends early)."""
    return linear(rng, x[: -int(rng.integers(1, 3))]) if len(x) >= 6 else None


def concave(rng: Rng, x: Array) -> Curve:
    return Curve(rng.uniform(0, 2) * x[0] ** 0.7 + x ** rng.uniform(0.5, 0.9))


def stairs(rng: Rng, x: Array) -> Curve:
    """Prompts are padded to whole chunks."""
    chunk = x[0] * rng.uniform(0.3, 1.2)
    return Curve(np.ceil(x / chunk) * chunk + rng.uniform(0, 0.5) * x[0])


def fast_tier(rng: Rng, x: Array) -> Curve:
    """One inner tier was answered from a cache."""
    values = linear(rng, x).values
    values[rng.integers(1, len(x) - 1)] *= rng.uniform(0.2, 0.75)
    return Curve(values)


def hinge(rng: Rng, x: Array) -> Curve | None:
    if (knee := inside(rng, x, 2, 2)) is None:
        return None
    low = line(rng, x, knee)
    return gated(low + log_uniform(rng, 0.5, 6) * np.maximum(0, x / knee - 1), low, "hinge", knee)


def floor(rng: Rng, x: Array) -> Curve | None:
    """Flat until the prompt fills the machine, then in proportion to it."""
    if (knee := inside(rng, x, 2, 2)) is None:
        return None
    return gated(np.maximum(1, x / knee), np.ones(len(x)), "hinge", knee)


def smooth(rng: Rng, x: Array) -> Curve | None:
    if (knee := inside(rng, x, 2, 1)) is None:
        return None
    low = line(rng, x, knee)
    at_knee = low[0] + (knee - x[0]) / knee
    return gated(low + K25 * at_knee * (x / knee) ** 2, low, "smooth", knee)


def step(rng: Rng, x: Array) -> Curve | None:
    """The line is multiplied beyond the knee, and sometimes steeper there as well."""
    if (knee := inside(rng, x, 2, 1)) is None:
        return None
    low = line(rng, x, knee)
    high = low * log_uniform(rng, 1.5, 8)
    if rng.random() < 0.4:
        high = high + log_uniform(rng, 0.3, 5) * np.maximum(0, x / knee - 1)
    return gated(np.where(x > knee, high, low), low, "break", knee)


def two_changes(rng: Rng, x: Array) -> Curve | None:
    """A hinge, and a step further out; the knee is the first of them."""
    first = inside(rng, x, 2, 4)
    if first is None:
        return None
    second = inside(rng, x, int(np.sum(x < first)) + 2, 1)
    if second is None:
        return None
    low = line(rng, x, first)
    bent = low + log_uniform(rng, 0.8, 4) * np.maximum(0, x / first - 1)
    return gated(np.where(x > second, bent * log_uniform(rng, 1.3, 3), bent), low, "hinge", first)


def gated(values: Array, low: Array, kind: str, knee: float) -> Curve | None:
    """The curve, unless its excess at the longest tier leaves it on the fence."""
    return Curve(values, kind, knee) if values[-1] >= (1 + KNEE_EXCESS) * low[-1] else None


# Concurrency: TTFT, latency, throughput.


def latency_flat(rng: Rng, x: Array) -> Curve:
    return Curve(1 + rng.uniform(0, 0.35) * x / x[-1])


def slots_ttft(rng: Rng, x: Array) -> Curve | None:
    """Requests beyond the slots wait for one to come free."""
    if (knee := inside(rng, x, 2, 2)) is None:
        return None
    slots = max(2.0, np.floor(knee))
    low = 1 + rng.uniform(0, 0.6) * x / slots
    return gated(low + log_uniform(rng, 0.5, 8) * np.maximum(0, x / slots - 1), low, "hinge", slots)


def slots_latency(rng: Rng, x: Array) -> Curve | None:
    """Latency grows gently inside the slots; beyond them, throughput stands still and Little's law takes over."""
    if (knee := inside(rng, x, 2, 2)) is None:
        return None
    slots = max(2.0, np.floor(knee))
    slope = rng.uniform(0, 0.3) / slots
    return gated((1 + slope * np.minimum(x, slots)) * np.maximum(1, x / slots), 1 + slope * x, "hinge", slots)


def throughput_linear(rng: Rng, x: Array) -> Curve:
    return Curve(x / (1 + rng.uniform(0, 0.08) * x / x[-1]))


def queue_throughput(rng: Rng, x: Array) -> Curve | None:
    """N users of c servers with a short think time: min(N, c), its corner rounded by chance."""
    if (knee := inside(rng, x, 2, 2)) is None:
        return None
    servers = max(2.0, np.floor(knee))
    sharp = rng.choice([4.0, 8.0, 16.0, 200.0])

    def law(n: Array) -> Array:
        apart = np.minimum(n / servers, servers / n)
        return np.minimum(n, servers) / (1 + apart**sharp) ** (1 / sharp)

    return saturating(x, law, servers)


def soft_saturation(rng: Rng, x: Array) -> Curve | None:
    """X = top N / (N^p + h^p)^(1/p), p from 1 to 1.4 as batching servers have it."""
    p = rng.uniform(1, 1.4) if rng.random() < 0.5 else 1.0
    if (knee := inside(rng, x, 3, 2)) is None:
        return None
    half = knee * (N90**-p - 1) ** (1 / p)
    return saturating(x, lambda n: n / (n**p + half**p) ** (1 / p), 1.0)


def slots_batching(rng: Rng, x: Array) -> Curve | None:
    """Batching flattens the throughput, then the slots cut it off."""
    slots = inside(rng, x, 3, 2)
    if slots is None:
        return None
    half = slots * log_uniform(rng, 0.2, 3)
    return saturating(x, lambda n: np.minimum(n, slots) / (np.minimum(n, slots) + half), slots / (slots + half))


def usl_peak(rng: Rng, x: Array) -> Curve | None:
    """The universal scalability law falls again beyond its maximum at sqrt((1 - sigma) / kappa) (Gunther)."""
    if (knee := inside(rng, x, 3, 2)) is None:
        return None
    values = usl(x, knee, rng.uniform(0, 2))
    return Curve(values, "peak", knee) if values[-1] <= 0.9 * values.max() else None


def usl_beyond(rng: Rng, x: Array) -> Curve | None:
    peak = x[-1] * log_uniform(rng, 1.5, 8)
    contention = rng.uniform(0, 1)
    values = usl(x, peak, contention)
    still_rising = values[-1] <= 0.85 * usl(np.array([peak]), peak, contention)[0]
    return Curve(values) if still_rising else None


def soft_beyond(rng: Rng, x: Array) -> Curve:
    return Curve(x / (x + x[-1] * log_uniform(rng, 0.4, 3)))


def usl(x: Array, peak: float, contention: float) -> Array:
    """N / (1 + s N / peak + (N / peak)^2): the law in units of its maximum."""
    return x / (1 + contention * x / peak + (x / peak) ** 2)


def saturating(x: Array, law: Callable[[Array], Array], top: float) -> Curve | None:
    """A throughput with its N90 found on a fine grid; None when that lies outside the inner tiers."""
    fine = np.geomspace(x[0], x[-1], 20_000)
    reached = np.flatnonzero(law(fine) >= N90 * top)
    if not len(reached):
        return None
    knee = float(fine[reached[0]])
    return Curve(law(x), "saturation", knee) if x[1] < knee < 0.8 * x[-1] else None


LENGTH, CONCURRENCY = "length", "concurrency"
LAWS: dict[str, tuple[str, str, Law]] = {
    "linear": (LENGTH, "ttft", linear),
    "affine_big": (LENGTH, "ttft", affine_big),
    "quad_beyond": (LENGTH, "ttft", quad_beyond),
    "window_cut": (LENGTH, "ttft", window_cut),
    "concave": (LENGTH, "ttft", concave),
    "stairs": (LENGTH, "ttft", stairs),
    "fast_tier": (LENGTH, "ttft", fast_tier),
    "hinge": (LENGTH, "ttft", hinge),
    "floor": (LENGTH, "ttft", floor),
    "smooth": (LENGTH, "ttft", smooth),
    "break": (LENGTH, "ttft", step),
    "two_changes": (LENGTH, "ttft", two_changes),
    "latency_flat": (CONCURRENCY, "latency", latency_flat),
    "slots_ttft": (CONCURRENCY, "ttft", slots_ttft),
    "slots_latency": (CONCURRENCY, "latency", slots_latency),
    "throughput_linear": (CONCURRENCY, "throughput", throughput_linear),
    "queue_throughput": (CONCURRENCY, "throughput", queue_throughput),
    "soft_saturation": (CONCURRENCY, "throughput", soft_saturation),
    "slots_batching": (CONCURRENCY, "throughput", slots_batching),
    "usl_peak": (CONCURRENCY, "throughput", usl_peak),
    "usl_beyond": (CONCURRENCY, "throughput", usl_beyond),
    "soft_beyond": (CONCURRENCY, "throughput", soft_beyond),
}

STEPS = (
    (1, 2, 4, 8, 16, 32, 64, 128, 256),
    (1, 5, 25, 50, 100, 150, 200, 250),
    (1, 2, 4, 8, 12, 16, 24, 32, 48, 64),
    (1, 2, 3, 4, 6, 8, 12, 16, 24, 32),
)
DOUBLING = (128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)


def lengths(rng: Rng, hard: bool) -> Array:
    """Tiers in tokens: doubling, in steps of half an octave, evenly spaced, or a wide ladder of five."""
    count = int(rng.integers(5, 8) if hard else rng.integers(5, 13))
    shape = rng.integers(4)
    if shape == 0:
        start = int(rng.integers(0, len(DOUBLING) - min(count, 9)))
        tiers = np.array(DOUBLING[start : start + count], dtype=float)
    elif shape == 1:
        tiers = rng.choice([1000.0, 2000.0, 4000.0]) * 2 ** (np.arange(count) / 2)
    elif shape == 2:
        first, last = [(100, 1300), (1000, 13_000), (4000, 52_000)][rng.integers(3)]
        tiers = np.linspace(first, last, count)
    else:
        tiers = np.array([[4096, 32768, 131072, 524288, 1048576], [128, 512, 1024, 2048, 4096]][rng.integers(2)], float)
    return np.sort(np.round(tiers * rng.uniform(0.96, 1.04, len(tiers))))


def users(rng: Rng, hard: bool) -> Array:
    steps = STEPS[rng.integers(len(STEPS))]
    low, high = (5, 8) if hard else (7, 11)
    return np.array(steps[: int(rng.integers(low, high))], dtype=float)


def thinned(rng: Rng, x: Array) -> Array:
    """The ladder without one or two of its inner tiers, now and then."""
    while rng.random() < 0.2 and len(x) > 5:
        x = np.delete(x, rng.integers(1, len(x) - 1))
    return x


@dataclass(frozen=True)
class Noise:
    """Log-normal noise of a repeat (`repeat`) and of a whole tier (`tier`), the share of outliers, repeats a tier."""

    repeat: float
    tier: float
    outliers: float
    repeats: int

    @staticmethod
    def draw(rng: Rng, hard: bool) -> "Noise":
        if hard:
            return Noise(log_uniform(rng, 0.05, 0.2), rng.uniform(0, 0.02), rng.uniform(0.05, 0.1), rng.integers(3, 6))
        outliers = float(rng.choice([0, 0.02, 0.05, 0.1]))
        return Noise(log_uniform(rng, 0.01, 0.15), rng.uniform(0, 0.02), outliers, rng.integers(3, 11))

    def measure(self, rng: Rng, value: float, slow: int) -> list[float]:
        """Repeats of one tier; `slow` is +1 where a bad repeat reads high (a time) and -1 where it reads low."""
        shift = rng.normal(0, self.tier)
        lost = int(rng.integers(1, 3)) if rng.random() < 0.1 else 0
        logs = shift + rng.normal(0, self.repeat, max(2, self.repeats - lost))
        bad = rng.random(len(logs)) < self.outliers
        way = np.where(rng.random(len(logs)) < 0.85, slow * rng.uniform(0.3, 2.1, len(logs)), -slow * 0.6)
        return [float(v) for v in value * np.exp(np.where(bad, logs + way, logs))]


def draw(rng: Rng, law: str, hard: bool, name: str) -> Case:
    """One case of a law: ladders are drawn until the law fits on one."""
    axis, metric, make = LAWS[law]
    while True:
        x = thinned(rng, lengths(rng, hard) if axis == LENGTH else users(rng, hard))
        if (curve := make(rng, x)) is not None:
            break
    x = x[: len(curve.values)]
    noise, scale = Noise.draw(rng, hard), log_uniform(rng, 0.01, 1000)
    slow = -1 if metric == "throughput" else 1
    samples = [noise.measure(rng, scale * value, slow) for value in curve.values]
    case = Case(name, law, axis, metric, x.tolist(), samples, curve.kind, curve.knee, None)
    return case if curve.knee is None else replace(case, step_oct=gap_octaves(x, curve.knee))


def gap_octaves(x: Array, knee: float) -> float:
    """Octaves between the neighbouring tiers that hold the knee."""
    above = int(np.clip(np.searchsorted(x, knee, side="right"), 1, len(x) - 1))
    return float(np.log2(x[above] / x[above - 1]))


def batch(seed: int, count: int, hard: bool = False) -> list[Case]:
    """`count` cases, the laws in turn; the same arguments give the same cases."""
    rng = np.random.default_rng([seed, int(hard)])
    names = list(LAWS)
    return [draw(rng, names[i % len(names)], hard, f"{seed}-{i:04d}") for i in range(count)]
