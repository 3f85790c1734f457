"""How the advised setting is passed to the engine, as a command to copy. Nothing here runs it."""

from typing import Any

from loadkit.capacity.advise.situation import Situation
from loadkit.capacity.advise.table import actions, engines

DRAFT = "DRAFT-MODEL"
OTHER = {"architecture": "OTHER-MODEL", "weights": "{model}-4BIT"}


def launch(given: Situation, action: str, words: dict[str, Any], model: str) -> str | None:
    """The command with the advised change, None where the engine's own is not known.

    Another model, or other weights of the same, stand in it as a word to replace.
    """
    row = actions()[action]
    engine = engines()[_engine(given, action)]
    if "start" not in engine:
        return None
    model = OTHER.get(row["layer"], "{model}").format(model=model)
    context, users = words.get("cut", given.ctx_set), given.users or 1
    filled = {"model": model, "ctx": context, "users": users, "ctx_all": (context or 0) * users, "draft": DRAFT}
    flag = engine.get(row.get("flag", ""))
    if flag is None:
        return engine["start"].format(**filled)
    filled |= {"ngl": _number(words.get("ngl"), "N"), "n_cpu_moe": _number(words.get("n_cpu_moe"), "N")}
    return f"{engine['start']} {flag}".format(**filled)


def _engine(given: Situation, action: str) -> str:
    """The engine the action moves to, or the present one where that can do it."""
    row, present = actions()[action], given.engine or "other"
    wanted = row.get("engine")
    if wanted is None or (row.get("flag") and row["flag"] in engines()[present]):
        return present
    return wanted


def _number(value: int | None, unknown: str) -> str:
    return unknown if value is None else str(value)
