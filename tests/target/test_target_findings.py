"""What a check concludes from its few requests."""

import pytest

from loadkit.plan.endpoint import Endpoint
from loadkit.plan.errors import TargetError
from loadkit.plan.ladder import Estimate
from loadkit.record.names import Outcome
from loadkit.record.record import Record
from loadkit.target.findings import cache, described
from loadkit.target.route import blamed, route
from loadkit.target.speed import speed

PROXY = {"https_proxy": "http://u:pass@p:1", "NO_PROXY": "x.org"}
HOST = Endpoint(name="lab", base_url="https://h")


def answer(ttft, **values):
    """The record of an answered ping."""
    return Record(outcome="ok", ttft_ms=ttft, **values)


def again(*records):
    """A sender that gives these answers in turn."""
    left = list(records)
    return lambda: left.pop(0)


def test_a_stream_is_described_by_its_clocks():
    """The moment the stream opened stands beside the first token: other clients stop there."""
    ping = answer(250.04, first_byte_ms=3.0, token_events=16, reads=17, prompt_tokens=60, prompt_tokens_source="usage")
    ping.output_tokens, ping.output_tokens_source, ping.cached_tokens = 16, "usage", 0
    assert described(ping) == [
        "streaming: yes, 16 token events in 17 reads",
        "usage: stated, 60 prompt tokens, 0 cached and 16 output tokens",
        "first token: 250.0 ms, stream opened at 3.0 ms",
    ]


def test_an_answer_in_one_piece_has_no_first_token():
    """TTFT cannot be measured, and tokens nobody stated are said to be events."""
    said = described(answer(None, prompt_tokens_source="estimate", output_tokens_source="events"))
    assert said[0].startswith("streaming: no")
    assert said[1] == "usage: not stated: output tokens are counted by events"


@pytest.mark.parametrize(
    ("fresh", "first", "second", "verdict"),
    [
        (400, answer(390), answer(90), "on, by time (TTFT 390.0 ms, repeated 90.0 ms)"),
        (400, answer(390), answer(300), "none seen"),
        (100, answer(390), answer(90), "none seen"),  # the first one was slow by itself
        (9, answer(9), answer(1), "none seen"),  # too short to tell
        (400, answer(390), answer(380, cached_tokens=1000, prompt_tokens=1024), "on, 1000 of 1024 tokens"),
        (400, answer(390), answer(380, cached_tokens=20, prompt_tokens=1024), "none seen"),  # the template
        (400, answer(None), answer(None), "not stated"),
        (400, answer(390), Record(outcome="rate_limited"), "not tested, a repeated prompt ended as rate_limited"),
        (400, Record(outcome="rate_limited"), answer(1), "not tested, a repeated prompt ended as rate_limited"),
    ],
)
def test_a_prefix_cache_shows_in_the_same_prompt_sent_twice(fresh, first, second, verdict):
    """By cached tokens beyond the template's, else by a TTFT under half of both fresh prompts."""
    assert cache(answer(fresh), again(first, second), 20).startswith(f"prefix cache: {verdict}")


def test_a_refused_length_is_not_sent_again():
    """The longer ping did not fit: nothing more is sent."""
    assert "not tested" in cache(Record(outcome="context_length_exceeded"), again(), 20)


@pytest.mark.parametrize(
    ("pings", "estimate"),
    [
        ([], None),
        ([answer(50, prompt_tokens=60)], None),
        ([answer(50, prompt_tokens=60), Record(outcome="context_length_exceeded")], None),
        ([answer(None, prompt_tokens=60), answer(None, prompt_tokens=1060)], None),
        ([answer(56, prompt_tokens=60, tpot_ms=20.0), answer(156, prompt_tokens=1060)], Estimate(0.1, 20.0, 50.0)),
        ([answer(300, prompt_tokens=60), answer(200, prompt_tokens=1000)], Estimate(0.2, 0.0)),
    ],
)
def test_two_pings_give_the_speed(pings, estimate):
    """The line through both; where the longer was not slower, all of its time is put down to its tokens."""
    found = speed(pings)
    if estimate is None:
        assert found is None
    else:
        assert (found.prefill_ms, found.decode_ms, found.fixed_ms) == pytest.approx(
            (estimate.prefill_ms, estimate.decode_ms, estimate.fixed_ms)
        )


def test_the_route_is_named_by_its_variable():
    """Never by its value, which may hold a password."""
    assert route(HOST, {}) == "direct"
    assert route(HOST, PROXY) == "through the proxy of https_proxy"


@pytest.mark.parametrize("outcome", [Outcome.CONNECT_ERROR, Outcome.DNS_ERROR, Outcome.PROXY_ERROR])
def test_a_connection_that_failed_through_a_proxy_is_the_proxys(outcome):
    """All proxy variables that are set are named, and how to go without."""
    found = blamed(TargetError("h cannot be reached", outcome), HOST, PROXY)
    assert found.outcome is Outcome.PROXY_ERROR
    assert "NO_PROXY, https_proxy set" in found.message
    assert "--no-proxy" in found.message
    assert "pass" not in found.message


def test_other_faults_stay_what_they_are():
    """An answer of the server, or a direct connection."""
    refused = TargetError("no", Outcome.AUTH)
    assert blamed(refused, HOST, PROXY) is refused
    direct = TargetError("no", Outcome.CONNECT_ERROR)
    assert blamed(direct, HOST, {}) is direct
