"""The bar: generated curves with a known knee, published tables, and the score itself worked out by hand."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from loadkit.analysis.knee import locate

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark():
    """The benchmark program, whose own modules stand beside it."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("knee_benchmark", BENCHMARKS / "knee.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


def answers_to(cases):
    return [locate(case.x, case.samples, axis=case.axis, metric=case.metric) for case in cases]


def test_generated_curves_reach_the_bar_with_margin(benchmark):
    """Nine curves of each of the 22 laws, from a fixed seed."""
    cases = benchmark.batch(seed=2024, count=9 * len(benchmark.LAWS))
    row = benchmark.score(cases, answers_to(cases))
    assert benchmark.below_bar(row, hard=False) == []
    assert row["success"] >= 0.965
    assert row["median_oct"] <= 0.075


def test_harder_curves_reach_their_bar(benchmark):
    """Short ladders, few repeats, 5 to 20 % of noise, many outliers."""
    cases = benchmark.batch(seed=2024, count=9 * len(benchmark.LAWS), hard=True)
    row = benchmark.score(cases, answers_to(cases))
    assert benchmark.below_bar(row, hard=True) == []
    assert row["success"] >= 0.87


def test_published_tables_are_read_as_a_careful_reader_does(benchmark, capsys):
    """Every line the benchmark prints about a table agrees."""
    tables = sorted(benchmark.DATA.glob("*.csv"))
    for path in tables:
        benchmark.table(path)
    lines = capsys.readouterr().out.splitlines()
    assert len(tables) == 9
    assert len(lines) == 12
    assert [line for line in lines if "agrees" not in line] == []


def test_the_same_seed_gives_the_same_curves_with_their_truth(benchmark):
    """Reproducible; ascending tiers with two repeats or more; a knee inside them, exactly where there is a kind."""
    cases = benchmark.batch(seed=7, count=2 * len(benchmark.LAWS))
    assert cases == benchmark.batch(seed=7, count=2 * len(benchmark.LAWS))
    assert cases != benchmark.batch(seed=8, count=2 * len(benchmark.LAWS))
    for case in cases:
        assert case.x == sorted(set(case.x))
        assert len(case.x) == len(case.samples) >= 4
        assert min(map(len, case.samples)) >= 2
        assert (case.kind == "none") == (case.knee is None) == (case.step_oct is None)
        if case.knee is not None:
            assert case.x[0] < case.knee < case.x[-1]


def test_the_score_is_what_it_says(benchmark):
    """Four answers: a hit 0.4 octaves off, a miss, a false alarm, a right silence."""
    truth = [("hinge", 100.0), ("break", 100.0), ("none", None), ("none", None)]
    cases = [SimpleNamespace(kind=kind, knee=knee, step_oct=1.0) for kind, knee in truth]
    said = [("smooth", 100 * 2**0.4, (128.0, 256.0)), ("none", None, None), ("hinge", 5.0, (4.0, 6.0))]
    answers = [SimpleNamespace(kind=kind, knee=knee, ci=ci) for kind, knee, ci in [*said, said[1]]]
    row = benchmark.score(cases, answers)
    assert row["n"] == 4
    assert (row["precision"], row["recall"], row["false_alarm"], row["f1"]) == (0.5, 0.5, 0.5, 0.5)
    assert row["median_oct"] == pytest.approx(0.4)
    assert (row["one_step"], row["cover"], row["kind"], row["success"]) == (1, 0, 0, 0.5)
    assert row["width_oct"] == pytest.approx(1)
    assert row["winkler"] == pytest.approx(1 + 20 * 0.35614, rel=1e-4)
    assert len(benchmark.below_bar(row, hard=False)) == 7
