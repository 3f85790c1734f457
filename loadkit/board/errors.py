"""What can go wrong with a board; each is one line for people."""

from loadkit.plan.errors import ConfigError, TargetError
from loadkit.record.names import Outcome

CLIP = 400


class BoardError(ConfigError):
    """The board cannot do what was asked of it (exit code 2)."""

    def __init__(self, message: str) -> None:
        super().__init__(message[:CLIP])


class BoardLost(TargetError):
    """The board cannot be reached, or not any more (exit code 5)."""

    def __init__(self, message: str) -> None:
        super().__init__(message[:CLIP], Outcome.CONNECT_ERROR)
