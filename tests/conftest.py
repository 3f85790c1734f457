"""What every test shares: nothing hides under CI, and tests that need a quiet machine have it to themselves."""

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Turn a skip, or an expected failure, into a failure under CI."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was left out under CI: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Where tests run side by side, one marked `quiet` runs alone: its clocks would measure the others."""
    with _machine(alone=item.get_closest_marker("quiet") is not None):
        return (yield)


@contextlib.contextmanager
def _machine(alone):
    """Hold the machine, for oneself or together with others that do not mind."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        yield
        return
    with (Path(tempfile.gettempdir()) / f"loadkit-tests-{run}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
