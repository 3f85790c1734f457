"""Queue, prefill and decode times of single requests out of the target's own metrics, where its answers tell none.

After a request that ran alone the page of the target is read once more before the next one is sent; `live.alone` says
whether the window was that request's. So a record has the times when it is written, or it never has them.
"""

import os
import time
from collections.abc import Callable

import httpx

from loadkit.call.choose import without_proxies
from loadkit.live import server_metrics
from loadkit.live.alone import Alone, tells
from loadkit.plan.endpoint import root_url_for
from loadkit.plan.errors import ConfigError
from loadkit.record.names import Outcome
from loadkit.record.record import Record
from loadkit.swarm.session import Session
from loadkit.target.control import open_client

MOST_COST = 0.02  # of the time of all requests that ran alone may go into looks


class ServerTimes:
    """Completes the records of one process. `now` is in seconds."""

    def __init__(self, session: Session, now: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._now = now
        self._alone = Alone()
        self._client: httpx.Client | None = None
        self._url = root_url_for(session.target.endpoint, "/metrics")
        self._useless = not session.ladder  # users that choose for themselves are never known to be alone
        self._alone_s = 0.0  # time of all requests that ran alone
        self._spent_s = 0.0  # in looks
        self._last_s = 0.0  # of the last look
        self._seen = False  # the last request was looked at, so that the next window may be of one

    def complete(self, record: Record) -> None:
        """A request has ended and its record is about to be written."""
        if self._useless:
            return
        if record.server_queue_ms is not None or record.server_prefill_ms is not None:
            self._useless = True  # the answers say it themselves
            return
        ok = record.outcome == Outcome.OK
        self._alone.ended(ok=ok)
        seen, self._seen = self._seen, False
        if not ok or record.concurrency != 1 or record.rate is not None or self._session.in_flight:
            return
        self._alone_s += (record.e2e_ms or 0.0) / 1e3
        if self._spent_s + self._last_s * (1 if seen else 2) <= MOST_COST * self._alone_s:
            self._seen = True
            self._look(record)

    def _look(self, record: Record) -> None:
        began = self._now()
        try:
            client = self._client = self._client or self._open()
        except (ConfigError, httpx.HTTPError):
            self._useless = True
            return
        page = server_metrics.scrape(client, self._url)
        self._last_s = self._now() - began
        self._spent_s += self._last_s
        if page is None or not tells(page):
            self._useless = True
            return
        times = self._alone.look(page, record.ttft_ms)
        record.server_queue_ms = times.get("queue_ms")
        record.server_prefill_ms = times.get("prefill_ms")
        record.server_decode_ms = times.get("decode_ms")

    def _open(self) -> httpx.Client:
        environ = os.environ if self._session.plan.proxy else without_proxies(os.environ)
        return open_client(self._session.target.endpoint, None, environ)
