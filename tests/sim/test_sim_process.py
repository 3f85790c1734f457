"""The process: ready line, ends, wrong options."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def test_the_ready_line_states_the_facts(start_sim):
    """URL, model, counting rule and law are on the one line; the URL answers."""
    server = start_sim("--model", "m1", "--ttft-ms", "7", "--per-token-ms", "0.25", "--slots", "3", "--window", "100")
    ready = server.ready
    assert (ready["ready"], ready["model"], ready["window"], ready["slots"]) == (True, "m1", 100, 3)
    assert (ready["template_tokens"], ready["bos_tokens"], ready["bytes_per_token"]) == (8, 1, 1)
    assert (ready["law"]["ttft_ms"], ready["law"]["per_token_ms"]) == (7, 0.25)
    (model,) = server.get("/v1/models")["data"]
    assert (model["id"], model["max_model_len"]) == ("m1", 100)


def test_sigterm_ends_it_with_streams_under_way(start_sim, make_body):
    """A terminated server exits 0 although an answer would have taken for ever."""
    server = start_sim()
    wire = server.wire()
    wire.send("POST", "/v1/chat/completions", make_body(sim={"stall_after": 0}))
    server.until("running", 1)
    assert server.stop() == 0
    wire.close()


def test_stdin_guard_ends_it_at_eof(start_sim):
    """When the parent's end of stdin closes, the server exits 0."""
    server = start_sim("--stdin-guard", stdin=subprocess.PIPE)
    assert server.send("GET", "/health").status == 200
    server.process.stdin.close()
    assert server.process.wait(20) == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--ttft-ms", "-1"], "ttft_ms must be"),
        (["--ttft-ms", "fast"], "--ttft-ms"),
        (["--error-rate", "2"], "error_rate must be"),
        (["--time-scale", "0"], "--time-scale"),
        (["--truth-keep", "0"], "--truth-keep"),
        (["--role", "never"], "role must be one of"),
        (["--key-env", "SIM_TEST_NO_SUCH_KEY"], "SIM_TEST_NO_SUCH_KEY is not set"),
        (["--port", "99999"], "cannot listen on"),
    ],
)
def test_wrong_options_exit_2_with_one_clear_line(args, says):
    """The last line names what to change; no traceback, nothing on stdout."""
    env = {name: value for name, value in os.environ.items() if name != "SIM_TEST_NO_SUCH_KEY"}
    command = [sys.executable, "-m", "loadkit.sim", "serve", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_one_line(start_sim):
    """A second server on the same port says so and exits 2."""
    port = start_sim().address[1]
    command = [sys.executable, "-m", "loadkit.sim", "serve", "--port", str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"127.0.0.1:{port}" in done.stderr
