"""Every written-out stream and error answer, read by read over a real socket, gives its right record.

The server writes a read when the client has been told the one before (conftest), so the stamp of a read must lie
between the server's write and the moment its bytes had been taken. No result depends on how fast anything is.
"""

from datetime import UTC, datetime

import pytest

from loadkit.call.choose import TRANSPORTS
from loadkit.call.request import Call
from loadkit.call.retry import RetryPolicy
from loadkit.protocol import replay

# What only a Caller knows, and what follows from it.
CALLERS = {"request_id", "endpoint", "model", "transport", "host", "path", "target", "cold", "timestamp", "attempts"}
CALLERS |= {"start_ms"}
CALLERS |= {"auth", "proxied"}
CALLERS |= {"target_tokens", "input_chars", "input_bytes", "prompt_sha256", "max_tokens", "build_ms", "connect_ms"}
CALLERS |= {"sent_ms", "headers_ms", "ttft_net_ms", "ttft_first_attempt_ms", "prompt_tokens", "prompt_tokens_source"}
CALLERS |= {"prefill_tokens_per_s", "unit_price_ms", "error_message"}
# What two runs may not share: ports, times, and what is made of times.
VARIES = {"transport", "host", "timestamp", "attempts", "itl_ms", "decode_tokens_per_s", "prefill_tokens_per_s"}


@pytest.fixture(scope="module")
def kept():
    """Cases that have been played already."""
    return {}


@pytest.fixture
def played(stream_case, cases, play, kept):
    """The case over each transport: {name: Played}."""
    if stream_case["name"] not in kept:
        request = stream_case.get("request", {})
        ask = {"ignore_eos": request.get("ignore_eos", False), "max_tokens": request.get("max_tokens", 128)}
        labels = {key: value for key, value in cases.known_of(stream_case).items() if key == "target_tokens"}
        kept[stream_case["name"]] = {name: play(stream_case, name, ask=ask, labels=labels) for name in TRANSPORTS}
    return kept[stream_case["name"]]


def test_counts_and_outcome(stream_case, cases, played):
    """Outcome, counts, finish reason, flag and text length are the right ones, exactly."""
    expect = stream_case["expect"]
    for one in played.values():
        record = one.record.to_json()
        assert cases.right_outcome(stream_case, record["outcome"])
        assert {name: record[cases.COUNTS[name]] for name in expect if name in cases.COUNTS} == {
            name: value for name, value in expect.items() if name in cases.COUNTS
        }
        assert expect.get("flag", "cold") in record["flags"]
        for channel in expect.keys() & {"content", "reasoning"}:
            assert getattr(one.heard.sink.parser.answer, f"{channel}_chars") == len(expect[channel])
        if "saw_done" in expect:
            assert ("no_done" in record["flags"]) is not expect["saw_done"]


def test_reads_are_the_servers(stream_case, cases, played):
    """The transport tells exactly what was written, read by read, stamped after the write and before it was taken."""
    written = [data for _, data in cases.scenario.reads_of(stream_case)]
    for one in played.values():
        heard = one.heard
        assert [data for _, data in heard.reads] == written[: len(heard.reads)]
        assert len(heard.reads) == len(written) or heard.sink.parser.done
        for wrote, (stamp, _), told in zip(one.wrote, heard.reads, heard.told, strict=False):
            assert wrote < stamp < told


def test_times_are_those_of_their_reads(stream_case, cases, played):
    """A time of the right answer is the time of one read: the record has the stamp of that read."""
    at_read = {at: index for index, (at, _) in enumerate(cases.scenario.reads_of(stream_case))}
    for name in cases.MOMENTS.keys() & stream_case["expect"].keys():
        value = stream_case["expect"][name]
        for one in played.values():
            found = getattr(one.record, cases.field_of(stream_case, name))
            if value is None:
                assert found is None
            else:
                stamp = one.heard.reads[at_read[value]][0]
                assert found == pytest.approx((stamp - one.heard.t0) / 1e6, abs=1e-6), name


def test_gaps_and_pace(stream_case, cases, played):
    """Gaps are as many as in the right answer, and zero where it has a zero; TPOT divides by the same tokens."""
    expect = stream_case["expect"]
    known = cases.known_of(stream_case)
    nominal = replay("openai-chat", cases.scenario.reads_of(stream_case), stream_case.get("end"), known=known)
    for one in played.values():
        record = one.record
        if "itl_chunk_ms" in expect:
            assert [gap > 0 for gap in record.itl_ms] == [gap > 0 for gap in expect["itl_chunk_ms"]]
            assert sum(record.itl_ms) == pytest.approx(record.decode_ms, abs=1e-4)
        if expect.get("tpot_ms") is not None:
            divisor = nominal["decode_ms"] / expect["tpot_ms"]
            assert record.tpot_ms == pytest.approx(record.decode_ms / divisor)
        elif "tpot_ms" in expect:
            assert record.tpot_ms is None


def test_the_record_is_that_of_the_replay(stream_case, played):
    """From the reads as they were stamped, `replay` makes the same record, field by field: the call adds nothing."""
    for one in played.values():
        record, heard = one.record.to_json(), one.heard
        reads = [((stamp - heard.t0) / 1e6, data) for stamp, data in heard.reads]
        end = {"how": heard.end.outcome or heard.end.how, "t_ms": (heard.end.at_ns - heard.t0) / 1e6}
        known = {name: record[name] for name in ("max_tokens", "target_tokens")} | {"flags": ["cold"]}
        options = {"ignore_eos": stream_case.get("request", {}).get("ignore_eos", False), "now": stream_case.get("now")}
        again = replay("openai-chat", reads, end, heard.status, heard.headers, known=known, **options)
        for name in again.keys() - CALLERS:
            assert record[name] == (pytest.approx(again[name]) if name.endswith("_ms") else again[name]), name


def test_every_transport_gives_the_same_record(stream_case, played):
    """All fields but times agree, and a time known to one is known to the other."""
    found = []
    for one in played.values():
        record = one.record.to_json()
        flags = [flag for flag in record["flags"] if flag != "bursty"]  # made of times
        same = {name: value for name, value in record.items() if name not in VARIES and not name.endswith("_ms")}
        times = {name: value is None for name, value in record.items() if name.endswith("_ms")}
        found.append(same | times | {"flags": flags, "gaps": len(record["itl_ms"] or [])})
    assert found[0] == found[1]


@pytest.mark.parametrize("name", sorted(TRANSPORTS))
def test_retry_advice_is_followed(name, refusal_case, cases, serve, caller, prompt):
    """A request is tried again only where it may be, and never before the time the server named."""
    expect, waits = refusal_case["expect"], []
    closing = {**refusal_case, "headers": {**refusal_case["headers"], "connection": "close"}}
    good = {**cases.CASES[0], "end": {"how": "chunked_end"}}

    def script(case):
        def run(peer):
            peer.request()
            cases.scenario.play(peer.sock, case, lambda index: None)

        return run

    transport = TRANSPORTS[name](None)
    policy = RetryPolicy(max_attempts=2, base_s=0.25, cap_s=60)
    fields = {"policy": policy, "sleep": waits.append}
    if "now" in refusal_case:
        fields["wall"] = lambda: datetime.fromtimestamp(refusal_case["now"], UTC)
    made = caller(serve(script(closing), script(good)).url(path="/v1"), transport, **fields)
    record = made.run(Call(lambda: prompt, {}))
    transport.close()
    assert len(record.attempts) == len(waits) + 1 == (2 if expect["retryable"] else 1)
    assert (record.outcome == "ok") is expect["retryable"]
    if expect.get("retry_after_s") is not None:
        assert expect["retry_after_s"] <= waits[0] <= 1.1 * expect["retry_after_s"]
    elif waits:
        assert 0 <= waits[0] <= policy.base_s
