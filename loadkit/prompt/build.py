"""Building tiers in a process of their own: `python -m loadkit.prompt.build`, a JSON spec on stdin.

A tokenizer needs hundreds of MB and seconds for a long text, and would hold the measuring loop all the while.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadkit.plan.errors import ConfigError
from loadkit.prompt.child import python_module, without_keys
from loadkit.prompt.counters import COUNTERS
from loadkit.prompt.filler import filler
from loadkit.prompt.store import load, save
from loadkit.prompt.tier import TierText, build_tiers


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """What to build.

    counter: a name in COUNTERS; counter_args: its arguments as JSON values ({"path": …} for tokenizer files,
    {"tokens_per_word": …} for estimates). folder: where the files go; it must exist.
    """

    counter: str
    counter_args: dict[str, Any]
    tiers: tuple[int, ...]
    overhead_tokens: int
    filler: str
    folder: str
    shared_prefix: float = 0.0


def build(spec: BuildSpec) -> list[Path]:
    """Build and save the tiers of `spec` in this process; the paths of their JSON files, in the order of the tiers."""
    counter = COUNTERS[spec.counter](**spec.counter_args)
    text = filler(spec.filler)
    tiers = build_tiers(counter, spec.tiers, spec.overhead_tokens, text, shared_prefix=spec.shared_prefix)
    return [save(tier, Path(spec.folder)) for tier in tiers]


def build_in_child(spec: BuildSpec, timeout_s: float = 600.0) -> list[TierText]:
    """Build `spec` in a child process and map what it made.

    ConfigError with the child's own line when it cannot be built, or when it takes longer than `timeout_s` seconds.
    """
    command, environ = python_module("loadkit.prompt.build"), without_keys(os.environ)
    given = json.dumps(asdict(spec)).encode()
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=timeout_s, env=environ)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"building the prompts took more than {timeout_s:g} s: choose shorter tiers") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise ConfigError(f"the prompts could not be built: {said[-1]}")
    return [load(Path(path)) for path in json.loads(done.stdout)["built"]]


def main() -> int:
    """Spec on stdin, {"built": [paths]} on stdout; one line on stderr and exit code 2 when it cannot be done."""
    try:
        given = json.load(sys.stdin)
        paths = build(BuildSpec(**{**given, "tiers": tuple(given["tiers"])}))
    except (ConfigError, OSError, ValueError, KeyError, TypeError) as error:
        print(str(error) or type(error).__name__, file=sys.stderr)
        return 2
    print(json.dumps({"built": [str(path) for path in paths]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
