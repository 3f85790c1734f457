"""What a message may repeat of what it was given: one line, no control characters, and never a key."""

import re

KEY_SHAPE = re.compile(
    r"(?:\b(?:sk|pk|rk|hf|gsk|xai|ghp|nvapi)[-_][A-Za-z0-9_-]{12,})"
    r"|(?:\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,})"
    r"|(?:\beyJ[A-Za-z0-9_-]{8,}\.)",
    re.IGNORECASE,
)
_TOKEN_REST = re.compile(r"(\[redacted\])[A-Za-z0-9._-]+")  # of a JSON web token, whose shape ends at its first dot


def shown(text: str) -> str:
    """The text with every literal key in it as [redacted], and what a terminal would obey or not show as an escape."""
    text = _TOKEN_REST.sub(r"\1", KEY_SHAPE.sub("[redacted]", text))
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
