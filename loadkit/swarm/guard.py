"""Whoever reaches a master's port may send it anything: a message that it cannot read must not make it deaf.

Locust's listener ends with the first one, and the master then loses all its workers at once.
"""

from locust.exception import RPCReceiveError
from locust.rpc import Message

import logging
from typing import Any

COUNTS = ("stats", "spawning_complete")  # messages with numbers that Locust keeps and adds up much later


def guard(runner: Any) -> None:
    """Let the master `runner` pass over what it cannot read or handle, with one line in the log."""
    handle, read = runner.handle_message, Message.unserialize

    def handled(client_id: str, msg: Any) -> None:
        try:
            if msg.type in COUNTS and not isinstance(msg.data["user_classes_count"], dict):
                raise TypeError("no counts of users")
            handle(client_id, msg)
        except Exception as error:  # noqa: BLE001 - it is told
            passed_over(msg.type, client_id, error)

    def understood(data: bytes) -> Any:
        try:
            msg = read(data)
            if isinstance(msg.type, str) and isinstance(msg.node_id, str):
                return msg
        except Exception as error:
            raise RPCReceiveError("it cannot be read") from error
        raise RPCReceiveError("it is not one of Locust's")

    runner.handle_message = handled
    # Not in the socket: Locust makes a new one after an error of the network.
    setattr(Message, "unserialize", staticmethod(understood))  # noqa: B010 - a plain one is an error to mypy


def passed_over(what: str, sender: str, error: Exception) -> None:
    """One line about a message that could not be handled; where it happened is for who asks for debugging."""
    where = logging.getLogger().isEnabledFor(logging.DEBUG)
    line = "message %.40r of %.80s cannot be handled: %s: %.200s"
    logging.warning(line, what, sender, type(error).__name__, error, exc_info=where)
