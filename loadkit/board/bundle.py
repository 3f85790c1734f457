"""Our own modules of loadkit.board.onboard, sent to a board as one line of JSON and run there: nothing is installed.

The command that receives them is a constant. Text of users, hosts and descriptions travels as JSON on standard input,
never as part of a command line.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Unbuffered, so that what follows the first line stays in the pipe for the program itself.
BOOT = 'import json,sys;stdin=open(0,"rb",0);bundle=json.loads(stdin.readline());exec(bundle["boot"])'
PYTHON = ("python3", "-I", "-c")
FOLDER = Path(__file__).parent / "onboard"
PACKAGES = ("loadkit", "loadkit.board", "loadkit.board.onboard")

_UNPACK = """
import types
for name, source in bundle["modules"]:
    module = sys.modules[name] = types.ModuleType(name)
    if source is None:
        module.__path__ = []
    else:
        exec(compile(source, name, "exec"), module.__dict__)
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
sys.modules["loadkit.board.onboard." + bundle["main"]].main(bundle["arguments"], stdin)
"""


def bundle(modules: Sequence[str], arguments: dict[str, Any]) -> bytes:
    """One line: the modules of onboard/ in order of need, the last of which has main(arguments, stdin)."""
    sources: list[tuple[str, str | None]] = [(name, None) for name in PACKAGES]
    sources += [(f"loadkit.board.onboard.{name}", (FOLDER / f"{name}.py").read_text()) for name in modules]
    content = {"boot": _UNPACK, "modules": sources, "main": modules[-1], "arguments": arguments}
    return json.dumps(content).encode() + b"\n"
