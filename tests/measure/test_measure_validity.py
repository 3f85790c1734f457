"""When a number must not be used, and how a run ends."""

from itertools import product

import pytest

from loadkit.measure.quantile import nearest_rank
from loadkit.measure.validity import Validity, cell_validity, client_health, exit_code, worst

HEALTHY = client_health(0.1, 20.0, 0.2)


@pytest.mark.parametrize(
    ("lag", "itl", "cpu", "status"),
    [
        (0.0, 20.0, 0.0, "valid"),
        (1.0, 20.0, 0.70, "valid"),  # at the limits: max(1 ms, 5 % of 20 ms) and 70 %
        (1.01, 20.0, 0.70, "suspect"),
        (1.0, 20.0, 0.71, "suspect"),
        (5.0, 20.0, 0.90, "suspect"),  # at the harder limits: max(5 ms, 25 % of 20 ms) and 90 %
        (5.01, 20.0, 0.10, "invalid"),
        (0.1, 20.0, 0.91, "invalid"),
        (10.0, 200.0, 0.1, "valid"),  # 5 % of 200 ms
        (10.1, 200.0, 0.1, "suspect"),
        (50.0, 200.0, 0.1, "suspect"),  # 25 % of 200 ms
        (50.1, 200.0, 0.1, "invalid"),
        (0.9, 2.0, 0.1, "valid"),  # a short ITL leaves the limit at 1 ms
        (2.0, None, 0.1, "suspect"),
        (5.1, None, 0.1, "invalid"),
        (None, 20.0, 0.1, "suspect"),
        (0.1, 20.0, None, "suspect"),
    ],
)
def test_health_thresholds(lag, itl, cpu, status):
    """A verdict that is not valid has a reason, and only such a one; health nobody measured is not called good."""
    verdict = client_health(lag, itl, cpu)
    assert verdict.status == status
    assert bool(verdict.reasons) is (status != "valid")


def test_reasons_hold_the_numbers():
    """A person sees what was measured and what is allowed."""
    assert client_health(12.0, 20.0, 0.95).reasons == [
        "event loop lag p99 12 ms is above 5 ms",
        "load generator CPU 95% is above 90% of a core",
    ]


def test_a_late_loop_spoils_its_samples():
    """P61: woken 140 ms late while tokens come every 20 ms."""
    planned, actual = [0, 50, 100, 150, 200], [0, 51, 101, 290, 300]
    lags = [b - a for a, b in zip(planned, actual, strict=True)]
    assert max(lags) == 140
    assert client_health(nearest_rank(lags, 0.99), 20.0, 0.1).status == "invalid"


@pytest.mark.parametrize(
    ("live", "lost", "status", "reason"),
    [
        ([8, 8, 8, 8], 0, "valid", None),  # P58
        ([8, 6, 8, 8], 0, "invalid", "6 live users where 8 were planned"),
        ([8, 9], 0, "invalid", "9 live users where 8 were planned"),
        ([8, 8], 1, "invalid", "1 worker lost"),
        ([8, 8], 2, "invalid", "2 workers lost"),
        ([], 0, "suspect", "live users were not sampled"),
    ],
)
def test_a_cell_needs_its_users_and_its_workers(live, lost, status, reason):
    """Planned users were live throughout, and no worker was lost, though its users may have been made up for."""
    verdict = cell_validity(8, live, lost, HEALTHY)
    assert verdict == Validity(status, [reason] if reason else [])


def test_a_cell_is_as_healthy_as_its_worst_worker():
    """One saturated worker of three spoils the cell; the same reason is said once."""
    bad = client_health(0.1, 20.0, 0.95)
    verdict = cell_validity(4, [4], 0, HEALTHY, bad, bad)
    assert verdict == Validity("invalid", ["load generator CPU 95% is above 90% of a core"])


def test_the_worst_verdict_wins_and_no_reason_is_lost():
    """Suspect and invalid together are invalid, with both reasons; nothing at all is valid."""
    both = worst(Validity("suspect", ["a"]), Validity(), Validity("invalid", ["b", "a"]))
    assert both == Validity("invalid", ["a", "b"])
    assert worst() == Validity("valid", [])


ENDS = ("usage", "target", "stopped", "saturated", "incomplete", "slo_failed")
CODES = (2, 5, 7, 6, 3, 4)


@pytest.mark.parametrize("applies", list(product([False, True], repeat=6)))
def test_the_first_end_that_applies_gives_the_exit_code(applies):
    """2, 5, 7, 6, 3, 4 in this order, else 0; 1 is never given, it is left for bugs."""
    expected = next((code for code, holds in zip(CODES, applies, strict=True) if holds), 0)
    assert exit_code(**dict(zip(ENDS, applies, strict=True))) == expected
