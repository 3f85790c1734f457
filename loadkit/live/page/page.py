"""The live page for a browser: one file that asks for /metrics of the exporter it came from, and for nothing else."""

import base64
import hashlib
import json
from importlib import resources

from loadkit.measure.validity import HEALTH_LIMITS

SCRIPTS = ("metrics.js", "charts.js", "live.js")
KIND = "text/html; charset=utf-8"
MARK = b"<title>loadkit live</title>"  # by which `loadkit watch` knows the page


def html() -> bytes:
    """The page."""
    return _file("page.html").replace("$style", _style()).replace("$script", _script()).encode()


def policy() -> str:
    """Its Content-Security-Policy: only what was written here runs, and only the exporter is asked."""
    parts = (
        "default-src 'none'",
        f"script-src {_hash(_script())}",
        f"style-src {_hash(_style())}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return "; ".join(parts)


def _style() -> str:
    return _file("style.css")


def _script() -> str:
    """The scripts with the limits by which the report judges the load generator, the stricter verdict first."""
    limits = [{"status": one.status, "lag_s": one.lag_ms / 1e3, "cpu": one.cpu} for one in HEALTH_LIMITS]
    return "\n".join(('"use strict";', f"const LIMITS = {json.dumps(limits)};", *map(_file, SCRIPTS)))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _file(name: str) -> str:
    return (resources.files("loadkit.live.page") / name).read_text("utf-8")
