"""Where the live metrics of a run are served."""

import re

from loadkit.plan.errors import ConfigError
from loadkit.plan.given import Given

ADDRESS, PORT = "127.0.0.1", 9646


def metrics_at(options: Given) -> tuple[str, int] | None:
    """(address, port) of the page, port 0 for any free one; None where it is not wanted."""
    text = options.text("metrics-port")
    if options.flag("no-metrics"):
        if text is not None:
            raise ConfigError("--metrics-port and --no-metrics are both given: keep one")
        return None
    if text is None:
        return ADDRESS, PORT
    address, colon, port = text.rpartition(":")
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535 or (colon and not address):
        raise ConfigError(f"--metrics-port {text[:40]!r}: must be a port, or ADDRESS:PORT such as 0.0.0.0:{PORT}")
    return address.strip("[]") or ADDRESS, int(port)
