"""Show the live page of a run in a browser: what Grafana would show, without a Grafana."""

import argparse
import os
import sys
import webbrowser
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from loadkit.cli.streams import say
from loadkit.live.exporter import ADDRESS, PORT
from loadkit.live.page import page
from loadkit.plan.errors import ConfigError
from loadkit.record.names import ExitCode

ANSWER_S = 5.0
MOST = 256 * 1024  # bytes of an answer that are looked at


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the run is."""
    default = f"http://{ADDRESS}:{PORT}/metrics"
    parser.add_argument(
        "url", nargs="?", default=default, metavar="URL", help=f"as the run prints it; default {default}"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address of the page")


def main(args: argparse.Namespace) -> int:
    """See that the page is there, say where, and open it."""
    site = site_of(args.url)
    if page.MARK not in _asked(site):
        raise ConfigError(f"{site} is not the live page of a loadkit run")
    say(f"live page: {site}")
    if not args.no_browser and has_screen(os.environ, sys.platform):
        webbrowser.open(site)
    return ExitCode.COMPLETE


def site_of(text: str) -> str:
    """The address of the page from what a run prints, or from host:port. Raises ConfigError for anything else."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        known = parts.scheme == "http" and parts.hostname and parts.path in ("", "/", "/metrics")
        port = parts.port or PORT
    except ValueError:
        known = None
    if not known:
        raise ConfigError(f"{text[:80]!r}: must be an address such as http://{ADDRESS}:{PORT}/metrics")
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    return f"http://{host}:{port}/"


def has_screen(environ: Mapping[str, str], platform: str) -> bool:
    """Whether a browser would have a screen; without one Python would start one in this terminal."""
    return not platform.startswith("linux") or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def _asked(site: str) -> bytes:
    """What is at the address; it is near, so no proxy is asked."""
    try:
        with httpx.Client(trust_env=False, timeout=ANSWER_S) as client, client.stream("GET", site) as answer:
            found = b""
            for piece in answer.iter_bytes():
                found += piece
                if len(found) > MOST:
                    break
            return found
    except (httpx.HTTPError, httpx.InvalidURL):
        todo = "start `loadkit run` in another terminal, or name the address it prints"
        raise ConfigError(f"nobody serves live metrics at {site}: {todo}") from None
