"""The two errors of the engine: one for whoever starts it, one for whoever asks it something."""

from __future__ import annotations


class EngineError(Exception):
    """A model cannot be loaded or an option cannot be served. The message is one line that says what is wrong."""


class ApiError(Exception):
    """A request is refused: an HTTP status with OpenAI's error shape.

    `code` is a string such as "context_length_exceeded"; `retry_after_s` becomes the Retry-After header.
    """

    def __init__(
        self, status: int, code: str, message: str, *, param: str | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, object]:
        """The JSON body, OpenAI's shape."""
        kinds = {404: "not_found_error"}
        kind = kinds.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}
