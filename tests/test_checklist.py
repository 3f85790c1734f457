"""The table of what the articles say: complete, and every test it names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "checklist.md"
ITEMS = {"S0": 34, "S1": 61, "S2": 19, "S3": 37, "S4": 29}  # numbered from 01 in each part
MOST_OPEN = 0
ROW = re.compile(r"\| (S\d-\d\d) \| (.+?) \| (.+?) \| ?(.*?) ?\|")
NAMED = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")


def rows() -> list[tuple[str, str, str]]:
    """Id, what it is, and the tests or the reason, of every row."""
    found = [ROW.fullmatch(line) for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| S")]
    return [(match[1], match[2], match[3]) for match in found if match is not None]


def test_every_item_has_one_row():
    """All 180, each once, in order; a line out of form is no row."""
    wanted = [f"{part}-{number:02}" for part, count in ITEMS.items() for number in range(1, count + 1)]
    assert [name for name, _, _ in rows()] == wanted


@pytest.mark.parametrize("part", ITEMS)
def test_every_row_names_tests_that_exist(part):
    """A row has tests, each a function of the file named, or says in words why it has none."""
    defined: dict[str, set[str]] = {}
    for name, what, cell in rows():
        if not name.startswith(part):
            continue
        assert len(what) > 10, name
        named = NAMED.findall(cell)
        if not named:
            assert re.match(r"(Open|Refused): .{20,}", cell), f"{name} has neither test nor reason"
        assert len(named) == cell.count("::"), f"{name}: a test is not named as file::test"
        for file, test in named:
            if file not in defined:
                defined[file] = set(
                    re.findall(r"^def (test_[a-z0-9_]+)", (ROOT / file).read_text("utf-8"), re.MULTILINE)
                )
            assert test in defined[file], f"{name}: no {test} in {file}"


def test_what_is_open_does_not_grow():
    """Lower the number when something open is built."""
    assert sum(cell.startswith("Open") for _, _, cell in rows()) <= MOST_OPEN
