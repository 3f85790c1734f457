"""The written-out streams of cases.py, as parameters and fixtures."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

spec = importlib.util.spec_from_file_location("cases", Path(__file__).parent / "cases.py")
stream_cases: ModuleType = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stream_cases)

Read = tuple[float, bytes]


@pytest.fixture(scope="session")
def cases() -> ModuleType:
    """The module of the cases and of the tables that read them."""
    return stream_cases


@pytest.fixture(scope="session")
def reads_of() -> Callable[[dict[str, Any]], list[Read]]:
    """Turns a case into reads."""
    return stream_cases.scenario.reads_of


@pytest.fixture(scope="session")
def chunk() -> Callable[..., bytes]:
    """One chat chunk in the compact style: chunk(delta={...}, finish=..., usage=[...])."""
    return lambda style=None, **part: stream_cases.scenario.part_bytes(part, style or {})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `case` runs once for every case."""
    if "case" in metafunc.fixturenames:
        found = stream_cases.CASES
        metafunc.parametrize("case", found, ids=[case["name"] for case in found])
