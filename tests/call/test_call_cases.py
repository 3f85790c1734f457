"""Every written-out stream and error answer, read by read over a real socket, gives its right record.

The server writes a read when the client has been told the one before (conftest), so a read's stamp must lie between
the server's own two stamps around it. No result depends on how fast anything is.
"""

from itertools import pairwise

import pytest

from loadkit.call.choose import TRANSPORTS
from loadkit.call.request import Call
from loadkit.call.retry import RetryPolicy
from loadkit.call.transport import End
from loadkit.plan.endpoint import Timeouts
from loadkit.protocol import replay
from loadkit.record.names import Outcome

# What a Caller adds to the record of an answer.
CALLERS = {"request_id", "endpoint", "model", "transport", "host", "path", "target", "cold", "timestamp", "attempts"}
CALLERS |= {"target_tokens", "input_chars", "input_bytes", "prompt_sha256", "max_tokens", "build_ms", "connect_ms"}
CALLERS |= {"sent_ms", "headers_ms", "ttft_net_ms", "ttft_first_attempt_ms", "prompt_tokens", "prompt_tokens_source"}
CALLERS |= {"prefill_tokens_per_s", "unit_price_ms", "error_message"}
# What two runs may not share: times, ports, and what follows from times.
VARIES = {"transport", "host", "timestamp", "attempts", "itl_ms", "flags", "decode_tokens_per_s"}
VARIES |= {"prefill_tokens_per_s"}


def pytest_generate_tests(metafunc):
    """A test that takes `case` runs once for every case, over both transports."""
    if "case" in metafunc.fixturenames:
        cases = metafunc.config.stash[CASES]
        metafunc.parametrize("case", cases, ids=[case["name"] for case in cases])
