"""Which way requests go: straight to the server, or through a proxy that a variable names."""

from collections.abc import Mapping

from loadkit.call.choose import proxies_set, proxy_variable
from loadkit.plan.endpoint import Endpoint
from loadkit.plan.errors import TargetError
from loadkit.record.names import Outcome

# What a client sees when the proxy itself is not there: it never spoke to the server.
_NOT_THE_SERVERS = (Outcome.PROXY_ERROR, Outcome.CONNECT_ERROR, Outcome.DNS_ERROR)


def route(endpoint: Endpoint, environ: Mapping[str, str]) -> str:
    """'direct', or the variable whose proxy stands between."""
    variable = proxy_variable(endpoint.base_url, environ)
    return f"through the proxy of {variable}" if variable else "direct"


def blamed(error: TargetError, endpoint: Endpoint, environ: Mapping[str, str]) -> TargetError:
    """The error, as the proxy's where a proxy stands between and no connection came about: it names the variables."""
    if proxy_variable(endpoint.base_url, environ) is None or error.outcome not in _NOT_THE_SERVERS:
        return error
    names = ", ".join(proxies_set(environ))
    message = f"{error.message}; requests go through a proxy ({names} set): correct it, or use --no-proxy"
    return TargetError(message, Outcome.PROXY_ERROR)
