"""What every page of a run folder shares: one file that fetches nothing and runs only what was written here."""

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from loadkit import __version__
from loadkit.report.html.bundle import bundle


def render(template: str, specs: Mapping[str, Any], **values: Any) -> str:
    """The template of this folder with its style, its script, the charts and the values; text in them is escaped.

    The page's policy lets no address be fetched and no script run but the one whose hash it names, so that a text of
    a server that came through the escaping would still be dead.
    """
    script = _script()
    return _template(template).render(
        policy=_policy(script),
        style=Markup(_file("style.css")),
        script=script,
        specs=_data(specs),
        charts=specs,
        maker=__version__,
        **values,
    )


def _template(name: str) -> Any:
    environment = Environment(
        loader=PackageLoader("loadkit.report.html", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _file(name: str) -> str:
    return resources.files("loadkit.report.html").joinpath(name).read_text("utf-8")


@cache
def _script() -> Markup:
    return Markup(bundle(_file("page.js"), os.environ))


def _data(specs: Mapping[str, Any]) -> Markup:
    """JSON that may stand in a script element: no character of it can end the element or a line."""
    text = json.dumps(specs, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _policy(script: str) -> str:
    """Content-Security-Policy: nothing is fetched; this script runs, no other."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
