"""The server over real sockets: its law, its truth, its order, its refusals."""

from __future__ import annotations

import itertools
import json
from hashlib import sha256

import pytest

from loadkit.sim.law import Dice

ONE_MS = 1_000_000
LOOSE_NS = 5_000_000_000
PATHS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}]},
    "/api/chat": {"messages": [{"role": "user", "content": "hi"}], "options": {"num_predict": 3}},
}


def test_the_law_is_kept(sim):
    """The plan is a + b*n after the last body byte, events are one ITL apart, and no write leaves before its time."""
    law = {"ttft_ms": 10, "per_token_ms": 0.5, "itl_ms": 3}
    for text in ("", "x" * 40, "é" * 20):
        reply = sim.chat(text, sim=law, max_tokens=6)
        record = sim.truth(reply.data[0]["id"])
        n = len(text.encode()) + 8
        assert record["prompt_tokens"] == n
        assert record["first_due_ns"] - record["received_ns"] == round((10 + 0.5 * n) * ONE_MS)
        late = [at - record["first_due_ns"] - 3 * ONE_MS * k for k, at in enumerate(record["event_ns"])]
        assert len(late) == 6
        assert min(late) >= 0
        assert max(late) < LOOSE_NS
        assert record["late_max_ms"] == pytest.approx(max(late) / ONE_MS)


def test_the_truth_is_what_a_client_receives(sim):
    """At every read a client has no more events than the truth had written, and in the end it has all of them."""
    reply = sim.chat(max_tokens=30, stream_options={"include_usage": True})
    record = sim.truth(reply.data[0]["id"])
    seen = b""
    for at, data in reply.reads:
        seen += data
        written = sum(stamp <= at for stamp in record["event_ns"])
        assert seen.count(b'"content":"tok "') <= written
    assert seen.count(b'"content":"tok "') == len(record["event_ns"]) == record["output_tokens"] == 30
    assert len(seen) == record["sent_bytes"]
    assert record["event_ns"][0] == record["first_write_ns"]
    assert reply.reads[-1][0] - record["last_write_ns"] < LOOSE_NS
    assert reply.text == "tok " * 30
    assert reply.data[-1]["usage"]["prompt_tokens"] == record["prompt_tokens"] == 13


def test_the_truth_is_found_by_the_clients_own_id(sim):
    """X-Request-Id is echoed and finds the record; two attempts with one id are both there, in order."""
    first, second = (sim.chat(headers={"X-Request-Id": "mine"}) for _ in range(2))
    assert first.headers["x-request-id"] == "mine"
    found = sim.get("/sim/truth?id=mine")["requests"]
    assert [record["id"] for record in found] == [first.data[0]["id"], second.data[0]["id"]]
    assert [record["id"] for record in found] == [first.headers["x-sim-id"], second.headers["x-sim-id"]]
    assert found[0]["prefix_sha256"] == sha256(b"hello").hexdigest()
    assert sim.get("/sim/truth?id=nobody")["requests"] == []


def test_the_truth_can_be_read_on_from_where_it_was(sim):
    """`next` is the `since` of the next look; the times can be left out."""
    start = sim.get("/sim/truth?events=0")
    assert all("event_ns" not in record for record in start["requests"])
    ids = [sim.chat().headers["x-sim-id"] for _ in range(40)]
    told = sim.get(f"/sim/truth?since={start['next']}")
    assert [record["id"] for record in told["requests"]] == ids
    assert told["next"] == start["next"] + 40


@pytest.mark.parametrize("path", PATHS)
def test_every_protocol_streams_and_answers_whole(sim, path):
    """Both forms of each path give three tokens and the same truth."""
    body = PATHS[path] | {"max_tokens": 3}
    for stream in (True, False):
        reply = sim.send("POST", path, json.dumps(body | {"stream": stream}).encode())
        record = sim.truth(reply.headers["x-sim-id"])
        assert (reply.status, reply.whole) == (200, True)
        assert reply.body.count(b"tok ") == 3
        assert (record["status"], record["end"], record["output_tokens"], record["stream"]) == (
            200, "complete", 3, stream,
        )  # fmt: skip
        assert len(record["event_ns"]) == (3 if stream else 0)
        assert record["first_write_ns"] >= record["first_due_ns"]


@pytest.mark.parametrize(("role", "early", "late"), [("at-once", 1, 1), ("with-first", 0, 1), ("none", 0, 0)])
def test_the_role_chunk_comes_when_it_should(sim, role, early, late):
    """At once: with the head, so also in an answer that fails before its first token; with the first: only when that
    token comes; none: not at all."""
    failed = sim.chat(sim={"role": role, "inband_error_after": 0})
    assert failed.body.count(b'"role"') == early
    reply = sim.chat(sim={"role": role})
    assert (reply.body.count(b'"role"'), reply.text) == (late, "tok " * 4)
    record = sim.truth(reply.headers["x-sim-id"])
    assert record["head_ns"] < record["first_write_ns"]


def test_events_are_grouped_as_asked(sim):
    """Three tokens per event and two events per write: ten tokens are four events in two writes."""
    reply = sim.chat(sim={"tokens_per_event": 3, "events_per_write": 2, "itl_ms": 20}, max_tokens=10)
    record = sim.truth(reply.headers["x-sim-id"])
    texts = [item["choices"][0]["delta"].get("content") for item in reply.data if item["choices"]]
    assert [len(text) // 4 for text in texts if text] == [3, 3, 3, 1]
    stamps = record["event_ns"]
    assert stamps[0] == stamps[1] <= stamps[2] == stamps[3]
    assert record["output_tokens"] == 10


def test_overdue_events_share_a_write_and_the_truth_says_so(sim):
    """With no time between events all leave at once: one write, and all but the first counted as coalesced."""
    record = sim.truth(sim.chat(sim={"itl_ms": 0}, max_tokens=50).headers["x-sim-id"])
    assert (record["writes"], record["coalesced"], len(set(record["event_ns"]))) == (1, 49, 1)


def test_lock_step_is_one_grid_for_all(sim):
    """Requests that came at different moments are due on the same grid."""
    records = [sim.truth(sim.chat(sim={"lock_step": True, "itl_ms": 20}).headers["x-sim-id"]) for _ in range(3)]
    assert [record["first_due_ns"] % (20 * ONE_MS) for record in records] == [0, 0, 0]


def test_laws_differ_per_request_and_header_beats_body(sim):
    """X-Sim and the body field shape one request only; where both speak the header counts."""
    headers = {"X-Sim": json.dumps({"ttft_ms": 30})}
    asked = [
        sim.chat(),
        sim.chat(sim={"ttft_ms": 20}),
        sim.chat(headers=headers),
        sim.chat(sim={"ttft_ms": 20, "itl_ms": 2}, headers=headers),
        sim.chat(),
    ]
    records = [sim.truth(reply.headers["x-sim-id"]) for reply in asked]
    assert [(record["first_due_ns"] - record["received_ns"]) // ONE_MS for record in records] == [5, 20, 30, 30, 5]


def test_cached_tokens_are_reported_and_cost_nothing(sim):
    """The price is paid for the other tokens only."""
    law = {"ttft_ms": 0, "per_token_ms": 1, "cached_tokens": 10}
    reply = sim.chat("x" * 12, sim=law, stream_options={"include_usage": True})
    record = sim.truth(reply.headers["x-sim-id"])
    assert reply.data[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 10}
    assert (record["first_due_ns"] - record["received_ns"], record["cached_tokens"]) == (10 * ONE_MS, 10)


def test_the_model_ends_by_itself_unless_told_not_to(sim):
    """eos_after gives a short answer with finish_reason stop; ignore_eos gives max_tokens and length."""
    short = sim.chat(sim={"eos_after": 2})
    full = sim.chat(sim={"eos_after": 2}, ignore_eos=True)
    reasons = [reply.data[-1]["choices"][0]["finish_reason"] for reply in (short, full)]
    assert [(reply.text, reason) for reply, reason in zip((short, full), reasons, strict=True)] == [
        ("tok tok ", "stop"),
        ("tok tok tok tok ", "length"),
    ]


@pytest.mark.parametrize("cut", [0, 2])
def test_a_cut_is_a_clean_close_in_mid_body(sim, cut):
    """The client reads n events and then the end of the stream without the last chunk."""
    reply = sim.chat(sim={"cut_after": cut})
    assert (reply.whole, reply.body.count(b"tok ")) == (False, cut)
    record = sim.truth(reply.headers["x-sim-id"])
    assert (record["end"], record["output_tokens"], len(record["event_ns"])) == ("cut", cut, cut)


def test_a_reset_is_a_reset(sim, make_body):
    """After n events the client's read fails with ECONNRESET."""
    wire = sim.wire()
    wire.send("POST", "/v1/chat/completions", make_body(sim={"reset_after": 1}), {"X-Request-Id": "reset"})
    with pytest.raises(ConnectionResetError):
        wire.answer()
    wire.close()
    assert sim.truth("reset")["end"] == "reset"


def test_an_inband_error_stands_in_a_200(sim):
    """After n events an error document comes instead of the rest, and the body ends properly."""
    reply = sim.chat(sim={"inband_error_after": 1})
    assert (reply.status, reply.whole, reply.body.count(b"tok ")) == (200, True, 1)
    assert "error" in reply.data[-1]
    assert sim.truth(reply.headers["x-sim-id"])["end"] == "inband_error"


def test_a_stall_with_a_length_moves_what_follows(sim):
    """The events after the stall come that much later; none is lost."""
    record = sim.truth(sim.chat(sim={"stall_after": 2, "stall_ms": 60, "itl_ms": 1}).headers["x-sim-id"])
    planned = [record["first_due_ns"] + ms * ONE_MS for ms in (0, 1, 62, 63)]
    assert [at >= due for at, due in zip(record["event_ns"], planned, strict=True)] == [True] * 4
    assert record["end"] == "complete"


def test_an_endless_stall_lasts_until_the_client_leaves(sim, make_body):
    """The server sends n events and is silent; when the client has gone the record says stall."""
    wire = sim.wire()
    wire.send("POST", "/v1/chat/completions", make_body(sim={"stall_after": 1}), {"X-Request-Id": "stall"})
    raw = b""
    while raw.count(b"tok ") < 1:
        raw += wire.socket.recv(65536)
    assert sim.get("/sim/truth?id=stall")["requests"] == []
    wire.close()
    record = sim.truth("stall")
    assert (record["end"], record["output_tokens"]) == ("stall", 1)


def test_whole_answers_can_be_cut_too(sim):
    """A cut answer that is not streamed is shorter than its Content-Length says; an in-band error becomes a 500."""
    cut = sim.chat(sim={"cut_after": 1}, stream=False)
    assert not cut.whole
    assert 0 < len(cut.body) < int(cut.headers["content-length"])
    assert sim.truth(cut.headers["x-sim-id"])["end"] == "cut"
    broken = sim.chat(sim={"inband_error_after": 1}, stream=False)
    assert (broken.status, "error" in broken.json) == (500, True)


def test_slots_serve_in_order_of_receipt(start_sim, make_body):
    """One slot: each request starts when the one before has ended, and its TTFT runs from there; who leaves the queue
    costs nobody a place."""
    server = start_sim("--slots", "1", "--ttft-ms", "20", "--itl-ms", "5")
    wires = []
    for number in range(5):
        wires.append(server.wire())
        # The first holds the slot until its client leaves, so that the others surely wait.
        body = make_body(sim=None if number else {"stall_after": 0})
        wires[-1].send("POST", "/v1/chat/completions", body, {"X-Request-Id": f"r{number}"})
        server.until("received", number + 1)
    wires[3].close()
    server.until("queued", 3)
    wires[0].close()
    assert [wires[number].answer().whole for number in (1, 2, 4)] == [True] * 3
    records = [server.truth(f"r{number}") for number in (1, 2, 4)]
    for before, record in itertools.pairwise(records):
        assert before["last_write_ns"] <= record["granted_ns"]
        assert record["first_due_ns"] - record["granted_ns"] == 20 * ONE_MS
    gone = server.truth("r3")
    assert (gone["end"], gone["status"], gone["granted_ns"]) == ("client_gone", None, None)
    stats = server.get("/sim/stats")
    assert (stats["running_max"], stats["in_flight_max"], stats["in_flight"]) == (1, 5, 0)
    assert stats["by_status"] == {"200": 4, "none": 1}
    for wire in wires:
        wire.close()


def test_a_full_queue_is_a_429_with_retry_after(start_sim, make_body):
    """One slot and one place to wait: the third request is told when to come back, the second is still answered."""
    server = start_sim("--slots", "1", "--queue", "1", "--ttft-ms", "1", "--retry-after", "2.5")
    holder, waiter = server.wire(), server.wire()
    holder.send("POST", "/v1/chat/completions", make_body(sim={"stall_after": 0}))
    server.until("running", 1)
    waiter.send("POST", "/v1/chat/completions", make_body())
    server.until("queued", 1)
    refused = server.chat()
    assert (refused.status, refused.headers["retry-after"]) == (429, "2.5")
    assert refused.json["error"]["code"] == "rate_limit_exceeded"
    assert server.truth(refused.headers["x-sim-id"])["end"] == "error"
    holder.close()
    assert waiter.answer().whole
    waiter.close()


def test_errors_by_rate_are_decided_by_the_seed(start_sim):
    """The dice of the seed say which requests fail; after a reset the same ones do."""
    server = start_sim("--error-rate", "0.5", "--error-status", "429", "--seed", "3", "--ttft-ms", "0", "--itl-ms", "0")
    dice = Dice(3)
    expected = [429 if dice.roll()[0] < 0.5 else 200 for _ in range(30)]
    for _ in range(2):
        assert [server.chat().status for _ in range(30)] == expected
        stats = server.get("/sim/stats")
        assert stats["by_status"] == {"200": expected.count(200), "429": expected.count(429)}
        server.send("POST", "/sim/reset")
    assert server.chat(sim={"error_rate": 1, "error_status": 500}).status == 500
    forced = server.chat(sim={"error_rate": 1, "error_status": 503, "retry_after": ""})
    assert (forced.status, "retry-after" in forced.headers) == (503, False)


def test_jitter_is_the_seeds(start_sim):
    """TTFT under jitter is the law times 1 + F*u with the u of the seed's dice."""
    server = start_sim("--jitter", "0.5", "--seed", "4", "--ttft-ms", "10", "--itl-ms", "0", "--time-scale", "0.5")
    dice = Dice(4)
    for _ in range(5):
        record = server.truth(server.chat().headers["x-sim-id"])
        due = record["first_due_ns"] - record["received_ns"]
        assert due == round(10 * (1 + 0.5 * dice.roll()[1]) * 0.5 * ONE_MS)


def test_without_the_key_it_is_a_401(start_sim):
    """Bearer and x-api-key open the door; nothing and anything else do not, and the key is nowhere in the log."""
    server = start_sim("--key-env", "SIM_TEST_KEY", "--ttft-ms", "0", env={"SIM_TEST_KEY": "k-1234567890"})
    assert [
        server.chat(headers=headers).status
        for headers in (
            None,
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Bearer k-1234567890"},
            {"x-api-key": "k-1234567890"},
        )
    ] == [401, 401, 200, 200]
    assert server.send("GET", "/v1/models").status == 401
    assert server.send("GET", "/health").status == 200
    assert "k-1234567890" not in server.log.read_text() + json.dumps(server.ready)


def test_the_window_is_stated_and_kept(sim):
    """Prompt + max_tokens may fill the window; one more is a context_length_exceeded that names the numbers."""
    fits = sim.chat("x" * 12, sim={"window": 24})
    over = sim.chat("x" * 13, sim={"window": 24})
    assert (fits.status, over.status) == (200, 400)
    assert over.json["error"]["code"] == "context_length_exceeded"
    assert "maximum context length is 24 tokens" in over.json["error"]["message"]
    assert "25 tokens (21 in the messages, 4 in the completion)" in over.json["error"]["message"]


def test_giant_prompts_are_counted_exactly(start_sim):
    """Four million bytes with escapes and multi-byte text, four bytes per token: exact count, distinct first blocks."""
    server = start_sim("--bytes-per-token", "4", "--ttft-ms", "0", "--itl-ms", "0", "--window", "2000000")
    for number in range(2):
        text = f'{number} "é" 中文\n\\' + "word 中 " * 400_000
        reply = server.chat(text, stream_options={"include_usage": True})
        record = server.truth(reply.headers["x-sim-id"])
        assert record["prompt_tokens"] == 8 + -(-len(text.encode()) // 4)
        assert reply.data[-1]["usage"]["prompt_tokens"] == record["prompt_tokens"]
        assert record["prefix_sha256"] == sha256(text.encode()[:64]).hexdigest()
    assert server.get("/sim/stats")["distinct_prefixes"] == 2
    assert server.get("/v1/models")["data"][0]["max_model_len"] == 2_000_000
    counted = server.send("POST", "/tokenize", json.dumps({"prompt": "x" * 4_000_001}).encode()).json
    assert counted == {"count": 1_000_002, "max_model_len": 2_000_000}


def test_truth_is_bounded_over_the_wire(start_sim):
    """--truth-keep 5 keeps the last five."""
    server = start_sim("--truth-keep", "5", "--ttft-ms", "0", "--itl-ms", "0")
    ids = [server.chat().headers["x-sim-id"] for _ in range(12)]
    assert [record["id"] for record in server.get("/sim/truth")["requests"]] == ids[-5:]


def test_requests_follow_each_other_on_one_connection(sim, make_body):
    """Keep-alive, and two requests sent in one go are answered one after the other."""
    wire = sim.wire()
    wire.send("POST", "/v1/chat/completions", make_body())
    assert wire.answer().whole
    raw = make_body(stream=False)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(raw)}\r\n\r\n".encode()
    wire.socket.sendall((head + raw) * 2)
    seen = b""
    while seen.count(b"tok tok tok tok") < 2:
        seen += wire.socket.recv(65536)
    wire.send("GET", "/health")
    assert wire.answer().json == {"status": "ok"}
    wire.close()


def test_a_body_that_trickles_is_timed_from_its_last_byte(sim, make_body):
    """The clock of the law starts when the body is complete, not with the head; 100-continue is answered."""
    raw = make_body()
    wire = sim.wire()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(raw)}\r\nExpect: 100-continue\r\n"
    wire.socket.sendall(head.encode() + b"X-Request-Id: slow\r\n\r\n")
    assert wire.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    for at in range(0, len(raw) - 1, 40):
        wire.socket.sendall(raw[at : min(at + 40, len(raw) - 1)])
    before = sim.get("/sim/truth?id=slow")["now_ns"]
    wire.socket.sendall(raw[-1:])
    assert wire.answer().whole
    assert sim.truth("slow")["received_ns"] > before
    wire.close()


def test_a_client_that_does_not_read_blocks_nobody(sim, make_body):
    """A long answer to a client that reads nothing waits in the server's memory, the truth says so, others go on."""
    deaf = sim.wire()
    deaf.send(
        "POST", "/v1/chat/completions", make_body(sim={"itl_ms": 0}, max_tokens=100_000), {"X-Request-Id": "deaf"}
    )
    record = sim.truth("deaf")
    assert sim.chat().whole
    assert record["output_tokens"] == 100_000
    assert record["blocked_writes"] > 0
    deaf.close()


def test_a_client_that_never_reads_is_dropped_at_the_limit(sim, make_body):
    """Unsent bytes are bounded: an answer far beyond the limit ends as client_gone and its slot is free."""
    deaf = sim.wire()
    deaf.send(
        "POST", "/v1/chat/completions", make_body(sim={"itl_ms": 0}, max_tokens=900_000), {"X-Request-Id": "lost"}
    )
    record = sim.truth("lost")
    assert record["end"] == "client_gone"
    assert record["sent_bytes"] < 100_000_000
    deaf.close()


GOOD = b'{"messages":[{"role":"user","content":"x"}]}'
LONG = b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\n\r\n", 400),
        (b"GET /health HTTP/1.0\r\n\r\n", 505),
        (b"GET /health HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nA: b\nC: d\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST /x HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (LONG, 431),
        (b"GET //[ HTTP/1.1\r\n\r\n", 400),
        (b"GET /nowhere HTTP/1.1\r\n\r\n", 404),
        (b"GET /v1/chat/completions HTTP/1.1\r\n\r\n", 405),
        (b"POST /health HTTP/1.1\r\n\r\n", 405),
        (b"GET /sim/truth?since=x HTTP/1.1\r\n\r\n", 400),
    ],
)
def test_malformed_http_gets_its_status(sim, raw, status):
    """Whatever the bytes, the answer is a status and the server goes on."""
    wire = sim.wire()
    wire.socket.sendall(raw)
    assert wire.answer().status == status
    wire.close()
    assert sim.send("GET", "/health").status == 200


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", {}),
        (b"{", {}),
        (b"[]", {}),
        (b"\xff\xfe", {}),
        (b"[" * 100_000, {}),
        (b'{"messages":[]}', {}),
        (GOOD.replace(b'"x"', b"1"), {}),
        (GOOD, {"X-Sim": "{"}),
        (GOOD, {"X-Sim": "[]"}),
        (GOOD, {"X-Sim": '{"nope":1}'}),
        (GOOD, {"X-Sim": '{"ttft_ms":NaN}'}),
        (GOOD, {"X-Sim": '{"ttft_ms":1e999}'}),
        (GOOD[:-1] + b',"sim":{"itl_ms":-1}}', {}),
        (GOOD[:-1] + b',"max_tokens":99999999999}', {}),
    ],
)
def test_malformed_requests_get_400_with_a_reason(sim, body, headers):
    """The error is JSON with a message; the connection lives on."""
    wire = sim.wire()
    wire.send("POST", "/v1/chat/completions", body, headers)
    reply = wire.answer()
    assert (reply.status, len(reply.json["error"]["message"]) > 5) == (400, True)
    wire.send("GET", "/health")
    assert wire.answer().status == 200
    wire.close()


def test_another_model_is_not_found(sim):
    """The one model is served; another name is a 404 that says so."""
    reply = sim.chat(model="other")
    assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found")
    renamed = sim.chat(sim={"response_model": "alias"})
    assert {item["model"] for item in renamed.data} == {"alias"}
