"""The live metrics of a run: listens to its events, serves their page, and waits at the end until it has been seen."""

import locust

import os
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any

import gevent
import httpx
from gevent.event import Event

from loadkit import __version__
from loadkit.call.choose import without_proxies
from loadkit.call.hub import shared
from loadkit.live import render, server_metrics
from loadkit.live.exporter import Exporter
from loadkit.live.labels import MAX_SERIES, place_of
from loadkit.live.registry import About, Registry
from loadkit.plan.endpoint import root_url_for
from loadkit.plan.errors import ConfigError
from loadkit.record.jsonl import Rows
from loadkit.record.record import Record
from loadkit.swarm import events
from loadkit.swarm.session import Session
from loadkit.target.control import open_client

SERVER_PERIOD_S = 5.0  # between two looks at the target's own metrics
LAST_LOOK_S = 1.0  # how long the one at the end may take


class Live:
    """Begins before the first request and ends when the report is there."""

    def __init__(self, session: Session, say: Callable[[str], None]) -> None:
        """Start to listen, and to serve where the session was told to; a page that cannot be served ends nothing."""
        self.registry = Registry(about(session))
        self._session = session
        self._say = say
        self._observed = 0
        self._hurried = False
        self._lingering = False
        self._before: dict[str, list[float]] | None = None
        self._closing = Event()
        self._hub = shared(gevent.get_hub())
        self._catch_up()
        self._exporter = self._serve(session)
        list(render.pieces(self.registry, True))  # so that a scrape finds the lines of every cell written
        session.live = self
        session.records.add_listener(self._on_record)
        events.stage.add_listener(self._on_stage)
        self._watcher = gevent.spawn(self._watch_server)

    def on_sample(self, row: Mapping[str, Any]) -> None:
        """A row of telemetry, also of a worker that may be of another version: what cannot be read is left out."""
        try:
            self.registry.health(row)
        except (KeyError, TypeError, ValueError, AttributeError):
            return

    def on_lost(self, worker: str) -> None:
        """A worker was lost."""
        self.registry.worker_lost(worker)

    def close(self) -> None:
        """No request will come any more; the target is still there."""
        self._closing.set()
        self._watcher.join(LAST_LOOK_S)
        self._watcher.kill()
        self._session.records.remove_listener(self._on_record)
        self._hub.catch_up()
        events.stage.remove_listener(self._on_stage)

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Show the summary, wait until whoever scrapes has seen it, and serve no more."""
        if summary is not None:
            if summary["totals"]["requests"] > self._observed:
                self._catch_up()
            self.registry.summary(summary)
        self.registry.finished()
        if self._exporter is None:
            return
        if longest := self._exporter.linger_s():
            self._say(f"metrics: waiting up to {longest:.0f} s for two more scrapes (Ctrl-C ends it)")
        self._lingering = True
        self._exporter.linger(lambda: self._hurried)
        self._lingering = False
        self._exporter.stop()

    def hurry(self) -> bool:
        """A signal while the last scrapes are waited for ends that; False at any other time."""
        self._hurried = self._lingering
        return self._lingering

    def _serve(self, session: Session) -> Exporter | None:
        if session.metrics is None:
            return None
        address, port = session.metrics
        exporter = Exporter(self.registry, address, port)
        try:
            exporter.start()
        except OSError as error:
            self._say(f"metrics: not served, cannot listen on {address} port {port}: {error.strerror}")
            return None
        moved = f" (port {port} is taken)" if exporter.moved else ""
        run, series = self.registry.about.run, self.registry.planned_series
        self._say(f'metrics: {exporter.url}{moved}, run="{run}", at most {series:,} series (of {MAX_SERIES:,})')
        self._say(f"live page: {exporter.url.removesuffix('metrics')}")
        return exporter

    def _on_record(self, *, record: dict[str, Any], **_: object) -> None:
        """Counted when the loop is quiet: it takes about 0.1 ms, in which no read of another stream is stamped."""
        self._observed += 1
        self._hub.later(partial(self.registry.observe, record))

    def _catch_up(self) -> None:
        """Count what is in the folder beyond what was counted: before a run that is resumed, or when it has ended and
        the spools of lost workers were put behind its records."""
        rows = (row for row in Rows(self._session.folder.records_path) if row["kind"] == "request")
        for row in islice(rows, self._observed, None):
            self._observed += 1
            self.registry.observe({**Record().to_json(), **row})

    def _on_stage(self, *, cell: str, state: str, **_: object) -> None:
        self._hub.catch_up()
        self.registry.stage(cell, state)

    def _watch_server(self) -> None:
        """Sample the target's own metrics, where it has any, at the start, every few seconds, and at the end."""
        session = self._session
        environ = os.environ if session.plan.proxy else without_proxies(os.environ)
        endpoint = session.target.endpoint
        url = root_url_for(endpoint, "/metrics")
        try:
            client = open_client(endpoint, None, environ)
        except (ConfigError, httpx.HTTPError):
            return
        with client:
            while self._sample_server(client, url) and not self._closing.is_set():
                self._closing.wait(SERVER_PERIOD_S)

    def _sample_server(self, client: httpx.Client, url: str) -> bool:
        """One sample; False where there is nothing to sample, or no more."""
        values = server_metrics.scrape(client, url)
        if values is None:
            return self._before is not None
        if (found := server_metrics.sample(values, self._before)) is not None:
            self._session.sample(server_metrics.row(found))
        self._before = values
        return True


def about(session: Session) -> About:
    """What is known of the run when it begins."""
    endpoint, plan = session.target.endpoint, session.plan
    return About(
        run_id=session.run_id,
        endpoint=endpoint.name,
        cells=tuple(place_of(cell.id) for cell in plan.cells) if session.ladder else (),
        process=session.worker,
        workers=session.about_fleet().get("workers_planned", 1),
        slo=plan.slo,
        model=endpoint.model or "",
        protocol=endpoint.protocol,
        host=endpoint.host,
        target=session.target.kind,
        plan=plan.name,
        seed=str(plan.seed),
        version=__version__,
        locust_version=locust.__version__,
    )
