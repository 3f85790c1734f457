"""Targets in their own process: they come up with a ready line, keep out of the client's way, and never stay behind."""

import json
import os
import select
import signal
import subprocess
import sys
from itertools import count

import httpx
import pytest

from loadkit.plan.errors import TargetError
from loadkit.record.names import Outcome
from loadkit.target import process

HANG_S = 20.0
READY = '{"ready": true, "url": "http://127.0.0.1:1/v1", "model": "m"}'
PARENT = """
import os, signal, sys
from loadkit.target import process
running = process.start("loadkit.sim", [])
try:
    print(running.process.pid, running.url, flush=True)
    while True:
        signal.pause()
except KeyboardInterrupt:
    import httpx
    answer = httpx.get(running.url.removesuffix("/v1") + "/health", trust_env=False)
    print(answer.status_code, running.alive(), flush=True)
    running.stop()
    print(running.process.returncode, flush=True)
"""


@pytest.fixture
def start():
    """Starts targets and stops what is left of them."""
    started = []

    def begin(module, *arguments, **options):
        started.append(process.start(module, list(arguments), **options))
        return started[-1]

    yield begin
    for running in started:
        running.stop()


@pytest.fixture
def parent():
    """A client in a session of its own with a started simulator; killed at the end, whatever came of it."""
    client = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    yield client
    client.kill()
    client.wait()
    client.stdout.close()


def ended(pid):
    """Wait for the end of a process that need not be our child; False when it stays."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    readable, _, _ = select.select([descriptor], [], [], HANG_S)
    os.close(descriptor)
    return bool(readable)


def test_the_ready_line_says_where_and_what(start):
    """URL and facts are those of the ready line, and it answers there at once."""
    running = start("loadkit.sim", "--model", "known", "--window", "4096")
    assert (running.facts["model"], running.facts["window"]) == ("known", 4096)
    answer = httpx.get(f"{running.url}/models", trust_env=False)
    assert answer.json()["data"][0]["id"] == "known"
    assert running.facts["pid"] == running.process.pid


def test_it_runs_at_nice_19_in_the_idle_class(start):
    """In force for the process and each of its threads, as the system sees them; and not where it must not be."""
    running = start("loadkit.sim")
    threads = [int(name) for name in os.listdir(f"/proc/{running.process.pid}/task")]
    assert len(threads) > 1
    for thread in threads:
        assert os.getpriority(os.PRIO_PROCESS, thread) == 19
        assert os.sched_getscheduler(thread) == os.SCHED_IDLE
    beside = start("loadkit.sim", background=False)
    assert os.getpriority(os.PRIO_PROCESS, beside.process.pid) == os.getpriority(os.PRIO_PROCESS, 0)
    assert os.sched_getscheduler(beside.process.pid) == os.sched_getscheduler(0)


def test_it_knows_no_keys(start, module, monkeypatch):
    """Variables named like keys do not reach the process; its working folder is not imported from."""
    text = (
        "import json, os, sys\n"
        "names = [name for name in os.environ if name.startswith('LAB_')]\n"
        "print(json.dumps({'url': 'u', 'model': 'm', 'names': names, 'safe': sys.flags.safe_path}), flush=True)\n"
        "sys.stdin.read()\n"
    )
    monkeypatch.setenv("LAB_API_KEY", "k3y")
    monkeypatch.setenv("LAB_PLACE", "here")
    running = start(module("keyless", text))
    assert (running.facts["names"], running.facts["safe"]) == (["LAB_PLACE"], True)


def test_stop_ends_it_and_may_be_called_again(start):
    """TERM is enough for ours: exit code 0, our ends of the pipes closed; a second call changes nothing."""
    running = start("loadkit.sim")
    assert running.alive()
    for _ in range(2):
        running.stop()
        assert running.process.returncode == 0
        assert not running.alive()
        assert running.process.stdin.closed
        assert running.process.stdout.closed


def test_one_that_does_not_listen_to_term_is_killed(start, module, monkeypatch):
    """After STOP_S seconds the process is ended by force."""
    monkeypatch.setattr(process, "STOP_S", 0.05)
    code = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('{READY}', flush=True)\nsignal.pause()"
    running = start(module("deaf_target", code))
    running.stop()
    assert running.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import sys; print('warming up', file=sys.stderr); sys.exit('no such file: weights.gguf')", "weights.gguf"),
        ("raise ValueError('two\\x1b[31m colours')", r"ValueError: two \[31m colours"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("print('hello')", "no ready line but 'hello'"),
        ("import signal; print('[1]', flush=True); signal.pause()", r"no ready line but '\[1\]'"),
        ("import signal; print('{\"url\": 1}', flush=True); signal.pause()", "no ready line but '{\"url\": 1}'"),
    ],
    ids=["message", "traceback", "silent", "greeting", "list", "facts"],
)
def test_one_that_does_not_start_is_one_line(module, code, says):
    """The last line of its standard error, else how it ended; the process is gone."""
    name = module("broken_target", code)
    with pytest.raises(TargetError, match=says) as caught:
        process.start(name, [])
    assert caught.value.message.startswith("broken_target did not start: ")
    assert caught.value.message.isprintable()
    assert caught.value.outcome is Outcome.CONNECT_ERROR


def test_one_that_never_gets_ready_is_given_up(module):
    """By the clock: after timeout_s without a ready line it is killed, not waited for."""
    name = module("slow_target", "import signal; signal.pause()")
    with pytest.raises(TargetError, match="no ready line within 30 s"):
        process.start(name, [], timeout_s=30.0, now=count(step=10.0).__next__)


def test_a_ready_line_in_pieces_with_more_behind_it(start, module):
    """What comes behind the first line does not hide it, and half a line is waited for."""
    half = len(READY) // 2
    code = f"""
import signal, sys
for piece in ({READY[:half]!r}, {READY[half:]!r} + "\\nmore"):
    sys.stdout.write(piece)
    sys.stdout.flush()
signal.pause()
"""
    assert start(module("chatty_target", code)).facts == json.loads(READY)


def test_it_is_told_to_guard_its_stdin(start, module):
    """The command is `python -m MODULE serve ARGUMENTS --stdin-guard`."""
    code = f"import json, signal, sys\nprint(json.dumps({READY.replace('true', 'True')} | {{'argv': sys.argv[1:]}}),"
    running = start(module("echo_target", f"{code} flush=True)\nsignal.pause()"), "--port", "0")
    assert running.facts["argv"] == ["serve", "--port", "0", "--stdin-guard"]


@pytest.mark.parametrize("name", ["loadkit.sim", "loadkit.engine"])
def test_a_killed_client_leaves_nothing_behind(name):
    """SIGKILL of the client: nothing can clean up, and the target ends all the same."""
    code = PARENT.replace('"loadkit.sim"', repr(name))
    client = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    pid = int(client.stdout.readline().split()[0])
    client.kill()
    client.wait()
    client.stdout.close()
    assert ended(pid)


def test_ctrl_c_in_the_terminal_does_not_reach_it(parent):
    """Ctrl-C signals the whole foreground group: the client hears it, the target lives on until the client stops it."""
    pid = int(parent.stdout.readline().split()[0])
    assert os.getpgid(pid) != os.getpgid(parent.pid)
    assert os.getsid(pid) == os.getsid(parent.pid)
    os.killpg(os.getpgid(parent.pid), signal.SIGINT)
    assert parent.stdout.readline().split() == [b"200", b"True"]
    assert parent.stdout.readline() == b"0\n"
    assert ended(pid)


def test_ctrl_c_while_it_starts_ends_it(module):
    """A client that is interrupted while it waits for the ready line does not leave the target."""
    name = module("sleepy_target", "import os, signal, sys; print(os.getpid(), file=sys.stderr); signal.pause()")
    ticks = count()

    def now():
        if next(ticks) > 2:
            raise KeyboardInterrupt
        return 0.0

    before = set(_children())
    with pytest.raises(KeyboardInterrupt):
        process.start(name, [], now=now)
    assert set(_children()) <= before


def _children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return file.read().split()
