"""docs/boards.md: every command on the page is one that this version takes, and asks for what the page says."""

import argparse
import shlex
from pathlib import Path

import pytest

from loadkit.board import quantisation
from loadkit.board.description import load, shipped
from loadkit.cli import board, reconcile, run
from loadkit.plan.options import resolve

PAGE = (Path(__file__).parents[2] / "docs" / "boards.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)
    for line in PAGE.replace("\\\n", " ").splitlines()
    if line.startswith("    loadkit ") and line.split()[1] in ("run", "board", "reconcile")
]


def parsed(verb, words):
    parser = argparse.ArgumentParser()
    {"run": run, "board": board, "reconcile": reconcile}[verb].add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_of_the_page_is_taken(words, tmp_path):
    """It parses; a run is one of the board of the page, read over ssh, with a quantisation that its NPU has."""
    args = parsed(words[1], words[2:])
    if words[1] != "run":
        return
    request = resolve(args, {}, tmp_path)
    assert (request.target, request.edge.board, request.edge.host) == ("board", "rk3588", "rock-5b")
    assert quantisation.check(quantisation.parse(request.edge.quant), load(request.edge.board)) == "npu"
    assert request.plan.warmup == 3


def test_the_page_names_its_verbs_and_boards():
    """Nothing was lost when the page was read above, and the boards it counts up are those that are shipped."""
    assert {words[1] for words in COMMANDS} == {"run", "board", "reconcile"}
    assert len(COMMANDS) >= 8
    for title in ("RK3588", "RK3576", "Raspberry Pi 5", "Jetson Orin"):
        assert title in PAGE
    assert len(shipped()) == 5
