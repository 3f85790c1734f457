"""One set of marks as eight other tools print it: by hand, and as the truth table found their own code to do."""

import importlib.util
from pathlib import Path

import pytest

from loadkit.analysis.peers.compare import METRICS, Definitions
from loadkit.analysis.peers.marks import marks_of
from loadkit.analysis.peers.rules import PEERS
from loadkit.analysis.summary import summarise
from loadkit.protocol.replay import replay

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SPEC = importlib.util.spec_from_file_location("scenario", BENCHMARKS / "scenario.py")
scenario = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(scenario)
CASES = {case["id"]: case for case in scenario.load(BENCHMARKS / "truth_table.json")}
OK = [name for name, case in CASES.items() if case["expect"]["outcome"] == "ok"]

PLACE = {
    "tier_tokens": 64,
    "concurrency": 1,
    "cell": "64x1",
    "phase": "measure",
    "round": 1,
    "visit": 0,
    "worker": "w",
    "start_ms": 1000.0,
}
# Role at 50 ms, 21 tokens from 200 to 600 ms, finish 650, usage 700, [DONE] 750; 64 tokens asked for; 5 ms to connect.
BY_HAND = PLACE | {
    "outcome": "ok",
    "connect_ms": 5.0,
    "first_byte_ms": 50.0,
    "ttft_ms": 200.0,
    "ttft_content_ms": 200.0,
    "last_token_ms": 600.0,
    "e2e_ms": 600.0,
    "finish_ms": 650.0,
    "usage_ms": 700.0,
    "done_ms": 750.0,
    "itl_ms": [20.0] * 20,
    "tpot_ms": 20.0,
    "output_tokens": 21,
    "max_tokens": 64,
    "flags": [],
}
WINDOW_S = 0.75
EXPECTED = {  # TTFT, ITL, TPOT in ms, output tokens in the window
    "loadkit": (200, 20, 20, 21),
    "vLLM bench": (205, 20, 400 / 20, 21),
    "SGLang bench": (205, 20, 550 / 63, 64),
    "genai-bench": (205, None, 500 / 20, 21),
    "guidellm": (200, 400 / 20, 600 / 21, 21),
    "aiperf": (205, 400 / 20, None, 21),
    "inference-perf": (205, 20, 400 / 20, 21),
    "evalscope": (205, 20, 500 / 20, 21),
    "llmperf": (205, 605 / 23, None, 21),
}


def compared(records):
    """The cells of the records, as every tool prints them."""
    definitions = Definitions()
    return definitions.compare(summarise(definitions.watch(records)))["cells"]


def tools(*records):
    """The tools of the one cell, by name."""
    (cell,) = compared(records)
    return {tool["name"]: tool for tool in cell["tools"]}


def replayed(name):
    """The record of a scenario of the truth table."""
    case = CASES[name]
    record = replay("openai-chat", scenario.reads_of(case), case["end"], case["status"], case["headers"])
    return record | PLACE


@pytest.mark.parametrize("name", EXPECTED)
def test_every_tool_by_hand(name):
    """All four numbers of each tool, worked out from its definition with a pencil."""
    ttft, itl, tpot, tokens = EXPECTED[name]
    tool = tools(BY_HAND)[name]
    found = [tool[metric]["p50"] for metric in METRICS]
    assert found == [ttft, itl, pytest.approx(tpot) if tpot else None, pytest.approx(tokens / WINDOW_S)]


@pytest.mark.parametrize(
    ("name", "metric", "cause"),
    [
        ("vLLM bench", "ttft_ms", "its clock starts before the connection is opened"),
        ("vLLM bench", "tpot_ms", None),
        ("SGLang bench", "output_tokens_per_s", "it asks for no usage in a chat, so the tokens asked for count"),
        ("genai-bench", "itl_ms", "no gap is kept"),
        ("genai-bench", "tpot_ms", "its clock runs on to the usage event"),
        ("guidellm", "ttft_ms", None),
        ("guidellm", "tpot_ms", "the wait for the first token is spread over all tokens"),
        ("evalscope", "tpot_ms", "its clock runs on to the last JSON event"),
        ("llmperf", "itl_ms", "TTFT and all gaps divided by all events"),
    ],
)
def test_the_cause_is_named(name, metric, cause):
    """Each difference has its cause, and what is no difference has none."""
    found = tools(BY_HAND)[name][metric]["cause"]
    assert found is None if cause is None else found.startswith(cause)


@pytest.mark.parametrize(
    ("case", "metric", "expected"),
    [
        # Four events in one write: the middle gap is 0 wherever gaps are pooled, and TPOT does not move.
        ("coalesce", "itl_ms", {"vLLM bench": 0, "SGLang bench": 0, "inference-perf": 0, "evalscope": 0}),
        ("coalesce", "itl_ms", {"guidellm": 20, "aiperf": 20, "loadkit": None}),
        ("coalesce", "tpot_ms", {"vLLM bench": 20, "inference-perf": 20, "loadkit": 20}),
        # Four tokens in one event: gaps of events are four times too long, gaps of tokens tokenised again are 0.
        ("multitok", "itl_ms", {"vLLM bench": 80, "SGLang bench": 80, "evalscope": 80, "inference-perf": 0}),
        ("multitok", "itl_ms", {"guidellm": 20, "aiperf": 20, "loadkit": None}),
        # Ten tokens of reasoning first: who does not read them starts at the eleventh token.
        ("reasoning_content", "ttft_ms", {"vLLM bench": 400, "inference-perf": 400, "llmperf": 400}),
        ("reasoning_content", "ttft_ms", {"SGLang bench": 200, "genai-bench": 200, "guidellm": 200, "aiperf": 200}),
        ("reasoning_content", "ttft_ms", {"evalscope": 200, "loadkit": 200}),
        ("reasoning_content", "tpot_ms", {"vLLM bench": 10, "loadkit": 20}),
        ("allreason", "ttft_ms", {"vLLM bench": None, "inference-perf": None, "llmperf": None, "evalscope": 200}),
        ("onetok", "ttft_ms", {"genai-bench": None, "inference-perf": None, "vLLM bench": 200}),
        ("onetok", "tpot_ms", {"vLLM bench": None, "guidellm": 200, "loadkit": None}),
        # Without usage genai-bench and evalscope stop where the stream does.
        ("nousage", "tpot_ms", {"genai-bench": 25, "evalscope": 22.5}),
    ],
)
def test_the_truth_table(case, metric, expected):
    """What the tools' own code was seen to do with these streams follows from the definitions."""
    found = tools(replayed(case))
    assert {name: found[name][metric]["p50"] for name in expected} == pytest.approx(expected)


def test_tool_calls():
    """An answer of tool calls, told by its finish reason: four tools see no token in it, four do."""
    found = tools(replayed("toolcall") | {"finish_reason": "tool_calls"})
    blind = {name for name, tool in found.items() if tool["ttft_ms"]["p50"] is None}
    assert blind == {"SGLang bench", "genai-bench", "inference-perf", "llmperf"}
    assert found["vLLM bench"]["ttft_ms"]["p50"] == 200
    assert found["SGLang bench"]["ttft_ms"]["cause"] == "tool calls are not read"


@pytest.mark.parametrize("case", OK)
def test_every_difference_has_a_cause(case):
    """In every scenario a number that is not loadkit's says why, in one line; an equal one says nothing."""
    found = tools(replayed(case))
    for peer in PEERS:
        for metric in METRICS:
            mine, theirs = found["loadkit"][metric]["p50"], found[peer.name][metric]
            same = (
                mine is theirs["p50"] if None in (mine, theirs["p50"]) else theirs["p50"] == pytest.approx(mine, 5e-3)
            )
            absent = peer.name, metric
            if same and absent not in ABSENT:
                assert theirs["cause"] is None, (case, peer.name, metric)
            else:
                assert theirs["cause"], (case, peer.name, metric)
                assert "\n" not in theirs["cause"]


ABSENT = {("genai-bench", "itl_ms"), ("aiperf", "tpot_ms"), ("llmperf", "tpot_ms")}


def test_percentile_methods():
    """Of 100 and 200 the numpy median lies between, nearest rank is the lower; the cause says so."""
    slow = BY_HAND | {"ttft_ms": 100.0, "ttft_content_ms": 100.0, "connect_ms": None, "round": 2, "start_ms": 5000.0}
    found = tools(BY_HAND | {"connect_ms": None}, slow)
    assert [found[name]["ttft_ms"]["p50"] for name in ("loadkit", "vLLM bench", "evalscope")] == [100, 150, 100]
    assert "lies between two values" in found["vLLM bench"]["ttft_ms"]["cause"]
    assert found["evalscope"]["ttft_ms"]["cause"] is None


def test_guidellm_weights_its_itl_by_tokens():
    """One long answer of 10 ms a token outweighs two short ones of 40 ms."""
    short = BY_HAND | {"output_tokens": 3, "last_token_ms": 280.0, "itl_ms": [40.0, 40.0], "tpot_ms": 40.0}
    long = BY_HAND | {"output_tokens": 101, "last_token_ms": 1200.0, "itl_ms": [10.0] * 100, "tpot_ms": 10.0}
    found = tools(short, short | {"round": 2}, long | {"round": 3})
    assert found["guidellm"]["itl_ms"]["p50"] == 10
    assert found["aiperf"]["itl_ms"]["p50"] == 40


def test_retries_count_where_the_clock_is_not_moved():
    """A retry that waited 300 ms is inside inference-perf's TTFT and in nobody else's."""
    found = tools(BY_HAND | {"connect_ms": None, "ttft_first_attempt_ms": 500.0})
    assert found["inference-perf"]["ttft_ms"]["p50"] == 500
    assert found["inference-perf"]["ttft_ms"]["cause"] == "its clock runs from the first attempt"
    assert {found[peer.name]["ttft_ms"]["p50"] for peer in PEERS} - {500} == {200}


@pytest.mark.parametrize(
    "record", [{}, {"ttft_ms": None}, {"ttft_ms": "x", "itl_ms": {}}, {"ttft_ms": 1.0, "itl_ms": ["a"], "flags": None}]
)
def test_marks_of_anything(record):
    """A record without a token event has no marks; damaged lists are as good as none."""
    found = marks_of(record)
    assert found is None or found.times == (1.0,)


def test_a_cell_without_answers_is_kept():
    """A cell in which all failed has no number of any tool, and no error."""
    failed = BY_HAND | {"outcome": "reset", "ttft_ms": None, "itl_ms": None}
    (cell,) = compared([failed])
    assert (cell["cell"], cell["n"], [tool["name"] for tool in cell["tools"]]) == ("64x1", 0, ["loadkit"])
