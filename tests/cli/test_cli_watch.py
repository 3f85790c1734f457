"""`loadkit watch`: finds the page, says where it is, opens a browser only where there is a screen."""

import socket
import threading
import webbrowser

import pytest

from loadkit.cli import watch
from loadkit.cli.main import main
from loadkit.live.exporter import Exporter
from loadkit.live.registry import About, Registry
from loadkit.plan.errors import ConfigError


@pytest.fixture
def exporter():
    """An exporter that serves the page of a run."""
    found = Exporter(Registry(About("r1", "e", ((4096, 1),))), port=0)
    found.start()
    yield found
    found.stop()


@pytest.fixture
def opened(monkeypatch):
    """The addresses a browser was opened with; none is started."""
    found = []
    monkeypatch.setattr(webbrowser, "open", found.append)
    return found


@pytest.mark.parametrize("screen", [True, False])
def test_it_says_where_and_opens_it_where_there_is_a_screen(exporter, opened, monkeypatch, capsys, screen):
    """One line with the address; a browser of the terminal is never started. Looking does not count as a scrape."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if screen:
        monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(watch.sys, "platform", "linux")
    site = f"http://127.0.0.1:{exporter.port}/"
    assert main(["watch", exporter.url]) == 0
    assert capsys.readouterr().err == f"live page: {site}\n"
    assert opened == ([site] if screen else [])
    assert exporter.scrapes == []


def test_no_browser_means_none(exporter, opened, monkeypatch):
    """Also where there is a screen."""
    monkeypatch.setenv("DISPLAY", ":0")
    assert main(["watch", exporter.url, "--no-browser"]) == 0
    assert opened == []


@pytest.mark.parametrize(
    ("text", "site"),
    [
        ("http://127.0.0.1:9646/metrics", "http://127.0.0.1:9646/"),
        ("127.0.0.1:9650", "http://127.0.0.1:9650/"),
        ("lab", "http://lab:9646/"),
        ("http://[::1]:9646/", "http://[::1]:9646/"),
    ],
)
def test_addresses(text, site):
    """As a run prints them, or shorter."""
    assert watch.site_of(text) == site


@pytest.mark.parametrize("text", ["https://lab/metrics", "http://lab/other", "http://lab:99999", "", "http://[::1"])
def test_other_addresses_are_refused(text):
    """With one line that shows what one looks like."""
    with pytest.raises(ConfigError, match="must be an address such as http://127"):
        watch.site_of(text)


def test_nobody_there(capsys, opened):
    """One line that says what to do, exit code 2."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert main(["watch", f"127.0.0.1:{port}"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"nobody serves live metrics at http://127.0.0.1:{port}/: start `loadkit run`" in said
    assert opened == []


def test_a_page_of_somebody_else(make_page, capsys, opened):
    """It is not opened."""
    assert main(["watch", make_page(b"<title>another</title>")]) == 2
    assert "is not the live page of a loadkit run" in capsys.readouterr().err
    assert opened == []


@pytest.fixture
def make_page():
    """make_page(body): address of a server that answers once with it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def make(body):
        def answer():
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body)

        threading.Thread(target=answer, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"

    yield make
    listener.close()
