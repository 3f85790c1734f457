from dataclasses import dataclass
import numpy as np
from loadkit.analysis.knee import models
from loadkit.analysis.knee.tiers import Array, build

WIDEN=1.0
@dataclass(frozen=True)
class Knee:
    kind: str
    knee: float | None
    ci: tuple[float, float] | None
    probability: float
    excess: float | None
    last_good: float | None
    reason: str


def locate(x, samples, *, axis="length", metric="ttft"):
    throughput = metric == "throughput"
    x = np.array(x, float)
    samples = [np.array(s, float) for s in samples]
    if len(x) < 4:
        return Knee("none", None, None, 0.0, None, None, "too_few_tiers")
    if throughput:
        samples = [n / s for n, s in zip(x, samples)]
    tiers = build(x, samples, 1)
    hyps = models.throughput(tiers) if throughput else models.times(tiers)
    return verdict(tiers, hyps)


def verdict(tiers, hyps):
    top = max(h.weight.max() for h in hyps)
    mass = [np.exp(h.weight - top) for h in hyps]
    total = sum(m.sum() for m in mass)
    knee = [m[h.knee].sum() / total for m, h in zip(mass, hyps)]
    p = sum(knee)
    if p < .5:
        return Knee("none", None, None, float(p), None, None, "linear")
    low = np.concatenate([h.low[h.knee] for h in hyps]); high = np.concatenate([h.high[h.knee] for h in hyps])
    w = np.concatenate([m[h.knee] for m, h in zip(mass, hyps)])
    lo, mid, hi = quantiles(low, high, w, [.05, .5, .95])
    best = int(np.argmax(knee))
    h = hyps[best]
    g = h.weight[h.knee].argmax()
    if h.kind == "break":
        lo, hi = min(lo, h.low[h.knee][g]), max(hi, h.high[h.knee][g])
    lo, hi = mid - WIDEN * (mid - lo), mid + WIDEN * (hi - mid)
    if h.kind == "break" and  h.low[h.knee][g] <= mid <= h.high[h.knee][g]:
        pass
    K = float(np.exp(mid))
    return Knee(h.kind, K, (float(np.exp(lo)), float(np.exp(hi))), float(p), float(h.excess[h.knee][g]), float(tiers.x[tiers.x <= K][-1]) if K >= tiers.x[0] else None, "")


def quantiles(low: Array, high: Array, weight: Array, shares) -> Array:
    edges = np.unique(np.concatenate([low, high]))
    slope = weight / (high - low)
    change = np.zeros(len(edges))
    np.add.at(change, np.searchsorted(edges, low), slope)
    np.add.at(change, np.searchsorted(edges, high), -slope)
    density = np.cumsum(change)[:-1]
    cdf = np.concatenate([[0], np.cumsum(density * np.diff(edges))])
    return np.interp(np.asarray(shares) * cdf[-1], cdf, edges)
