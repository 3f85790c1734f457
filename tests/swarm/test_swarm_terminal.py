"""On a terminal the progress is one line that renews itself."""

import contextlib
import fcntl
import os
import pty
import struct
import termios
import threading

import pytest

WIDTH = 60
PLAN = ("--tiers", "32", "--concurrency", "2", "--rounds", "1", "--max-tokens", "2", "--no-check")


class Screen:
    """The other end of a terminal of WIDTH columns, read as it is written."""

    def __init__(self):
        self.fd, self.end = pty.openpty()
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
        self.data = b""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        with contextlib.suppress(OSError):  # the end of a terminal
            while data := os.read(self.fd, 65536):
                self.data += data

    def close(self):
        os.close(self.end)
        self.reader.join(20)
        os.close(self.fd)


@pytest.fixture(scope="module")
def slow(make_sim):
    """A server with which a visit takes almost three seconds."""
    return make_sim("--ttft-ms", "1300", "--itl-ms", "4")


def test_the_line_renews_itself_on_a_terminal(slow, loadkit):
    """Written over once a second while a visit is open, never wider than the terminal, kept when the visit is done."""
    screen = Screen()
    run = loadkit(slow.url, *PLAN, stderr=screen.end)
    run.end()
    screen.close()
    lines = screen.data.decode().replace("\r\n", "\n").split("\n")
    (progress,) = [line for line in lines if "cell 32x2" in line]
    renewed = progress.split("\r")[1:]
    assert len(renewed) >= 3
    assert renewed[-1].startswith("[1/1] cell 32x2 rounds 1-1, TTFT p50 1,3")
    assert all(len(text) < WIDTH for text in renewed[:-1])
    assert all(text.startswith("[0/1] cell 32x2") for text in renewed[:-1])


def test_a_terminal_that_has_gone_changes_nothing(slow, loadkit):
    """Its window was closed in mid-run: the run goes on, and so does the telemetry that is sampled beside the line."""
    screen = Screen()
    run = loadkit(slow.url, *PLAN, stderr=screen.end)
    slow.reached(in_flight=2)
    screen.close()
    run.end()
    assert {visit["state"] for visit in run.manifest["visits"]} == {"done"}
    assert sum(row["cell"] == "32x2" for row in run.telemetry) >= 3  # after one second, after two, and at the end


@pytest.mark.parametrize("host", ["loadkit", "locust"])
def test_a_reader_that_has_gone_does_not_end_the_run(sim, loadkit, locust, locustfiles, host):
    """Nobody reads its output any more: the run goes on to its end, is complete, and exits as its summary says."""
    reader, writer = os.pipe()
    os.close(reader)
    plan = ("--tiers", "32", "--concurrency", "1", "--rounds", "2", "--max-tokens", "2", "--slo", "ttft=1ms")
    streams = {"stdout": writer, "stderr": writer}
    file = locustfiles / "ladder.py"
    run = loadkit(sim.url, *plan, **streams) if host == "loadkit" else locust(file, sim.url, *plan, **streams)
    os.close(writer)
    code = run.end()
    assert {visit["state"] for visit in run.manifest["visits"]} == {"done"}
    assert len(run.records) == 3
    assert code == run.summary["exit_code"] == (6 if run.saturated else 4)
