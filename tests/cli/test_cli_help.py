"""What each verb's help lists, and what `explain` prints without a name."""

import re
import subprocess
import sys

import pytest

from loadkit.analysis.explain import CHECK_ORDER, CONFIGURATION, EXPLANATIONS
from loadkit.cli.main import main, parser_of

EXCHANGE = {"--url", "--endpoint", "--model", "--protocol", "--header", "--extra-body", "--no-proxy"}
OF_A_RUN = {"--rounds", "--concurrency", "--rate", "--stages", "--budget-tokens", "--metrics-port", "--resume", "--slo"}


def listed(verb):
    return set(re.findall(r"^  (--[a-z-]+)", parser_of(verb).format_help(), re.MULTILINE))


def test_a_verb_lists_the_options_it_acts_on():
    """check and curl list what bears on one exchange, and run lists everything; a line for run is taken by all."""
    assert listed("run") >= EXCHANGE | OF_A_RUN
    for verb in ("check", "curl"):
        assert listed(verb) >= EXCHANGE
        assert not listed(verb) & OF_A_RUN
        known = parser_of(verb).parse_args(["http://h", "--rounds", "5", "--slo", "ttft=1s", "--yes"])
        assert (known.loadkit_rounds, known.loadkit_slo, known.loadkit_yes) == ("5", "ttft=1s", True)
    assert {"--tiers", "--max-tokens", "--data-file"} <= listed("curl")


@pytest.mark.parametrize("verb", ["sim", "engine"])
def test_a_program_that_a_verb_becomes_calls_itself_by_the_verb(verb):
    """The usage is the line that was typed."""
    words = [sys.executable, "-m", "loadkit.cli.main", verb, "serve", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split("[")[0]) == (0, f"usage: loadkit {verb} serve ")


def test_explain_lists_its_names_after_the_fixed_order(capsys):
    """Without a name: what to check first, numbered, then every name there is."""
    assert main(["explain"]) == 0
    first, _, names = capsys.readouterr().out.partition("\n\nThen by name, `loadkit explain NAME`:\n")
    assert first.splitlines() == [f"{number}. {line}" for number, line in enumerate(CHECK_ORDER, 1)]
    assert names.replace("\n", " ").strip().split(", ") == [*EXPLANATIONS, *CONFIGURATION]
    assert main(["explain", "auth"]) == 0
    assert "Then by name" not in capsys.readouterr().out
