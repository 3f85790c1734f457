"""Commands in README and docs are commands: each is read by the parser of its verb, and a mix of lengths adds up."""

import re
import shlex
from pathlib import Path

import pytest

from loadkit.analysis.sizing.mix import parse_mix
from loadkit.cli.main import parser_of

ROOT = Path(__file__).parents[1]
LINE = re.compile(r"^ {4}loadkit ((?:.*\\\n)*.*)", re.MULTILINE)
COMMANDS = [
    (page.name, shlex.split(words.replace("\\\n", " "), comments=True))
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for words in LINE.findall(page.read_text())
]


@pytest.mark.parametrize(
    ("page", "words"), COMMANDS, ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_a_command_of_the_docs_is_one(page, words):
    """The verb has every option, and every value is one that it takes."""
    verb, *rest = words
    asked = parser_of(verb).parse_args(rest)
    if getattr(asked, "mix", None):
        assert sum(share.share for share in parse_mix(asked.mix)) == pytest.approx(1)


def test_there_are_many():
    """The pages are read at all."""
    assert len(COMMANDS) > 30
    assert {page for page, _ in COMMANDS} >= {"README.md", "capacity.md", "boards.md", "tuning.md"}
