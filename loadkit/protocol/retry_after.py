"""How long a refusal asks us to wait, in every form in use. No clock is read here."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

Headers = Mapping[str, str] | Iterable[tuple[str, str]] | None

_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)", re.ASCII)


def header(headers: Headers, name: str) -> str | None:
    """The first value of a header, whatever the case of its name; None when absent."""
    if headers is None:
        return None
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    wanted = name.lower()
    return next((value for key, value in pairs if key.lower() == wanted), None)


def retry_after_s(headers: Headers, now: float | None = None) -> float | None:
    """Seconds to wait: `retry-after-ms`, then `retry-after` in seconds (fractions too), then as an HTTP date.

    A date counts from the answer's own `Date`, else from `now` (seconds since the epoch). A past date is 0. Negative,
    non-finite and unreadable values are None: the caller uses its own back-off.
    """
    milliseconds = _number(header(headers, "retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = header(headers, "retry-after")
    seconds = _number(value)
    if seconds is not None:
        return seconds
    until = _date(value)
    if until is None:
        return None
    since = _date(header(headers, "date"))
    since = now if since is None else since
    return None if since is None else max(0.0, until - since)


def _number(text: str | None) -> float | None:
    if text is None or len(text) > 40 or not _NUMBER.fullmatch(text.strip()):
        return None
    return float(text)


def _date(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        moment = parsedate_to_datetime(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
