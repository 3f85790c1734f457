"""What a run on an edge board is asked for beside its plan: which board, how to reach it, how the model is stored."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from loadkit.plan.errors import ConfigError
from loadkit.plan.given import Given

OPTIONS = ("board-host", "sysfs-root", "quant", "bandwidth", "card", "perf")


@dataclass(frozen=True, slots=True)
class Edge:
    """Texts as they were given; rooms that know boards read them. `host` None: this machine where the URL is on it,
    else the board is not looked at."""

    board: str
    host: str | None = None
    root: str = "/"
    quant: str | None = None
    bandwidth: str | None = None
    card: str | None = None
    perf: bool = False

    def to_json(self) -> dict[str, Any]:
        """Builtin values, for the manifest."""
        return asdict(self)


def edge_of(options: Given, target: str) -> Edge | None:
    """What was asked for; None for other targets, which refuse these options with a ConfigError."""
    if target != "board":
        for name in OPTIONS:
            given = options.flag(name) if name == "perf" else options.text(name)
            if given:
                raise ConfigError(f"--{name} is for --target board: add --board NAME, or leave it out")
        return None
    return Edge(
        board=options.text("board") or "",
        host=options.text("board-host"),
        root=options.text("sysfs-root") or "/",
        quant=options.text("quant"),
        bandwidth=options.text("bandwidth"),
        card=options.text("card"),
        perf=options.flag("perf"),
    )


def edge_again(target: Mapping[str, Any]) -> Edge | None:
    """What a run that is resumed was asked for, from the target of its manifest. ConfigError where it is damaged."""
    asked = target.get("asked")
    if target.get("kind") != "board":
        return None
    try:
        return Edge(**asked) if isinstance(asked, dict) else Edge(board=str(target["board"]))
    except (KeyError, TypeError):
        raise ConfigError("the manifest of the run does not say how its board is reached: start a new run") from None
