"""A board is reached the same way here and over ssh, and nothing but plain paths and bare names is obeyed."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.board.access import Result, connect
from loadkit.board.errors import BoardError, BoardLost
from loadkit.board.ssh import checked_host, ssh_argv
from loadkit.board.talk import Talk
from loadkit.plan.errors import ConfigError

ZONE = "sys/class/thermal/thermal_zone0"


@pytest.fixture(params=["local", "ssh"])
def access(request, rk3588):
    """The fake board over either channel."""
    if request.param == "local":
        with connect("local", str(rk3588.root)) as reached:
            yield reached
        return
    sshd = request.getfixturevalue("sshd")
    with connect(sshd.host, str(rk3588.root), sshd.config) as reached:
        yield reached


def test_both_channels_answer_alike(access, rk3588):
    """One contract: files one by one and at once, missing ones, patterns in the order of their numbers, programs."""
    rk3588.zone(10, "extra-thermal", 50)
    assert access.read(f"{ZONE}/type") == "soc-thermal"
    assert access.read_many([f"{ZONE}/temp", "sys/none"]) == {f"{ZONE}/temp": "45000", "sys/none": None}
    assert access.read("proc/../../outside") is None
    found = access.list("sys/class/thermal/thermal_zone*/type")
    assert (found[0], found[-1], len(found)) == (f"{ZONE}/type", "sys/class/thermal/thermal_zone10/type", 8)
    assert access.read("sys/firmware/devicetree/base/compatible") == "radxa,rock-5b\0rockchip,rk3588"
    rk3588.program("echoes", 'printf "%s|" "$LC_ALL" "$@"; echo oops >&2; exit 3')
    words = ["a b", "$(touch x)", "';'", "é"]
    assert access.run(["echoes", *words]) == Result(3, "C|a b|$(touch x)|';'|é|", "oops\n")
    for name in ("nothing", "../usr/bin/echoes", "/bin/sh", "-c", ""):
        assert access.run([name]).code is None


def test_a_program_that_goes_on_is_heard_and_ended(access, rk3588):
    """What perf stat -I needs: output so far, its end, and no process left behind."""
    rk3588.program("ticks", "echo $$; exec sleep 600")
    number = access.start(["ticks"])
    text = ""
    while not text:
        told = access.output(number)
        text += told.out
    assert told.code is None
    access.stop(number)
    assert subprocess.run(["kill", "-0", text.strip()], check=False, capture_output=True).returncode != 0
    with pytest.raises(BoardError, match="is not installed on the board"):
        access.start(["nothing"])
    assert access.read(f"{ZONE}/type") == "soc-thermal"  # an error is not the end


def test_what_was_started_ends_with_the_connection(sshd, rk3588):
    """A client that goes leaves no perf behind on the board."""
    rk3588.program("ticks", f"echo $$ > {rk3588.root}/run/pid; exec sleep 600")
    with connect(sshd.host, str(rk3588.root), sshd.config) as access:
        number = access.start(["ticks"])
        while not (pid := rk3588.get("run/pid")):
            access.output(number)
    assert subprocess.run(["kill", "-0", pid], check=False, capture_output=True).returncode != 0


def test_a_connection_that_ends_is_one_line(sshd, rk3588):
    """No traceback, and the exit code of a target that is gone."""
    rk3588.program("suicide", "kill -9 $PPID")
    access = connect(sshd.host, str(rk3588.root), sshd.config)
    with pytest.raises(BoardLost, match=r"^ssh://\S+: .*") as lost:
        access.run(["suicide"])
    assert "\n" not in str(lost.value)
    access.close()


def test_a_host_that_lets_nobody_in_is_said_with_ssh_s_words(sshd, rk3588, tmp_path):
    """Never a password prompt: ssh runs in batch mode, and its last line is the reason."""
    config = tmp_path / "other"
    config.write_text(sshd.config.read_text().replace("user_key", "host_key"))
    with pytest.raises(BoardLost, match="Permission denied"):
        connect(sshd.host, str(rk3588.root), config)
    unknown = tmp_path / "unknown"
    unknown.write_text(sshd.config.read_text().replace("known_hosts", "none"))
    with pytest.raises(BoardLost, match="Host key verification failed"):
        connect(sshd.host, str(rk3588.root), unknown)


@pytest.mark.parametrize(
    "host", ["-oProxyCommand=x", "a b", "a;b", "$(x)", "a'b", "", "a\nb", "ssh://-x", "a/b", "`x`", "@", "x" * 300]
)
def test_what_is_no_host_never_reaches_ssh(host):
    """Options, blanks and a shell's signs are refused with what a host looks like."""
    with pytest.raises(ConfigError, match="is not a host"):
        connect(host)


@given(st.text(max_size=30))
def test_whatever_the_host_the_command_on_the_board_is_the_same(host):
    """Nothing of a host's name is interpolated: it is one argument after `--`, and the board's command is constant."""
    try:
        argv = ssh_argv(checked_host(host), None)
    except ConfigError:
        return
    assert argv[-3:-1] == ["--", host]
    assert not host.startswith("-")
    assert argv[-1] == ssh_argv("x", None)[-1]


def test_a_root_is_data_on_the_board_too(sshd, rk3588, tmp_path):
    """A root folder with a shell's signs in its name is opened as it is, and nothing is run."""
    root = tmp_path / "$(touch planted) '; touch planted; '"
    (tmp_path / "board").rename(root)
    with connect(sshd.host, str(root), sshd.config) as access:
        assert access.read(f"{ZONE}/type") == "soc-thermal"
    with pytest.raises(ConfigError, match="must be an absolute path"):
        connect(sshd.host, "board", sshd.config)
    with pytest.raises(ConfigError, match="no such folder"):
        connect("local", str(tmp_path / "none"))


def test_under_gevent_a_slow_board_holds_up_nobody_else(sshd, rk3588):
    """In a process that gevent has patched, waiting for ssh lets other greenlets run, and a lock goes on beating."""
    rk3588.program("slow", "sleep 0.3")
    code = (
        "from gevent import monkey; monkey.patch_all()\n"
        "import gevent, sys\n"
        "from pathlib import Path\n"
        "from loadkit.board.access import connect\n"
        "ticks = []\n"
        "def tick():\n"
        "    while True: ticks.append(1); gevent.sleep(0.01)\n"
        "access = connect(sys.argv[1], sys.argv[2], Path(sys.argv[3]))\n"
        "other = gevent.spawn(tick)\n"
        "assert access.run(['slow']).code == 0\n"
        "before = len(ticks); assert before > 3, before\n"
        "assert access.read('proc/loadavg'); access.close()\n"
        "from loadkit.board.lock import Lock, Place\n"
        "asked = {'name': 'ddr', 'kind': 'devfreq', 'path': 'sys/class/devfreq/dmc', 'value': 1068000000}\n"
        "held = Lock.take(Place('local', sys.argv[2]), [asked], ttl_s=2.0)\n"
        "gevent.sleep(2.5); assert held.ended is None, held.ended\n"
        "assert held.release().restored\n"
    )
    words = [sys.executable, "-c", code, sshd.host, str(rk3588.root), str(sshd.config)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_board_without_python_is_told_so():
    """Readers and guards are Python: where there is none the reason is that, not a shell's words."""
    argv = ["/usr/bin/env", "PATH=/nowhere", "/bin/sh", "-c", "exec python3 -I"]
    talk = Talk(argv, b"", "board")
    with pytest.raises(BoardLost, match=r"^board: has no python3, which reads and guards the board$"):
        talk.receive(10)
    talk.close()
