"""How far an answer got, times how the connection ended: the outcome of every pair, over a real socket."""

import pytest

from loadkit.call.choose import TRANSPORTS
from loadkit.plan.endpoint import Timeouts

TOKEN, FINISH = {"delta": {"content": "a"}}, {"delta": {}, "finish": "stop"}
GOT = {
    "nothing": [],
    "a comment": [": keep-alive\n\n"],
    "a role": [{"delta": {"role": "assistant", "content": ""}}],
    "usage": [{"choices": [], "usage": [9, 2]}],
    "[DONE] alone": ["data: [DONE]\n\n"],
    "tokens": [TOKEN, TOKEN],
    "tokens and usage": [TOKEN, {"choices": [], "usage": [9, 2]}],
    "half an event": [TOKEN, 'data: {"choices": [{"delta": {"content"'],
    "finish alone": [FINISH],
    "tokens and finish": [TOKEN, FINISH],
    "tokens and [DONE]": [TOKEN, "data: [DONE]\n\n"],
    "all": [TOKEN, FINISH, {"choices": [], "usage": [9, 1]}, "data: [DONE]\n\n"],
    "error first": ['data: {"error": {"code": 503, "message": "busy"}}\n\n'],
    "error after": [TOKEN, 'data: {"error": {"code": 503, "message": "busy"}}\n\n'],
}
CLEAN, CUT, SILENT = ("eof", "chunked_end", "counted_end"), ("short_chunked", "short_counted"), ("open", "stall")
ENDINGS = (*CLEAN, *CUT, *SILENT, "reset")

# By how it ended: clean, cut, silent, reset.
RIGHT = {
    "nothing": ("empty_response", "stream_truncated", "ttft_timeout", "reset"),
    "a comment": ("empty_response", "stream_truncated", "ttft_timeout", "stream_truncated"),
    "a role": ("stream_truncated", "stream_truncated", "ttft_timeout", "stream_truncated"),
    "usage": ("stream_truncated", "stream_truncated", "ttft_timeout", "stream_truncated"),
    "[DONE] alone": ("empty_response",) * 4,
    "tokens": ("stream_truncated", "stream_truncated", "read_timeout", "stream_truncated"),
    "tokens and usage": ("stream_truncated", "stream_truncated", "read_timeout", "stream_truncated"),
    "half an event": ("stream_truncated", "stream_truncated", "read_timeout", "stream_truncated"),
    "finish alone": ("empty_response", "stream_truncated", "empty_response", "stream_truncated"),
    "tokens and finish": ("ok",) * 4,
    "tokens and [DONE]": ("ok",) * 4,
    "all": ("ok",) * 4,
    "error first": ("overloaded",) * 4,
    "error after": ("stream_error",) * 4,
}


def column(how):
    """Which of the four outcomes an ending leads to."""
    return next(n for n, group in enumerate((CLEAN, CUT, SILENT, ("reset",))) if how in group)


@pytest.mark.parametrize("name", sorted(TRANSPORTS))
@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("got", GOT)
def test_every_ending_of_every_answer(got, how, name, play, monkeypatch):
    """Complete is ok whatever the socket does after; anything else has the name of what went wrong."""
    monkeypatch.setattr("loadkit.call.deadlines.FINISH_S", 0.1)
    case = {"status": 200, "headers": {"content-type": "text/event-stream"}, "end": {"how": how}}
    case["reads"] = [[n, part] for n, part in enumerate(GOT[got])]
    right = RIGHT[got][column(how)]
    limits = {"ttft_timeout": {"ttft": 0.25}, "read_timeout": {"read": 0.7}}.get(right, {})  # no other one can come
    one = play(case, name, timeouts=Timeouts(**limits, ttft_scales=False))
    assert one.record.outcome == right
    assert (one.record.error_message is None) is (one.record.outcome == "ok")
    assert one.record.token_events == sum(part is TOKEN for part in GOT[got])
    assert one.record.bytes_received == sum(len(data) for _, data in one.heard.reads)
