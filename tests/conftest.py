"""What every test shares: a test that was left out fails where CI is set, so that nothing hides there."""

import os

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Turn a skip, or an expected failure, into a failure under CI."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was left out under CI: {report.longrepr}"
    return report
