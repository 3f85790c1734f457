"""The labels of a cell, of a ladder and of an open loop."""

import pytest

from loadkit.live.labels import load_of, place_of
from loadkit.plan.ladder import Cell


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        (Cell(4096, 2), ("4096", "2")),
        (Cell(4096, 128, rate=2.5), ("4096", "2.5rps")),
        (Cell(128, 1, rate=40.0), ("128", "40rps")),
    ],
)
def test_a_record_and_the_id_of_its_cell_give_the_same_labels(cell, labels):
    """An open loop is told by its rate: two rates have series of their own."""
    assert place_of(cell.id) == labels
    assert load_of({"concurrency": cell.concurrency, "rate": cell.rate}) == labels[1]


def test_a_record_of_an_older_run_has_no_rate():
    """It was a closed loop."""
    assert load_of({"concurrency": 4}) == "4"
