"""Keys are taken out of every text that leaves the process: messages, logs, records, manifests.

The text is read with its escapes undone (JSON, URL), and any stretch of eight characters of a key found there is cut
out of the original. So a key is caught whole, escaped, quoted in a header, or clipped at either end.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Sequence

MASK = "[redacted]"
MAX_CHARS = 800  # of a message kept from a server
MAX_READ = 8 * MAX_CHARS  # of a message looked at: a hostile server must not cost the measuring loop time
STRETCH = 8  # characters of a key that may not appear together
SHORTEST = 4  # a shorter value is no secret, and cutting it out would shred the text
UNESCAPES = 4  # layers of escaping undone

_ESCAPE = re.compile(r"\\+u([0-9a-fA-F]{4})|%([0-9a-fA-F]{2})|\\+([^\\])")
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}

# Keys we were never told: those of other people's servers and of proxies.
_BEARER = re.compile(r"\b(bearer(?:\s|%20|\+)+)(?!\[redacted\])[^\s\"'\\,;<>]+", re.IGNORECASE)
_HEADER = re.compile(
    r"\b((?:proxy-)?authorization|(?:x-|x-goog-)?api[-_ ]key)([\"'\\]*\s*[:=]\s*[\"'\\]*)"
    r"((?:(?:basic|bearer|digest|token)\s+)?+)(?!\[redacted\])[^\s\"'\\,;<>]+",
    re.IGNORECASE,
)
_SK = re.compile(r"\bsk-[A-Za-z0-9_\-*…]{4,}(?:\.+[A-Za-z0-9_\-]+)?")


class Redactor:
    """Takes the given secrets, and what looks like a key, out of texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        needles: set[str] = set()
        for secret in secrets:
            if len(secret.strip()) >= SHORTEST:
                needles.update(_needles(secret.strip()))
        self._stretches: dict[int, set[str]] = {}
        for needle in needles:
            size = min(STRETCH, len(needle))
            pieces = self._stretches.setdefault(size, set())
            pieces.update(needle[at : at + size] for at in range(len(needle) - size + 1))

    def text(self, text: str) -> str:
        """The text with every key, or stretch of eight characters of one, replaced by [redacted]."""
        if self._stretches:
            text = self._cut_known(text)
        text = _BEARER.sub(rf"\1{MASK}", text)
        text = _HEADER.sub(rf"\1\2\3{MASK}", text)
        return _SK.sub(MASK, text)

    def error(self, message: str) -> str:
        """The message redacted, then clipped to 800 characters; in this order, so that no key is cut out of sight."""
        return self.text(message[:MAX_READ])[:MAX_CHARS]

    def _cut_known(self, text: str) -> str:
        # In every layer: a % or a backslash that only happens to stand before a key would eat its first characters.
        spans = [span for layer in _layers(text) for span in self._spans(*layer)]
        out: list[str] = []
        done = 0
        for begin, end in _joined(spans):
            out += (text[done:begin], MASK)
            done = end
        return "".join(out) + text[done:]

    def _spans(self, plain: str, starts: Sequence[int]) -> list[tuple[int, int]]:
        """Where the original text shows a stretch of a key; starts[i] is where character i of `plain` came from."""
        return [
            (starts[at], starts[at + size])
            for size, pieces in self._stretches.items()
            for at in range(len(plain) - size + 1)
            if plain[at : at + size] in pieces
        ]


def _needles(secret: str) -> set[str]:
    """What the secret looks like: itself, with escapes undone, and inside base64 at each of three alignments."""
    found = {plain for plain, _ in _layers(secret)}
    raw = secret.encode("utf-8", "surrogatepass")
    for shift in range(3):
        length = shift + len(raw)
        # Only the characters that depend on no neighbour of the secret.
        inside = slice(-(-shift * 8 // 6), length * 8 // 6)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(b"\0" * shift + raw).decode("ascii")[inside])
    return found


def _layers(text: str) -> Iterator[tuple[str, Sequence[int]]]:
    """The text as it stands, then with one layer of JSON and URL escapes after the other undone.

    With each comes where its characters (and its end) start in `text`.
    """
    plain, starts = text, list(range(len(text) + 1))
    yield plain, starts
    for _ in range(UNESCAPES):
        out: list[str] = []
        moved: list[int] = []
        done = 0
        for match in _ESCAPE.finditer(plain):
            out += (plain[done : match.start()], _character(match))
            moved += (*starts[done : match.start()], starts[match.start()])
            done = match.end()
        if not done:
            break
        plain, starts = "".join(out) + plain[done:], moved + starts[done:]
        yield plain, starts


def _character(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    return chr(int(code, 16)) if code else _CONTROLS.get(match[3], match[3])


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans with those that touch or overlap made one, in order."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined
