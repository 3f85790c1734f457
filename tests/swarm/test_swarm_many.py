"""Many streams: none waits in the client for another, and TLS is set up once."""

import resource
import socket
import ssl
import subprocess
import threading

import pytest

STREAMS = 150

COUNT = """
import ssl

made = []
new = ssl.SSLContext.__new__

def counted(cls, *args, **kwargs):
    made.append(1)
    return new(cls, *args, **kwargs)

ssl.SSLContext.__new__ = counted

from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, events, install

@events.stage.add_listener
def told(state, cell, **_):
    print("contexts", cell, state, len(made))

install(finish)
"""


@pytest.fixture(scope="module")
def tls(make_sim, tmp_path_factory):
    """(URL, certificate): a TLS end in front of a simulator, for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    make += " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(make.split(), cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    behind = make_sim("--ttft-ms", "10", "--itl-ms", "4").url.split("/")[2].split(":")
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def pump(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                end.close()

    def serve():
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=join, args=(plain,), daemon=True).start()

    def join(plain):
        try:
            front = context.wrap_socket(plain, server_side=True)
        except OSError:
            return
        back = socket.create_connection((behind[0], int(behind[1])))
        threading.Thread(target=pump, args=(back, front), daemon=True).start()
        pump(front, back)

    threading.Thread(target=serve, daemon=True).start()
    yield f"https://127.0.0.1:{listener.getsockname()[1]}/v1", folder / "cert.pem"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def limit_files(soft, hard=None):
    """A function for the child: set its limits of open files."""

    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard or resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    return limit


@pytest.fixture(scope="module")
def runs(make_sim, loadkit, locust, locustfile, tls):
    """Every run of this module, under way at once."""
    server = make_sim("--ttft-ms", "1500", "--itl-ms", "20")  # as long as all need to start
    url, certificate = tls
    once = ("--tiers", "32", "--rounds", "1", "--max-tokens", "3", "--no-check")
    trust = {"SSL_CERT_FILE": str(certificate)}
    runs = {
        "many": loadkit(server.url, *once, "--concurrency", STREAMS, preexec_fn=limit_files(64)),
        "too many": loadkit("http://127.0.0.1:9", *once, "--concurrency", "90", preexec_fn=limit_files(100, 100)),
        "tls": locust(locustfile(COUNT), url, *once, "--concurrency", "1,8", "--model", "sim", env=trust),
    }
    runs["many"].server = server
    return runs


def test_a_hundred_and_fifty_streams_are_all_in_flight(runs):
    """A pool of 100 connections would show a knee at 100 that the server does not have."""
    run = runs["many"]
    assert run.end() == (6 if run.saturated else 0), run.err
    assert run.server.stats()["in_flight_max"] == STREAMS
    assert {row["outcome"] for row in run.records} == {"ok"}
    (cell,) = run.summary["cells"]
    assert (cell["n"], cell["peak_in_flight"]) == (STREAMS, STREAMS)
    served = {row["request_id"]: row for row in run.server.requests(run.manifest["run_id"])}
    waits = sorted(
        row["ttft_ms"] - (served[row["request_id"]]["first_write_ns"] - served[row["request_id"]]["received_ns"]) / 1e6
        for row in run.records
    )
    assert waits[-2] < 1500  # a second turn in a pool would add the 1500 ms of the first


def test_more_streams_than_files_are_refused(runs):
    """Where the system cannot give so many sockets, one line says so before anything is sent."""
    run = runs["too many"]
    assert run.end() == 2
    assert [line for line in run.lines if line.startswith("loadkit:")] == [
        "loadkit: 90 streams take 154 open files and `ulimit -Hn` allows 100: raise it"
    ]


def test_tls_is_set_up_once_per_process(runs):
    """One context costs 50 ms on the loop: streams share it, however many there are."""
    run = runs["tls"]
    assert run.end() == (6 if run.saturated else 0), run.err
    assert {row["outcome"] for row in run.records} == {"ok"}
    assert sum(row["cold"] for row in run.records) == 8
    counts = {tuple(line.split()[1:3]): int(line.split()[3]) for line in run.out.splitlines() if "contexts" in line}
    assert counts["32x1", "open"] <= 2  # the control client's, before anything is measured
    assert counts["32x1", "done"] - counts["32x1", "open"] <= 1
    assert counts["32x8", "done"] == counts["32x1", "done"]
