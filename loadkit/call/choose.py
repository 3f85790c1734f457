"""Which transport reads: ours, unless a proxy stands between; then stock httpx. Record.transport says which it was."""

import ipaddress
import ssl
from collections.abc import Callable, Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from loadkit.call.stock import StockTransport
from loadkit.call.transport import Transport
from loadkit.call.watcher import WatcherTransport
from loadkit.plan.errors import ConfigError

DEFAULT = "loadkit"
PROXYING = "httpx"
TRANSPORTS: Mapping[str, Callable[[ssl.SSLContext | None], Transport]] = MappingProxyType(
    {DEFAULT: WatcherTransport, PROXYING: StockTransport}
)


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy URL that the environment names for this URL, None without one.

    <scheme>_proxy, then all_proxy, lower case before upper. no_proxy lists names (with all below them), addresses,
    networks, each with or without a port, or `*`. A loopback address is never reached through a proxy. ConfigError for
    a proxy that is not http or https.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _loopback(host):
        return None
    found = _variable(environ, f"{parts.scheme}_proxy") or _variable(environ, "all_proxy")
    excepted = _variable(environ, "no_proxy").replace(",", " ").split()
    if not found or any(_covers(entry.lower(), host, parts.port) for entry in excepted):
        return None
    proxy = found if "://" in found else f"http://{found}"
    if urlsplit(proxy).scheme not in ("http", "https") or not urlsplit(proxy).hostname:
        raise ConfigError(f"the proxy variable for {parts.scheme} must hold an http:// or https:// URL, or be unset")
    return proxy


def open_transport(url: str, environ: Mapping[str, str], tls: ssl.SSLContext | None = None) -> Transport:
    """A transport of its own for one user of `url`. Nothing is opened before the first exchange."""
    proxy = proxy_for(url, environ)
    return StockTransport(tls, proxy=proxy) if proxy else TRANSPORTS[DEFAULT](tls)


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "") or environ.get(name.upper(), "")


def _covers(entry: str, host: str, port: int | None) -> bool:
    """Whether one entry of no_proxy means this host."""
    if entry == "*":
        return True
    name, _, wanted = entry.rpartition(":")
    if name and wanted.isdigit() and (":" not in name or name.endswith("]")):
        if wanted != str(port):
            return False
        entry = name
    entry = entry.strip("[]").removeprefix("*").lstrip(".")
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return bool(entry) and (host == entry or host.endswith(f".{entry}"))


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
