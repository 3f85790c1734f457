"""The files under grafana/: dashboards, and what tells a Grafana to load them. `python -m loadkit.live` writes them."""

import json
from collections.abc import Callable

from loadkit.live.dashboards import compare, fleet, live_run
from loadkit.live.dashboards.board import Dashboard

SCRAPE_S = 5  # which the datasource tells Grafana, so that $__rate_interval is at least four of them
MADE = "# Made by `python -m loadkit.live`; change loadkit/live/dashboards/files.py.\n"

DATASOURCES = f"""{MADE}apiVersion: 1
datasources:
  - name: loadkit
    uid: loadkit-prom
    type: prometheus
    access: proxy
    url: http://127.0.0.1:9090
    isDefault: true
    editable: false
    jsonData:
      timeInterval: {SCRAPE_S}s
      httpMethod: POST
"""
PROVIDERS = f"""{MADE}# LOADKIT_DASHBOARDS in the environment of Grafana: the folder grafana/dashboards of this project.
apiVersion: 1
providers:
  - name: loadkit
    type: file
    folder: loadkit
    allowUiUpdates: false
    disableDeletion: true
    updateIntervalSeconds: 30
    options:
      path: ${{LOADKIT_DASHBOARDS}}
"""


def text_of(dashboard: Dashboard) -> str:
    """A dashboard as a file."""
    return json.dumps(dashboard.to_json(), indent=2, ensure_ascii=False) + "\n"


DASHBOARDS: dict[str, Callable[[], Dashboard]] = {
    "loadkit-live": live_run.dashboard,
    "loadkit-compare": compare.dashboard,
    "loadkit-fleet": fleet.dashboard,
}


def _maker(make: Callable[[], Dashboard]) -> Callable[[], str]:
    return lambda: text_of(make())


# path from the root of the project -> what makes its text
FILES: dict[str, Callable[[], str]] = {
    **{f"grafana/dashboards/{name}.json": _maker(make) for name, make in DASHBOARDS.items()},
    "grafana/provisioning/datasources/loadkit.yaml": lambda: DATASOURCES,
    "grafana/provisioning/dashboards/loadkit.yaml": lambda: PROVIDERS,
}
