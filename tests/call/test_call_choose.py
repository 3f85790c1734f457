"""Which transport serves a URL, and when a proxy stands between."""

import socket

import pytest

from loadkit.call.choose import TRANSPORTS, open_transport, proxy_for
from loadkit.call.stock import StockTransport
from loadkit.plan.errors import ConfigError
from loadkit.record.names import Outcome

PROXY = {"http_proxy": "http://proxy:3128", "HTTPS_PROXY": "proxy:3129"}


@pytest.mark.parametrize(
    ("url", "environ", "expected"),
    [
        ("http://h/v1", {}, None),
        ("http://h/v1", PROXY, "http://proxy:3128"),
        ("https://h/v1", PROXY, "http://proxy:3129"),
        ("http://h/v1", {"all_proxy": "https://p:1"}, "https://p:1"),
        ("http://h/v1", {"http_proxy": "", "HTTP_PROXY": "http://upper:1"}, "http://upper:1"),
        ("http://127.0.0.1:8000/v1", PROXY, None),
        ("http://[::1]:8000/v1", PROXY, None),
        ("http://localhost:8000/v1", PROXY, None),
        ("http://h/v1", {**PROXY, "no_proxy": "*"}, None),
        ("http://a.lab.net/v1", {**PROXY, "NO_PROXY": "x.org, .lab.net"}, None),
        ("http://lab.net/v1", {**PROXY, "no_proxy": "lab.net"}, None),
        ("http://mylab.net/v1", {**PROXY, "no_proxy": "lab.net"}, "http://proxy:3128"),
        ("http://h:81/v1", {**PROXY, "no_proxy": "h:80"}, "http://proxy:3128"),
        ("http://h:80/v1", {**PROXY, "no_proxy": "h:80"}, None),
        ("http://10.1.2.3/v1", {**PROXY, "no_proxy": "10.0.0.0/8"}, None),
        ("http://[fd00::5]/v1", {**PROXY, "no_proxy": "fd00::/8"}, None),
        ("http://11.1.2.3/v1", {**PROXY, "no_proxy": "10.0.0.0/8"}, "http://proxy:3128"),
    ],
)
def test_proxy_of_the_environment(url, environ, expected):
    """The variable of the scheme, then all_proxy; no_proxy and loopback win over both."""
    assert proxy_for(url, environ) == expected


def test_a_proxy_that_is_not_http_is_refused():
    """One line says what to change, without the proxy's password."""
    with pytest.raises(ConfigError, match=r"https?:// URL") as caught:
        proxy_for("http://h/", {"http_proxy": "socks5://u:secret@p:1"})
    assert "secret" not in caught.value.message


def test_our_transport_unless_a_proxy_stands_between():
    """The default is loadkit; behind a proxy it is httpx; names of the dict are the names in records."""
    assert open_transport("http://h/", {}).name == "loadkit"
    assert open_transport("http://h/", PROXY).name == "httpx"
    assert {made(None).name for made in TRANSPORTS.values()} == set(TRANSPORTS)


def test_forward_proxy(serve, wire_request, log):
    """Plain HTTP through a proxy: the whole URL is the target, credentials go in their own header."""
    seen = []

    def script(peer):
        seen.append(peer.request())
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        peer.gone()

    server = serve(script)
    transport, sink = StockTransport(proxy=f"http://me:pass%21@127.0.0.1:{server.port}"), log()
    end = transport.exchange(wire_request("http://model.test/v1/x"), sink)
    transport.close()
    assert (end.how, sink.body) == ("eof", b"hi")
    assert seen[0][0].startswith(b"POST http://model.test/v1/x HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6cGFzcyE=" in seen[0][0]


def test_tunnel(serve, wire_request, log, certificates):
    """https through a proxy: CONNECT is part of connecting, t0 is the request's own, TLS ends at the server."""
    tls, trusting = certificates
    heads = []

    def script(peer):
        heads.append(peer.head())
        peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        peer.sock = tls.wrap_socket(peer.sock, server_side=True)
        heads.append(peer.request()[0])
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        peer.sock.unwrap()

    server = serve(script)
    transport, sink = StockTransport(trusting, proxy=f"http://127.0.0.1:{server.port}"), log()
    end = transport.exchange(wire_request("https://localhost:9/v1/x"), sink)
    transport.close()
    assert (end.how, sink.status, sink.body) == ("eof", 200, b"hi")
    assert sink.names == ["connecting", "connected", "sending", "sent", "head", "read"]
    assert heads[0].startswith(b"CONNECT localhost:9 HTTP/1.1")
    assert heads[1].startswith(b"POST /v1/x HTTP/1.1")


def test_faults_of_a_proxy_are_its_own(serve, wire_request, log):
    """A proxy that is not there, cannot be looked up, or refuses, is proxy_error and not the server's fault."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    refusing = serve(lambda peer: peer.head() and peer.send(b"HTTP/1.1 407 Auth\r\nContent-Length: 0\r\n\r\n"))
    cases = [
        (f"http://127.0.0.1:{port}", "http://model.test/"),
        ("http://no-such-proxy.invalid:1", "http://model.test/"),
        (f"http://127.0.0.1:{refusing.port}", "https://model.test/"),
    ]
    for proxy, url in cases:
        sink = log()
        end = StockTransport(proxy=proxy).exchange(wire_request(url), sink)
        assert (end.how, end.outcome) == ("fault", Outcome.PROXY_ERROR)
        assert "sending" not in sink.names
