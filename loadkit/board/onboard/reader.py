"""Answers one request after another about a board: many files at once, a listing, a program. Writes nothing."""

from __future__ import annotations

import json
import os
from typing import IO, Any

from loadkit.board.onboard import bandwidth
from loadkit.board.onboard.programs import Programs
from loadkit.board.onboard.tree import Tree


class Reader:
    """The answers below one root."""

    def __init__(self, root: str) -> None:
        self._tree = Tree(root)
        self._programs = Programs(root)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """One answer; {"error": text} where the request cannot be met."""
        try:
            return self._answer(request)
        except (OSError, KeyError, ValueError, TypeError) as error:
            return {"error": f"{type(error).__name__}: {error}"[:400]}

    def close(self) -> None:
        """End the programs that were started."""
        self._programs.close()

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        what = request["do"]
        if what == "read":
            return {"texts": [self._tree.read(path) for path in request["paths"]]}
        if what == "list":
            return {"paths": self._tree.paths(request["pattern"])}
        if what == "run":
            return self._programs.run(list(request["argv"]), float(request["timeout_s"]))
        if what == "start":
            return {"number": self._programs.start(list(request["argv"]))}
        if what == "output":
            return self._programs.output(request["number"])
        if what == "stop":
            self._programs.stop(request["number"])
            return {}
        if what == "who":
            return {"uid": os.geteuid(), "cores": os.cpu_count()}
        if what == "bandwidth":
            return {"readings": bandwidth.measure(float(request["seconds"]))}
        raise ValueError(f"no request {what!r}")


def main(arguments: dict[str, Any], requests: IO[bytes]) -> None:
    """Answer JSON lines until the other side is gone. A first line says that this program is there."""
    reader = Reader(arguments["root"])
    try:
        _say({"ready": True})
        for line in iter(requests.readline, b""):
            _say(reader.answer(json.loads(line)))
    except OSError:  # nobody listens any more
        pass
    finally:
        reader.close()


def _say(message: dict[str, Any]) -> None:
    data = (json.dumps(message) + "\n").encode()
    while data:
        data = data[os.write(1, data) :]
