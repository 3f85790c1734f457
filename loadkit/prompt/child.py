"""How another Python process of ours is started: it imports nothing from its working folder and knows no keys."""

import re
import sys
from collections.abc import Mapping

_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)S?$|(^|_)AUTH", re.IGNORECASE)


def python_module(module: str) -> list[str]:
    """The command that runs a module. -P: a file of the same name in the working folder must not take its place."""
    return [sys.executable, "-P", "-m", module]


def without_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that are named like keys, tokens, secrets or passwords."""
    return {name: value for name, value in environ.items() if not _SECRET.search(name)}
