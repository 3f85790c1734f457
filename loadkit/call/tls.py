"""One TLS context for the whole process: building one costs 20-50 ms and would stall every stream."""

import functools
import os
import ssl

import httpx

from loadkit.plan.errors import ConfigError


@functools.cache
def shared_context() -> ssl.SSLContext:
    """The verifying client context of httpx (certifi, or SSL_CERT_FILE / SSL_CERT_DIR), HTTP/1.1 only.

    ConfigError where the variable that counts names no file or folder of certificates.
    """
    variable = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)), None)
    try:
        if variable == "SSL_CERT_DIR":
            os.scandir(os.environ[variable]).close()  # TLS itself takes a folder that is not there for an empty one
        context = httpx.create_ssl_context()
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"{variable or 'certifi'}: no certificates can be read there ({_why(error)})") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _why(error: OSError) -> str:
    return "not certificates in PEM form" if isinstance(error, ssl.SSLError) else error.strerror or str(error)
