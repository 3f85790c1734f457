"""Certificates: named by the environment or shipped, read only where TLS is spoken; wrong ones are one line."""

import pytest

from loadkit.call import tls
from loadkit.call.choose import open_transport, speaks_tls
from loadkit.plan.errors import ConfigError

build = tls.shared_context.__wrapped__


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_certificates_that_are_not_there(variable, monkeypatch, tmp_path):
    """The variable is named, whichever of the two it is."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=f"{variable}: no certificates can be read there .No such file"):
        build()


def test_a_file_that_holds_no_certificates(monkeypatch, tmp_path):
    """What is no PEM is said to be none."""
    path = tmp_path / "ca.pem"
    path.write_text("hello")
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    with pytest.raises(ConfigError, match=r"SSL_CERT_FILE: .*PEM"):
        build()


def test_plain_http_reads_no_certificates(monkeypatch):
    """Also through a proxy: certificates that are missing do not stop a plain request."""

    def missing():
        raise ConfigError("no certificates")

    monkeypatch.setattr("loadkit.call.stock.shared_context", missing)
    assert open_transport("http://h", {"http_proxy": "http://p:1"}).proxied
    for url, environ in (("https://h", {"https_proxy": "http://p:1"}), ("http://h", {"http_proxy": "https://p:1"})):
        with pytest.raises(ConfigError):
            open_transport(url, environ)
    assert [speaks_tls("http://h", None), speaks_tls("https://h", None)] == [False, True]
