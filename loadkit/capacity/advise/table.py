"""The tables behind `loadkit advise`, from advice.toml: questions, engines, actions and texts."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any

LAYERS = ("engine", "scheduling", "architecture", "weights")  # from what is free and reversible to what is not
ROUTES = ("fewer bytes", "faster memory", "more tokens per read")


@cache
def table() -> dict[str, Any]:
    """The whole file."""
    return tomllib.loads(resources.files("loadkit.capacity.advise").joinpath("advice.toml").read_text("utf-8"))


def questions() -> list[dict[str, Any]]:
    """Every question in the order of asking."""
    return table()["question"]


def question(field: str) -> dict[str, Any]:
    """The question of one field."""
    return next(each for each in questions() if each["field"] == field)


def engines() -> dict[str, dict[str, Any]]:
    """What engines can do and how they are started."""
    return table()["engine"]


def actions() -> dict[str, dict[str, Any]]:
    """What can be advised, by key."""
    return table()["action"]


def layer_of(action: str) -> str:
    """The layer of an action by its name (or key): engine, scheduling, architecture, weights, measure, none, ask."""
    for key, row in actions().items():
        if (
            action == key
            or action == row.get("name")
            or (key == "cut_context" and action.startswith("cut_context_to_"))
        ):
            return row["layer"]
    raise KeyError(action)


def rejected() -> dict[str, str]:
    """Wishes that are turned down, with the reason."""
    return table()["rejected"]
