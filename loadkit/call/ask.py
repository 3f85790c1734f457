"""What every request of a run asks, and what of it is worked out once: URL, headers, body around the prompt."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from loadkit import __version__
from loadkit.plan.endpoint import Endpoint, Timeouts, url_for
from loadkit.protocol import PROTOCOLS
from loadkit.record.redact import Redactor


@dataclass(frozen=True, slots=True)
class Ask:
    """What every request of a run asks, and of whom. `endpoint.model` must be known by now."""

    endpoint: Endpoint
    key: str | None = field(default=None, repr=False)
    max_tokens: int = 128
    temperature: float | None = 0
    ignore_eos: bool = False
    min_tokens: int | None = None
    target: str = "endpoint"


def request_headers(endpoint: Endpoint, key: str | None) -> dict[str, str]:
    """The headers of a request: the protocol's, the key's, ours, and the endpoint's own, which win."""
    headers = PROTOCOLS[endpoint.protocol].headers(key, endpoint.auth)
    headers |= {"User-Agent": f"loadkit/{__version__}"}
    own = {name.lower() for name in endpoint.headers}
    return {name: value for name, value in headers.items() if name.lower() not in own} | endpoint.headers


class Fixed:
    """What is the same in all requests of one user. `named` are the fields of a record that say who was asked."""

    def __init__(self, ask: Ask, redactor: Redactor) -> None:
        """Building a request costs time beside the streams that are measured, so all that can be is made here."""
        endpoint = ask.endpoint
        self._ask = ask
        self.url = url_for(endpoint, PROTOCOLS[endpoint.protocol].path)
        self._headers = tuple(request_headers(endpoint, ask.key).items())
        self._own_id = any(name.lower() == "x-request-id" for name in endpoint.headers)
        self._bodies: dict[int, tuple[bytes, bytes]] = {}
        self._timeouts: dict[int, Timeouts] = {}
        parts = urlsplit(self.url)
        names = {"endpoint": endpoint.name, "model": endpoint.model, "host": parts.netloc, "path": parts.path}
        # A server that lists its models may have put our key into their names; it is still asked for the real one.
        self.named = {name: text and redactor.text(text) for name, text in names.items()}

    def body_around(self, max_tokens: int) -> tuple[bytes, bytes]:
        """The body before and after the prompt; made once for each limit of output tokens."""
        found = self._bodies.get(max_tokens)
        if found is None:
            ask, endpoint = self._ask, self._ask.endpoint
            found = self._bodies[max_tokens] = PROTOCOLS[endpoint.protocol].body(
                endpoint.model or "",
                max_tokens=max_tokens,
                temperature=ask.temperature,
                extra=endpoint.extra_body,
                ignore_eos=ask.ignore_eos,
                min_tokens=ask.min_tokens,
                max_tokens_field=endpoint.max_tokens_field,
            )
        return found

    def headers(self, request_id: str | None) -> tuple[tuple[str, str], ...]:
        """The headers of a request; all but its id are worked out once."""
        if not request_id or self._own_id:
            return self._headers
        return (*self._headers, ("X-Request-Id", request_id))

    def timeouts(self, tier_tokens: int) -> Timeouts:
        """The timeouts of a prompt of this length; scaled once for each."""
        found = self._timeouts.get(tier_tokens)
        if found is None:
            found = self._timeouts[tier_tokens] = self._ask.endpoint.timeouts.for_tier(tier_tokens)
        return found
