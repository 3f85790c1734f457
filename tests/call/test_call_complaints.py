"""What users of load tools complained of, as scenarios on real sockets. Times are scaled down where nothing else is.

Where each scenario and series is tested; the streams and error answers are in test_call_cases.py, and without a socket
in test_protocol_streams.py. A note follows where our definition differs.

P05-b  test_call_complaints.py: test_a_tier_that_fails_has_a_report
P05-b  test_analysis_strata.py: test_a_cell_of_errors_has_counts_and_no_numbers
P10-a  test_call_complaints.py: test_the_clock_starts_at_the_first_byte
P11-a  test_measure_timing.py: test_everything_in_one_read_is_no_decode_speed
P11-b  test_measure_timing.py: test_an_even_stream_is_not_bursty
P11-c  test_measure_timing.py: test_a_proxy_that_holds_65_events_back_is_bursty
P11-c  test_call_complaints.py: test_a_proxy_that_buffers
P12-a  test_call_complaints.py: test_compression_is_declined
P14-a  test_measure_quantile.py: test_one_cold_outlier_does_not_turn_the_load_curve_round
P15-a  test_plan_ladder.py: test_warm_up_is_the_larger_of_n_and_concurrency
       The first wave is warm-up by its number, not by completions; records are labelled and never deleted.
P16-a  test_measure_timing.py: test_coordinated_omission_is_visible
P21-a  test_measure_timing.py: test_decode_metrics_start_at_the_first_token
P29-a  test_call_complaints.py: test_a_long_event
P29-a  test_protocol_sse.py: test_two_million_bytes_in_small_reads_take_linear_time
P36-a  test_call_complaints.py: test_a_cut_stream_leaves_evidence
       A record holds no text of an answer, so no raw head of the body: the error message says what was seen.
P40-a  test_plan_tiers.py: test_a_tier_at_the_window_leaves_room_for_output_and_template
P46-a  test_call_request.py: test_each_attempt_has_its_own_clock
P46-a  test_measure_timing.py: test_retries_have_two_clocks
P46-a  test_call_complaints.py: test_retries_on_a_socket
P48-a  test_call_complaints.py: test_nobody_accepts
P48-b  test_call_complaints.py: test_a_server_that_never_answers
       Silence before a token is ttft_timeout, whatever the read timeout: that one is for the silence after.
P48-d  test_call_gevent.py: test_keep_alives_do_not_satisfy_the_first_token_deadline
       It is ttft_timeout too.
P49-a  test_measure_quantile.py: test_failures_stand_beside_percentiles
P50-a  test_prompt_tier.py: test_two_runs_of_100_prompts_share_no_opening
       The same seed, cell, round and slot give the same bytes on purpose: runs differ by seed, repeats by attempt.
P51-a  test_prompt_calibrate.py: test_two_probes_give_price_and_overhead
P51-c  test_measure_timing.py: test_unit_price
P51-d  test_measure_timing.py: test_unit_price
P53-a  test_prompt_tier.py: test_counting_does_not_grow_with_the_tier
P53-a  test_call_complaints.py: test_sixteen_times_the_tier
P54-a  test_prompt_store.py: test_a_mapped_body_is_shared_by_all_prompts
P54-a  test_call_complaints.py: test_users_share_one_long_prompt
"""

import re
import socket
import threading
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loadkit.analysis.summary import summarise
from loadkit.call.choose import TRANSPORTS
from loadkit.call.request import Call
from loadkit.call.retry import RetryPolicy
from loadkit.plan.endpoint import Timeouts
from loadkit.prompt import PromptKey, build_tier, filler
from loadkit.prompt.counters import ByteCounter
from loadkit.record.jsonl import Writer, read

SSE = {"content-type": "text/event-stream"}
TOKEN, FINISH, DONE = {"delta": {"content": "a"}}, {"delta": {}, "finish": "stop"}, "data: [DONE]\n\n"
STREAM = {"status": 200, "headers": SSE, "reads": [[1, TOKEN], [2, TOKEN], [3, FINISH, DONE]], "end": {"how": "eof"}}
EVENTS = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
each_transport = pytest.mark.parametrize("name", sorted(TRANSPORTS))


def test_the_table_names_tests_that_exist():
    """Each scenario and series of P01 to P54 has a test of the name given above."""
    rows = re.findall(r"^(P\d\d-[a-z])  (test_\w+\.py): (test_\w+)$", __doc__, re.MULTILINE)
    files = {path.name: path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].glob("*/test_*.py")}
    assert [row for row in rows if f"def {row[2]}(" not in files[row[1]]] == []
    assert len({row[0] for row in rows}) == 24


def test_a_tier_that_fails_has_a_report(play):
    """P05-b: every request of a tier is a 404; the summary counts them all and has no TTFT, not one of 0."""
    case = {"status": 404, "headers": {}, "body": {"detail": "Not Found"}}
    labels = {"cell": "128x1", "tier_tokens": 128, "concurrency": 1, "phase": "measure"}
    records = [play(case, "loadkit", labels={**labels, "round": n}).record.to_json() for n in (1, 2, 3)]
    (cell,) = summarise(records)["cells"]
    assert (cell["n"], cell["ok"], cell["outcomes"], cell["ttft_ms"]) == (3, 0, {"not_found": 3}, None)


@each_transport
def test_the_clock_starts_at_the_first_byte(name, serve, caller, prompt):
    """P10-a: a first token 100 ms after the last body byte was read is a TTFT of 100 ms, however long the prompt took
    to build and whatever the wall clock does."""
    marks = {}
    walls = iter([datetime(2025, 11, 30, 10, 0, tzinfo=UTC) - timedelta(hours=n) for n in range(9)])

    def script(peer):
        peer.request()
        marks["received"] = time.perf_counter_ns()
        threading.Event().wait(0.1)
        marks["wrote"] = time.perf_counter_ns()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + EVENTS)

    def slow_prompt():
        threading.Event().wait(0.2)
        marks["built"] = time.perf_counter_ns()
        return prompt

    transport = TRANSPORTS[name](None)
    record = caller(serve(script).url(path="/v1"), transport, wall=lambda: next(walls)).run(Call(slow_prompt, {}))
    told = time.perf_counter_ns()
    transport.close()
    assert record.build_ms >= 200
    assert (marks["wrote"] - marks["received"]) / 1e6 <= record.ttft_ms <= (told - marks["built"]) / 1e6


@each_transport
def test_a_proxy_that_buffers(name, play):
    """P11-c: 60 tokens that arrive as three reads are bursty, and their zero gaps stand."""
    burst = [TOKEN] * 20
    case = {**STREAM, "reads": [[1, *burst], [2, *burst], [3, *burst], [4, FINISH, DONE]]}
    record = play(case, name).record
    assert "bursty" in record.flags
    assert (record.token_events, record.reads, sum(gap == 0 for gap in record.itl_ms)) == (60, 4, 57)


@each_transport
def test_compression_is_declined(name, serve, caller, prompt):
    """P12-a: one accept-encoding, and it is identity; the answer is asked for as an event stream."""
    seen = []

    def script(peer):
        seen.append(peer.request()[0].decode().lower().split("\r\n"))

    transport = TRANSPORTS[name](None)
    caller(serve(script).url(path="/v1"), transport).run(Call(lambda: prompt, {}))
    transport.close()
    found = [line for line in seen[0] if line.startswith(("accept-encoding:", "accept:"))]
    assert sorted(found) == ["accept-encoding: identity", "accept: text/event-stream"]


@each_transport
def test_a_long_event(name, serve, caller, prompt):
    """P29-a: one event with two million characters, written in 4096 bytes at a time, is one token event."""
    start, end = b'data: {"choices":[{"delta":{"content":"', b'"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    body = start + b"x" * 2_000_000 + end

    def script(peer):
        peer.request()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
        peer.send(head, *(body[at : at + 4096] for at in range(0, len(body), 4096)))
        peer.gone()

    transport = TRANSPORTS[name](None)
    record = caller(serve(script).url(path="/v1"), transport).run(Call(lambda: prompt, {}))
    transport.close()
    assert (record.outcome, record.output_chars, record.token_events) == ("ok", 2_000_000, 1)


@each_transport
def test_a_cut_stream_leaves_evidence(name, cases, play, tmp_path):
    """P36-a: the line in records.jsonl of a stream that was cut has status, outcome, bytes and words."""
    (case,) = [case for case in cases.CASES if case["name"].startswith("P35-b")]
    writer = Writer(tmp_path / "records.jsonl")
    writer.write(play(case, name).record)
    writer.close()
    (row,) = read(tmp_path / "records.jsonl").records
    assert (row["http_status"], row["outcome"]) == (200, "stream_truncated")
    assert row["bytes_received"] == sum(len(data) for _, data in cases.scenario.reads_of(case))
    assert row["error_message"] == "connection closed before the body was complete"
    assert row["last_token_ms"] > 0


@each_transport
def test_retries_on_a_socket(name, cases, serve, caller, prompt):
    """P46: two 429 and an answer: the TTFT is the last attempt's, the user's counts from the first sending."""
    busy = {"status": 429, "headers": {"retry-after": "0", "connection": "close"}, "body": {"error": {"code": 429}}}

    def script(case):
        def run(peer):
            peer.request()
            cases.scenario.play(peer.sock, case, lambda index: None)

        return run

    transport = TRANSPORTS[name](None)
    policy = RetryPolicy(max_attempts=3)
    url = serve(script(busy), script(busy), script(STREAM)).url(path="/v1")
    record = caller(url, transport, policy=policy, sleep=lambda s: time.sleep(0.03)).run(Call(lambda: prompt, {}))
    transport.close()
    assert [attempt["http_status"] for attempt in record.attempts] == [429, 429, 200]
    assert record.outcome == "ok"
    assert record.ttft_first_attempt_ms == pytest.approx(record.ttft_ms + record.attempts[2]["start_ms"])
    assert record.ttft_first_attempt_ms >= record.ttft_ms + 60


@each_transport
def test_nobody_accepts(name, caller, prompt):
    """P48-a: a listener with a full backlog is connect_timeout, and nothing was sent."""
    transport = TRANSPORTS[name](None)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        made = caller(f"http://127.0.0.1:{full.getsockname()[1]}/v1", transport, timeouts=Timeouts(connect=0.3))
        record = made.run(Call(lambda: prompt, {}))
        for sock in waiting:
            sock.close()
    assert (record.outcome, record.sent_ms, record.ttft_ms, record.timestamp) == ("connect_timeout", None, None, None)


@each_transport
def test_a_server_that_never_answers(name, serve, caller, prompt):
    """P48-b: nothing generated in time is ttft_timeout, without a TTFT; the read timeout is for the silence after."""
    transport = TRANSPORTS[name](None)
    url = serve(lambda peer: peer.request() and peer.gone()).url(path="/v1")
    limits = Timeouts(ttft=0.3, read=0.05, ttft_scales=False)
    record = caller(url, transport, timeouts=limits).run(Call(lambda: prompt, {}))
    assert (record.outcome, record.ttft_ms, record.http_status) == ("ttft_timeout", None, None)
    assert 300 <= record.done_ms < 5000


def test_sixteen_times_the_tier():
    """P53-a: a tier of 1M is built in at most 24 times the CPU time of 64K, both without a count of the whole."""
    spent = []
    for tokens in (65_536, 1_048_576):
        started = time.process_time()
        build_tier(ByteCounter(), tokens, 0, filler("en"))
        spent.append(time.process_time() - started)
    assert spent[1] <= 24 * max(spent[0], 0.001)


def test_users_share_one_long_prompt():
    """P54-a: 32 users of a tier of 6 MB hold one body: what they add is under 1 MB."""
    tier = build_tier(ByteCounter(), 6_000_000, 0, filler("en"))
    tracemalloc.start()
    prompts = [tier.prompt(PromptKey(1, "1048576x32", 1, slot, "measure")) for slot in range(32)]
    added, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(len(piece) for prompt in prompts for piece in prompt.content) >= 32 * 6_000_000
    assert added < 1_000_000
