"""Is the goodput that `loadkit capacity` reads off a closed-loop ladder the rate a server sustains? Five settings.

Each is the simulator with a number of slots and a known law of service. A ladder of concurrency is measured, the
goodput under the objective is predicted from it, and an open loop of evenly spaced arrivals at 0.95 times that rate
must hold the objective, one at 1.1 times must miss it. Beside it stands what the law itself allows, slots / service
time. The ladder has a level at the number of slots, because goodput is a measured load and never a guess between two.

    python benchmarks/capacity_check.py [--only 1,3] [--seconds 12]

Exit code 1 when a setting does not come out so. A minute a setting; the machine should be idle.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOADKIT = (sys.executable, "-m", "loadkit.cli.main")
BELOW, ABOVE = 0.95, 1.10


@dataclass(frozen=True)
class Setting:
    """The simulator's law (ms, tokens), the prompt, the answer and the objective."""

    slots: int
    law: dict[str, float]
    tier: int
    output: int
    slo: str
    rounds: int = 8

    @property
    def service_ms(self) -> float:
        """Time in a slot: TTFT of the prompt, and a gap before each later token."""
        n = self.tier
        prefill = self.law["ttft-ms"] + self.law.get("per-token-ms", 0) * n + self.law.get("per-token2-ms", 0) * n * n
        return prefill + (self.output - 1) * self.law["itl-ms"]

    @property
    def ladder(self) -> str:
        """Half the slots, all of them, twice as many."""
        return f"1,{max(2, self.slots // 2)},{self.slots},{2 * self.slots}"


SETTINGS = (
    Setting(4, {"ttft-ms": 80, "per-token-ms": 0.05, "itl-ms": 10}, 1024, 24, "ttft=330ms,itl=40ms"),
    Setting(8, {"ttft-ms": 200, "itl-ms": 15}, 512, 16, "ttft=420ms"),
    Setting(3, {"ttft-ms": 50, "per-token-ms": 0.05, "itl-ms": 8}, 4096, 32, "ttft=520ms,itl=40ms"),
    Setting(12, {"ttft-ms": 60, "itl-ms": 20}, 128, 20, "ttft=300ms"),
    Setting(6, {"ttft-ms": 60, "per-token2-ms": 0.00005, "itl-ms": 20}, 2048, 12, "e2e=720ms"),
)


class Sim:
    """The simulator in its own process, for the length of a `with`."""

    def __init__(self, setting: Setting) -> None:
        law = [word for name, value in setting.law.items() for word in (f"--{name}", f"{value:g}")]
        command = (sys.executable, "-m", "loadkit.sim", "serve", "--slots", str(setting.slots), "--stdin-guard", *law)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = json.loads(self._process.stdout.readline())["url"]

    def __enter__(self) -> "Sim":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)


def run(url: str, setting: Setting, out: Path, *more: str) -> dict[str, Any]:
    """One run of loadkit, and its summary."""
    command = (*LOADKIT, "run", url, "--tiers", str(setting.tier), "--max-tokens", str(setting.output))
    command += ("--slo", setting.slo, "--out", str(out), "--no-metrics", "--quiet", "--no-retry", "--full-grid", *more)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not (out / "latest" / "summary.json").exists():
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-800:]}")
    return json.loads((out / "latest" / "summary.json").read_text())


def predicted(folder: Path, setting: Setting) -> dict[str, Any]:
    """What `loadkit capacity` says of the ladder."""
    command = (*LOADKIT, "capacity", str(folder), "--slo", setting.slo, "--json")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Outcome:
    """Whether the prediction is confirmed, a line about it, and why cells of the three runs cannot be used."""

    confirmed: bool
    text: str
    invalid: tuple[str, ...]


def check(setting: Setting, work: Path, seconds: float) -> Outcome:
    """A ladder, its prediction, and an open loop on each side of it."""
    with Sim(setting) as sim:
        ladder = ("--concurrency", setting.ladder, "--rounds", str(setting.rounds))
        summaries = [run(sim.url, setting, work / "ladder", *ladder)]
        if unusable(summaries):
            return Outcome(False, "the ladder cannot be used: measure on an idle machine", unusable(summaries))
        tier = predicted(work / "ladder" / "latest", setting)["tiers"][0]
        rate = tier["goodput"]
        if rate is None:
            return Outcome(False, f"no load of the ladder holds {setting.slo}: {tier['why']}", unusable(summaries))
        for factor in (BELOW, ABOVE):
            more = ("--rate", f"{factor * rate:.4g}", "--arrivals", "constant", "--duration", f"{seconds:g}s")
            summaries.append(run(sim.url, setting, work / f"at{factor}", *more))
    found = [summary["rate_search"][0]["rates"][0] for summary in summaries[1:]]
    truth = setting.slots / setting.service_ms * 1000
    text = f"predicted {rate:.3f}/s at {tier['load']:g} streams (the law allows {truth:.3f}), bound by {tier['binds']}"
    for factor, row in zip((BELOW, ABOVE), found, strict=True):
        text += f"; x {factor}: {'; '.join(row['reasons']) or 'holds'}"
    return Outcome([row["sustained"] for row in found] == [True, False], text, unusable(summaries))


def unusable(summaries: list[dict[str, Any]]) -> tuple[str, ...]:
    """Of each invalid cell the reasons."""
    verdicts = [cell["validity"] for summary in summaries for cell in summary["cells"]]
    return tuple("; ".join(each["reasons"]) for each in verdicts if each["status"] == "invalid")


def main() -> int:
    """Print a line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="numbers of settings, such as 1,3; default all")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each open loop; default 12")
    args = parser.parse_args()
    wanted = [int(word) for word in args.only.split(",")] if args.only else range(1, len(SETTINGS) + 1)
    failed = 0
    for place in wanted:
        setting = SETTINGS[place - 1]
        with tempfile.TemporaryDirectory() as work:
            found = check(setting, Path(work), args.seconds)
        failed += not found.confirmed
        law = " ".join(f"{name} {value:g}" for name, value in setting.law.items())
        print(f"{place}. slots {setting.slots}, {law}, {setting.tier} tokens, {setting.output} out, {setting.slo}")
        print(f"   {'confirmed' if found.confirmed else 'NOT confirmed'}: {found.text}", flush=True)
        for reason in found.invalid:
            print(f"   a cell cannot be used: {reason}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
