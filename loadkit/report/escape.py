"""Text from servers is data: what it may look like in each place it is shown."""

import re
import unicodedata

_ACTIVE = re.compile(r"([\\`*_\[\]#|~$@]|://|^[-+](?=\s)|^\d+(?=[.)]\s))")


def plain(text: str, limit: int = 300) -> str:
    """One line without control, format or surrogate characters (no escape sequences, no bidi tricks), clipped."""
    kept = "".join(" " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in text)
    line = " ".join(kept.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def markdown(text: str, limit: int = 300) -> str:
    """The plain line with everything inert that Markdown, or HTML inside it, gives a meaning."""
    line = plain(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _ACTIVE.sub(_inert, line).replace("www.", "www\\.")


def _inert(match: re.Match[str]) -> str:
    """A backslash before the sign; after a leading number, which cannot be escaped, the sign is what follows it."""
    found = match[0]
    return f"{found}\\" if found.isdigit() else f"\\{found}"
