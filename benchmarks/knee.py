"""Scores the knee locator on generated curves with a known knee, and prints what it reads in published tables.

    .venv/bin/python benchmarks/knee.py [--seed 1] [--cases 660] [--laws]

One row for ordinary curves and one for harder ones (knee_curves.py), with the columns of knee_score.py; `--laws` adds a
row for every law. Ends with 1 when a number misses the bar. The tables are in knee_data/; what a careful reader finds
stands beside the reading. A reading counts as agreeing when kind and place do, or when the interval reaches the place.
"""

import argparse
import csv
import sys
import time
from pathlib import Path

from knee_curves import LAWS, Case, batch
from knee_score import below_bar, score

from loadkit.analysis.knee import Knee, locate

DATA = Path(__file__).with_name("knee_data")
DEFAULT_CASES = 30 * len(LAWS)


def main() -> int:
    parser = argparse.ArgumentParser(description="Score the knee locator.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=DEFAULT_CASES, help="curves a row")
    parser.add_argument("--laws", action="store_true", help="a row for every law as well")
    options = parser.parse_args()
    missed = [line for hard in (False, True) for line in generated(options.seed, options.cases, hard, options.laws)]
    for line in missed:
        print("below the bar:", line)
    print()
    for path in sorted(DATA.glob("*.csv")):
        table(path)
    return 1 if missed else 0


def generated(seed: int, count: int, hard: bool, laws: bool) -> list[str]:
    """Prints the rows of one batch; returns what misses the bar."""
    cases = batch(seed, count, hard)
    answers, times = [], []
    for case in cases:
        started = time.perf_counter()
        answers.append(locate(case.x, case.samples, axis=case.axis, metric=case.metric))
        times.append(1e3 * (time.perf_counter() - started))
    row = score(cases, answers)
    name = "harder curves" if hard else "curves"
    if not hard:
        print(f"{'':20}" + "".join(f"{column[:9]:>10}" for column in (*row, "ms")))
    show(name, row, sorted(times)[len(times) // 2])
    if laws:
        by_law(cases, answers)
    return [f"{name}: {line}" for line in below_bar(row, hard)]


def by_law(cases: list[Case], answers: list[Knee]) -> None:
    for law in LAWS:
        chosen = [i for i, case in enumerate(cases) if case.law == law]
        if chosen:
            show("  " + law, score([cases[i] for i in chosen], [answers[i] for i in chosen]))


def show(name: str, row: dict[str, float], ms: float | None = None) -> None:
    cells = [f"{row['n']:>10.0f}", *(f"{value:>10.3f}" for column, value in row.items() if column != "n")]
    print(f"{name:20}" + "".join(cells) + ("" if ms is None else f"{ms:>10.1f}"))


def table(path: Path) -> None:
    """Prints the reading of every metric of a published table beside what is expected of it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    notes = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    x = [float(row["x"]) for row in rows]
    for metric in [column for column in rows[0] if column != "x"]:
        found = locate(x, [float(row[metric]) for row in rows], axis=notes["axis"], metric=metric)
        expected, why = notes[f"expect {metric}"].split(": ", 1)
        verdict = "agrees " if agrees(found, expected) else "DIFFERS"
        print(f"{path.stem:24}{metric:11}{verdict} {words(found):52} expected {expected}: {why}")


def agrees(found: Knee, expected: str) -> bool:
    """`expected` is none, or a kind (or any) with the lowest and the highest place of the knee."""
    kind, *place = expected.split()
    if kind == "none" or found.ci is None:
        return found.kind == kind
    low, high = map(float, place)
    return kind in ("any", found.kind) and found.ci[0] <= high and low <= found.ci[1]


def words(found: Knee) -> str:
    if found.knee is None or found.ci is None:
        return f"none ({found.reason}, p {found.probability:.2f})"
    return (
        f"{found.kind} {found.knee:.4g} [{found.ci[0]:.4g}, {found.ci[1]:.4g}] p {found.probability:.2f} {found.reason}"
    )


if __name__ == "__main__":
    sys.exit(main())
