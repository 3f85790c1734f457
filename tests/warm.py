"""A process that has imported what `loadkit` needs and forks at each start of it, since a short run is mostly imports.

    python warm.py MODULE...

Standard input has one start a line, as JSON: words (of `loadkit`, or of Python: -c and code, or -m and a module), cwd,
env, and the files that standard output and error go to. Standard output gets the process id of each, and later that id
again with the exit code. It ends when its input does.
"""

import gc
import importlib
import json
import os
import runpy
import sys

for name in sys.argv[1:]:
    importlib.import_module(name)

# Locust patches these, and the children must find no event loop of ours.
if patched := sys.modules.get("gevent.monkey"):
    fork, waitpid = (patched.get_original("os", name) for name in ("fork", "waitpid"))
    select = patched.get_original("select", "select")
else:
    from os import fork, waitpid
    from select import select

LOOK_S = 0.01  # who has ended is asked so often


def main() -> None:
    """Fork for every line, tell of every end."""
    orders, answers = (os.dup(fd) for fd in (0, 1))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    gc.freeze()  # a collection in a child would copy every page
    text, running = b"", 0
    while True:
        if select([orders], [], [], LOOK_S if running else None)[0]:
            read = os.read(orders, 65536)
            if not read:
                return
            *lines, text = (text + read).split(b"\n")
            for line in lines:
                if (pid := fork()) == 0:
                    os.close(orders)
                    os.close(answers)
                    become(**json.loads(line))
                running += 1
                tell(answers, pid=pid)
        while running and (ended := waitpid(-1, os.WNOHANG))[0]:
            running -= 1
            tell(answers, pid=ended[0], code=os.waitstatus_to_exitcode(ended[1]))


def tell(answers: int, **what: int) -> None:
    """One line."""
    os.write(answers, json.dumps(what).encode() + b"\n")


def become(words: list[str], cwd: str, env: dict[str, str], out: str, err: str) -> None:
    """Be a `loadkit`, or a Python, that was started like this."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for fd, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, fd)
        os.close(file)
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})
        sys.exit()
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        sys.exit()
    sys.argv = ["loadkit", *words]
    sys.exit(importlib.import_module("loadkit.cli.main").main())


if __name__ == "__main__":
    main()
