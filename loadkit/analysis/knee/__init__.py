"""Where a curve over prompt length or concurrency leaves its low regime: `locate` answers with a `Knee`.

read.py        what callers hand in: order, duplicates, gaps, nonsense
tiers.py       what the repeats of a tier say about its true value
fit.py         many small models fitted at once
candidates.py  knees a model allows, each with its weight
times.py       the models of a time (TTFT, latency)
rates.py       the models of a throughput over concurrency
verdict.py     the posterior and the answer
"""

from loadkit.analysis.knee.verdict import Knee, locate

__all__ = ["Knee", "locate"]
