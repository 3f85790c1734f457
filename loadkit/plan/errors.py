"""The two errors a user is meant to see: each is one clear line that says what to change."""

from loadkit.plan.shown import shown
from loadkit.record.names import Outcome


class ConfigError(Exception):
    """Options, files or variables that cannot be used as they stand (exit code 2). Never holds the value of a key."""

    def __init__(self, message: str) -> None:
        self.message = shown(message)
        super().__init__(self.message)


class TargetError(Exception):
    """The target cannot be loaded: unreachable, unauthorised or wrong model (exit code 5). `outcome` names it."""

    def __init__(self, message: str, outcome: Outcome) -> None:
        self.message = shown(message)
        super().__init__(self.message)
        self.outcome = outcome
