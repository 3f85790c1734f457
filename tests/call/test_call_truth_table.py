"""The truth table of docs/truth-table.md, from the command that prints it."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def truth_table(cases, monkeypatch):
    """The module of the command. Times are judged loosely, for a machine that is busy with other tests: what taking the
    role chunk for the first token would be off is still twice as much."""
    monkeypatch.syspath_prepend(str(cases.BENCHMARKS))
    module = cases.module_at(cases.BENCHMARKS / "truth_table.py")
    module.LATE_MS, module.AGAIN = 75.0, 10
    yield module
    sys.modules.pop("scenario", None)


def verdicts(table):
    """(case, right or wrong) of each row of a Markdown table."""
    found = [re.fullmatch(r"\| (.+?) \| .+ \| (right|wrong)\b.* \|", line) for line in table.splitlines()]
    return [match.groups() for match in found if match]


def test_the_docs_hold_what_the_command_prints(truth_table):
    """Every row of the docs has the case and the verdict of a run, in its order, and all 31 are right."""
    docs = (ROOT / "docs" / "truth-table.md").read_text(encoding="utf-8")
    found = truth_table.rows()
    assert [(name, faults) for name, _, faults in found if faults] == []
    assert verdicts(docs) == verdicts(truth_table.markdown(found))
    assert len(verdicts(docs)) == 31


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"output_tokens": 20}, "output_tokens 21, not 20"),
        ({"outcome": "reset"}, "outcome ok, not reset"),
        ({"ttft_ms": 50}, "the server wrote at"),  # the role chunk
        ({"ttft_content_ms": None}, "ttft_content_ms is not absent"),
        ({"flag": "bursty"}, "no flag bursty"),
        ({"tpot_ms": 40.0}, "the server's was"),
    ],
)
def test_a_wrong_row_is_seen(change, fault, truth_table):
    """Where the record is not the expected one, the row is wrong and says how."""
    (base,) = [case for case in truth_table.CASES if case["id"] == "base"]
    case = {**base, "expect": {**base["expect"], **change}}
    truth_table.AGAIN = 0
    ((_, _, faults),) = truth_table.rows([case])
    assert len(faults) == 1
    assert fault in faults[0]


def test_the_command_ends_with_one_when_a_row_is_wrong(truth_table, monkeypatch, capsys):
    """The exit code is for pipelines."""
    for faults, code in (([], 0), (["late"], 1)):
        monkeypatch.setattr(truth_table, "rows", lambda faults=faults: [("plain LF", "ok", faults)])
        assert truth_table.main() == code
    assert "| plain LF | ok | wrong: late |" in capsys.readouterr().out
