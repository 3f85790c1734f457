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

_PROXY_VARIABLES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy URL that the environment names for this URL, None without one.

    <scheme>_proxy, then all_proxy, lower case before upper. no_proxy lists names (with all below them), addresses,
    networks, each with or without a port, or `*`. A loopback address is never reached through a proxy. ConfigError for
    a proxy that is not http or https.
    """
    variable = proxy_variable(url, environ)
    if variable is None:
        return None
    proxy = environ[variable] if "://" in environ[variable] else f"http://{environ[variable]}"
    if urlsplit(proxy).scheme not in ("http", "https") or not urlsplit(proxy).hostname:
        raise ConfigError(f"{variable} must hold an http:// or https:// URL: correct it, unset it, or use --no-proxy")
    return proxy


def proxy_variable(url: str, environ: Mapping[str, str]) -> str | None:
    """The name of the variable whose proxy stands before this URL, by the rules of `proxy_for`; None = direct."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _loopback(host):
        return None
    found = _variable(environ, f"{parts.scheme}_proxy") or _variable(environ, "all_proxy")
    excepted = environ.get(_variable(environ, "no_proxy") or "", "").replace(",", " ").split()
    if found is None or any(_covers(entry.lower(), host, parts.port) for entry in excepted):
        return None
    return found


def proxies_set(environ: Mapping[str, str]) -> list[str]:
    """The names of the proxy variables that hold something, as they are spelt in this environment."""
    return sorted(name for name, value in environ.items() if value and name.lower() in _PROXY_VARIABLES)


def without_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment as if no proxy variable were set."""
    return {name: value for name, value in environ.items() if name.lower() not in _PROXY_VARIABLES}


def open_transport(url: str, environ: Mapping[str, str], tls: ssl.SSLContext | None = None) -> Transport:
    """A transport of its own for one user of `url`. Nothing is opened before the first exchange."""
    proxy = proxy_for(url, environ)
    if proxy is None:
        return TRANSPORTS[DEFAULT](tls)
    variable = proxy_variable(url, environ) or ""
    return StockTransport(tls, proxy=proxy, proxy_from=variable, secure=speaks_tls(url, proxy))


def speaks_tls(url: str, proxy: str | None) -> bool:
    """Whether TLS is spoken anywhere on the way to this URL."""
    return any(urlsplit(hop).scheme == "https" for hop in (url, proxy or ""))


def _variable(environ: Mapping[str, str], name: str) -> str | None:
    """The spelling of a variable that holds something, lower case before upper."""
    return next((spelling for spelling in (name, name.upper()) if environ.get(spelling)), None)


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
