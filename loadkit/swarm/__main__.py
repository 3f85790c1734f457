"""`python -m loadkit.swarm HOST PORT`: a worker of the master that started it; ends when its standard input does."""

import locust
from locust.env import Environment

import contextlib
import os
import sys
from argparse import Namespace

import gevent
from gevent.os import tp_read

from loadkit.record.names import ExitCode
from loadkit.swarm import signals
from loadkit.swarm.users import LadderUser
from loadkit.swarm.worker import Worker


def main(host: str, port: int) -> int:
    """Work until the master ends; returns the exit code."""
    environment = Environment(
        user_classes=[LadderUser], events=locust.events, parsed_options=Namespace(web_base_path="")
    )
    guard = gevent.spawn(_wait_for_end)
    guard.link(lambda _: _master_gone(environment))
    try:
        runner = environment.create_worker_runner(host, port)
    except ConnectionError:
        _say(f"no master answers at {host}:{port}")
        return ExitCode.INCOMPLETE
    worker = Worker(environment, _say)
    signals.on_signals(worker.signalled)
    runner.greenlet.join()
    return worker.code


def _wait_for_end() -> None:
    """Standard input is a pipe that the master holds and never writes to."""
    with contextlib.suppress(OSError):
        while tp_read(sys.stdin.fileno(), 1):
            pass


def _master_gone(environment: Environment) -> None:
    worker: Worker | None = getattr(environment, "loadkit_worker", None)
    if worker is None:  # it was still being looked for
        os._exit(ExitCode.INCOMPLETE)
    worker.master_gone()


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"loadkit: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # Not sys.exit: a thread that reads standard input would be waited for.
    code = main(sys.argv[1], int(sys.argv[2]))
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)
