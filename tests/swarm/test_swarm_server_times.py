"""A run against a server that tells queue, prefill and decode in its /metrics alone, as vLLM does, and that remembers
what each request really took."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytestmark = pytest.mark.quiet  # a look that takes long, beside other tests, is the last one: looks may cost 2 %

NAMES = ("queue", "prefill", "decode")
TOKENS = 8
RUN = ("--tiers", "1K", "--rounds", "3", "--max-tokens", TOKENS, "--no-check", "--seed", "5", "--no-metrics")


class Answers(BaseHTTPRequestHandler):
    """Streams TOKENS tokens after a queue and a prefill that differ from request to request, and counts their times
    just before the end of the answer, as a server does."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.looks += self.path == "/metrics"
        if self.path != "/metrics":
            return self._say(200, b'{"data": [{"id": "m"}]}')
        lines = ["vllm:num_requests_running 0"]
        with self.server.lock:
            for name in NAMES:
                values = [times[name] for times in self.server.times.values()]
                lines += [f"vllm:request_{name}_time_seconds_sum {sum(values)!r}"]
                lines += [f"vllm:request_{name}_time_seconds_count {len(values)}"]
        return self._say(200, "\n".join(lines).encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.started += 1
            number = self.server.started
        times = {"queue": 0.02 + number / 1000, "prefill": 0.3 + number / 500, "decode": 0.0}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        time.sleep(times["queue"] + times["prefill"])
        for index in range(TOKENS):
            time.sleep(0.01 if index else 0)
            self._event({"choices": [{"index": 0, "delta": {"content": f"w{index} "}}]})
        times["decode"] = 0.01 * (TOKENS - 1)
        with self.server.lock:
            self.server.times[self.headers["X-Request-Id"]] = times
        usage = {"prompt_tokens": 1024, "completion_tokens": TOKENS}
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, doc):
        self.wfile.write(b"data: " + json.dumps({"object": "chat.completion.chunk", **doc}).encode() + b"\n\n")
        self.wfile.flush()

    def _say(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture(scope="module")
def server():
    """The server; its `times` are what each request took, by id."""
    made = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    made.times, made.lock, made.started, made.looks = {}, threading.Lock(), 0, 0
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture(scope="module")
def ended(server, start):
    """A run at one and at two streams."""
    url = f"http://127.0.0.1:{server.server_port}"
    run = start("-m", "loadkit.cli.main", "run", url, "--model", "m", "--concurrency", "1,2", *RUN)
    assert run.end() in (0, 3, 6), run.err
    return run


def test_a_request_alone_in_its_window_has_the_servers_own_times(ended, server):
    """The record's times are those of the very request, by its id; where a look was left out they are null. At two
    streams, and of the first request, before which nothing was seen, all are null."""
    told = {row["request_id"]: row for row in ended.records if row["server_prefill_ms"] is not None}
    for name, row in told.items():
        stated = [row[f"server_{part}_ms"] for part in NAMES]
        assert stated == pytest.approx([1e3 * server.times[name][part] for part in NAMES], abs=0.01)
    assert {row["concurrency"] for row in told.values()} == {1}
    assert ended.records[0]["server_queue_ms"] is None
    assert len([row for row in ended.records if row["concurrency"] == 2]) >= 6


def test_the_report_splits_ttft_where_it_is_known(ended):
    """Cell of one stream: medians of queue, prefill and the rest, which is small beside them; of two: none."""
    cells = {cell["cell"]: cell for cell in ended.summary["cells"]}
    rows = [row for row in ended.records if row["phase"] == "measure" and row["server_prefill_ms"] is not None]
    parts = cells["1024x1"]["ttft_parts"]
    assert parts["n"] == len(rows)
    middle = sorted(row["server_prefill_ms"] for row in rows)[(len(rows) - 1) // 2]
    assert parts["prefill_ms"] == middle
    rest = sorted(row["ttft_ms"] - row["server_queue_ms"] - row["server_prefill_ms"] for row in rows)
    assert parts["rest_ms"] == pytest.approx(rest[(len(rest) - 1) // 2])
    assert cells["1024x2"]["ttft_parts"] is None
    assert "Where TTFT went" in ended.out
    assert f"{parts['prefill_ms']:.0f}" in ended.out.partition("Where TTFT went")[2].partition("\n\n")[0]
