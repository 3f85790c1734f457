"""Which variable a proxy comes from, what it looks like without any, and who is named when the proxy fails."""

import socket

import pytest

from loadkit.call.choose import open_transport, proxies_set, proxy_for, proxy_variable, without_proxies
from loadkit.record.names import Outcome

PROXIES = {"HTTP_PROXY": "http://p:1", "https_proxy": "p:2", "NO_PROXY": "x.org", "PATH": "/bin", "ALL_PROXY": ""}


@pytest.mark.parametrize(
    ("url", "environ", "expected"),
    [
        ("http://h", PROXIES, "HTTP_PROXY"),
        ("https://h", PROXIES, "https_proxy"),
        ("http://h", {"http_proxy": "a:1", "HTTP_PROXY": "b:1"}, "http_proxy"),
        ("http://h", {"http_proxy": "", "ALL_PROXY": "b:1"}, "ALL_PROXY"),
        ("http://x.org", PROXIES, None),
        ("http://127.0.0.1", PROXIES, None),
        ("http://h", {}, None),
    ],
)
def test_the_variable_is_known_by_name(url, environ, expected):
    """Messages and `loadkit curl` need the name; the value may hold a password."""
    assert proxy_variable(url, environ) == expected
    assert (proxy_for(url, environ) is None) == (expected is None)


def test_without_proxies_nothing_stands_between():
    """`--no-proxy`: every spelling of the four variables goes, the rest of the environment stays."""
    assert proxies_set(PROXIES) == ["HTTP_PROXY", "NO_PROXY", "https_proxy"]
    assert without_proxies(PROXIES) == {"PATH": "/bin"}
    assert open_transport("http://h", PROXIES).proxied
    assert not open_transport("http://h", without_proxies(PROXIES)).proxied


def test_a_fault_of_the_proxy_names_its_variable(wire_request, log):
    """The outcome says proxy, the detail says which variable put it there."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    transport = open_transport("http://model.test/", {"HTTP_PROXY": f"http://127.0.0.1:{port}"})
    end = transport.exchange(wire_request("http://model.test/"), log())
    assert end.outcome is Outcome.PROXY_ERROR
    assert "(the proxy is set by HTTP_PROXY)" in end.detail
