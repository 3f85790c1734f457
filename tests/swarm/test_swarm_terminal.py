"""On a terminal the progress is one line that renews itself."""

import contextlib
import fcntl
import os
import pty
import select
import struct
import termios
import threading

import pytest

WIDTH = 60
PLAN = ("--tiers", "32", "--rounds", "1", "--max-tokens", "2", "--no-check")


class Screen:
    """The other end of a terminal of WIDTH columns, read as it is written."""

    def __init__(self):
        self.fd, self.end = pty.openpty()
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
        self.data = b""
        self.closed = False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        with contextlib.suppress(OSError):  # how a terminal tells that the last writer has gone
            while not self.closed:
                if select.select([self.fd], [], [], 0.05)[0]:
                    data = os.read(self.fd, 65536)
                    self.data += data

    def written(self):
        """All that was written, once the last writer has gone."""
        os.close(self.end)
        self.reader.join(20)
        os.close(self.fd)
        return self.data.decode().replace("\r\n", "\n")

    def hang_up(self):
        """Close the terminal under the writer's hands."""
        self.closed = True
        self.reader.join(20)
        os.close(self.end)
        os.close(self.fd)


@pytest.fixture(scope="module")
def runs(make_sim, sim, loadkit, locust, locustfiles):
    """Every run of this module, under way at once. With the slow servers a visit takes almost three seconds."""
    slow = {name: make_sim("--ttft-ms", "1300", "--itl-ms", "4") for name in ("renewed", "hung up")}
    runs = {}
    for name, server in slow.items():
        screen = Screen()
        runs[name] = loadkit(server.url, *PLAN, "--concurrency", "2", stderr=screen.end)
        runs[name].server, runs[name].screen = server, screen
    reader, writer = os.pipe()
    os.close(reader)
    unread = {"stdout": writer, "stderr": writer}
    plan = (*PLAN, "--concurrency", "1", "--slo", "ttft=1ms")
    runs["loadkit"] = loadkit(sim.url, *plan, **unread)
    runs["locust"] = locust(locustfiles / "ladder.py", sim.url, *plan, **unread)
    os.close(writer)
    return runs


def test_the_line_renews_itself_on_a_terminal(runs):
    """Written over once a second while a visit is open, never wider than the terminal, kept when the visit is done."""
    run = runs["renewed"]
    run.end()
    lines = run.screen.written().split("\n")
    (progress,) = [line for line in lines if "cell 32x2" in line]
    renewed = [text.removeprefix("\x1b[J") for text in progress.split("\r")]
    assert len(renewed) >= 3
    assert renewed[-1].startswith("[1/1] cell 32x2 rounds 1-1, TTFT p50 1,3")
    assert all(len(text) < WIDTH for text in renewed[:-1])
    assert all(text.startswith("[0/1] cell 32x2") for text in renewed[:-1])


def test_a_terminal_that_has_gone_changes_nothing(runs):
    """Its window was closed in mid-run: the run goes on, and so does the telemetry that is sampled beside the line."""
    run = runs["hung up"]
    run.server.reached(received=2)
    run.screen.hang_up()
    run.end()
    assert {visit["state"] for visit in run.manifest["visits"]} == {"done"}
    assert sum(row["cell"] == "32x2" for row in run.telemetry) >= 3  # after one second, after two, and at the end


@pytest.mark.parametrize("host", ["loadkit", "locust"])
def test_a_reader_that_has_gone_does_not_end_the_run(runs, host):
    """Nobody reads its output any more: the run goes on to its end, is complete, and exits as its summary says."""
    run = runs[host]
    code = run.end()
    assert {visit["state"] for visit in run.manifest["visits"]} == {"done"}
    assert len(run.records) == 2
    assert code == run.summary["exit_code"] == (6 if run.saturated else 4)
