"""Exact quantiles of very many values, found in small steps."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.live import samples
from loadkit.live.samples import Values
from loadkit.measure.quantile import summary


def of_all(values):
    """The same by sorting everything."""
    found = summary(values)
    return found and {name: found[name] for name in ("p50", "p90", "p95", "p99", "n")}


TIMES = st.one_of(st.floats(0, 1e6), st.sampled_from([1.0, 2.0, 2.0, float("nan")]))


@given(st.lists(st.lists(TIMES, max_size=20), max_size=12), st.integers(1, 9), st.integers(1, 3))
def test_quantiles_are_those_of_all_values(parts, chunk, rows):
    """Whatever comes in whatever pieces, ties and what is no number included: the nearest rank of all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "CHUNK", chunk)
        patch.setattr(samples, "ROWS", rows)
        values = Values(pause=lambda: None)
        for part in parts:
            values.add(part)
        assert values.summary() == of_all([value for part in parts for value in part])


def test_many_values_are_looked_at_in_pieces():
    """With 300,000 gaps others have the loop at least at every 128 runs of values; a small cell does not pause."""
    pauses = []
    values, rng = Values(pause=lambda: pauses.append(1)), random.Random(1)
    values.add([rng.uniform(1, 2) for _ in range(1000)])
    assert values.summary()["n"] == 1000
    assert pauses == []
    gaps = [rng.lognormvariate(3, 1) for _ in range(300_000)]
    values = Values(pause=lambda: pauses.append(1))
    for start in range(0, len(gaps), 128):
        values.add(gaps[start : start + 128])
    assert values.summary() == of_all(gaps)
    assert 4 * 3 <= len(pauses) < 400


def test_beyond_the_bound_nothing_is_kept(monkeypatch):
    """A cell with more values than may be kept has no quantile of them, rather than one of a part."""
    monkeypatch.setattr(samples, "MOST", 100)
    values = Values()
    values.add([1.0] * 100)
    assert values.summary()["n"] == 100
    values.add([1.0])
    values.add([1.0])
    assert values.summary() is None
