"""What servers say at their own /metrics, in each one's names."""

import httpcore
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.live import server_metrics

VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m{x}"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 99.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:num_preemptions_total{engine="0"} 1.0
vllm:prefix_cache_queries_total{engine="0"} 1000.0
vllm:prefix_cache_hits_total{engine="0"} 100.0
vllm:request_queue_time_seconds_sum{engine="0"} 1.0
vllm:request_queue_time_seconds_count{engine="0"} 10.0
vllm:request_prefill_time_seconds_sum{engine="0"} 2.0
vllm:request_prefill_time_seconds_count{engine="0"} 10.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 5.0
vllm:time_to_first_token_seconds_sum{engine="0"} 3.5
vllm:time_to_first_token_seconds_count{engine="0"} 10.0
"""
SGLANG = """sglang:num_running_reqs{model_name="m"} 7.0
sglang:num_queue_reqs{model_name="m"} 1.0
sglang:token_usage{model_name="m"} 0.28
sglang:cache_hit_rate{model_name="m"} 0.0075
"""
LLAMA = """# HELP llamacpp:requests_processing Number of requests processing.
llamacpp:requests_processing 2
llamacpp:requests_deferred 5
llamacpp:n_decode_total 17
"""
TGI = """tgi_queue_size 6
tgi_batch_current_size 32
tgi_request_queue_duration_sum 4.5
tgi_request_queue_duration_count 9
"""


def told(text, before=None):
    found = server_metrics.sample(server_metrics.parse(text), before and server_metrics.parse(before))
    return {name: value for name, value in found.items() if value is not None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (VLLM, {"engine": "vllm", "running": 5.0, "waiting": 4.0, "kv_usage": 0.75, "preemptions": 1.0}),
        (SGLANG, {"engine": "sglang", "running": 7.0, "waiting": 1.0, "kv_usage": 0.28, "prefix_hit": 0.0075}),
        (LLAMA, {"engine": "llama.cpp", "running": 2.0, "waiting": 5.0}),
        (TGI, {"engine": "tgi", "running": 32.0, "waiting": 6.0}),
    ],
)
def test_gauges_of_each_engine(text, expected):
    """Replicas add up, the fullest cache counts; the first page has no means, for it has no time before it."""
    assert told(text) == expected


def test_times_are_means_since_the_page_before():
    """Ten more requests that waited 3 s in all waited 300 ms each; what the server began with is not among them."""
    later = VLLM.replace('queue_time_seconds_sum{engine="0"} 1.0', 'queue_time_seconds_sum{engine="0"} 4.0')
    later = later.replace('_count{engine="0"} 10.0', '_count{engine="0"} 20.0')
    later = later.replace('hits_total{engine="0"} 100.0', 'hits_total{engine="0"} 550.0')
    later = later.replace('queries_total{engine="0"} 1000.0', 'queries_total{engine="0"} 2000.0')
    found = told(later, VLLM)
    assert (found["queue_ms"], found["prefill_ms"], found["prefix_hit"]) == (300.0, 0.0, 0.45)


def test_nothing_new_is_no_mean():
    """No request ended in between, or the server began anew: no number rather than a wrong one."""
    assert "queue_ms" not in told(VLLM, VLLM)
    assert "queue_ms" not in told(VLLM, VLLM.replace(" 10.0", " 5000.0"))


@given(st.text(max_size=300))
def test_any_text_can_be_parsed(text):
    """Text of a server never raises, and what is no page of a known one is none."""
    values = server_metrics.parse(text)
    assert server_metrics.sample(values) is None or values


def test_values_that_are_no_numbers_are_left_out():
    """NaN and words; a line that only begins like one of ours."""
    text = "sglang:token_usage NaN\nsglang:num_running_reqs x\nsglang:num_queue_reqs 2\nsglang:num_queue_reqsx 9\n"
    assert server_metrics.parse(text) == {"sglang:num_queue_reqs": [2.0]}


def client(answer):
    return httpx.Client(transport=httpx.MockTransport(answer))


def test_a_page_is_scraped_and_other_answers_are_none():
    """A page of a known engine; a missing page, a page of something else, and no server at all."""

    def gone(request):
        raise httpx.ConnectError("refused", request=request)

    pages = [
        (lambda request: httpx.Response(200, text=TGI), True),
        (lambda request: httpx.Response(404, text=TGI), False),
        (lambda request: httpx.Response(200, text="<html>"), False),
        (gone, False),
    ]
    for answer, known in pages:
        assert (server_metrics.scrape(client(answer), "http://h/metrics") is not None) == known


def test_a_sample_is_a_row_of_telemetry():
    """It has a kind of its own and both clocks."""
    row = server_metrics.row({"engine": "tgi"})
    assert (row["kind"], row["engine"], row["at_ms"] > 0, row["timestamp"][-6:]) == ("server", "tgi", True, "+00:00")


@pytest.mark.parametrize("fault", [httpx.ConnectError("no"), httpcore.ConnectError("no"), httpcore.ReadTimeout("late")])
def test_a_server_that_does_not_answer_has_no_page(fault):
    """Whatever the transport raises of the network is no page, and ends nothing."""

    def refuse(request):
        raise fault

    with httpx.Client(transport=httpx.MockTransport(refuse)) as client:
        assert server_metrics.scrape(client, "http://h/metrics") is None
