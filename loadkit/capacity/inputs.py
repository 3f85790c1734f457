"""What capacity arithmetic refuses: an input that cannot be is named in one line and nothing is computed from it."""

import math


class InputError(ValueError):
    """An input is contradictory, of the wrong sign or not a number. The message is one line that names it."""


def positive(what: str, value: float) -> float:
    """The value, a finite number above 0; InputError otherwise."""
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{what} must be a number above 0, it is {value!r}")
    return value


def not_negative(what: str, value: float) -> float:
    """The value, a finite number of 0 or more; InputError otherwise."""
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{what} must be a number of 0 or more, it is {value!r}")
    return value
