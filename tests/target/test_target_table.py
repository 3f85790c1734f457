"""The table of what can be loaded: whatever is started is ready, answers, names its window, and can be stopped."""

import argparse

import httpx
import pytest

from loadkit.plan.errors import ConfigError, TargetError
from loadkit.plan.options import add_options, resolve
from loadkit.target import table
from loadkit.target.weights import NAME

BUILTIN = {"LOADKIT_WEIGHTS": "no-such-file"}


@pytest.fixture
def start(tmp_path):
    """Starts what a command line asks for, in an empty folder; stops it at the end."""
    started = []

    def begin(*words, environ=BUILTIN):
        parser = argparse.ArgumentParser()
        add_options(parser, positional_url=True)
        request = resolve(parser.parse_args(words), environ, tmp_path)
        started.append(table.start(request, environ, tmp_path))
        return started[-1]

    yield begin
    for target in started:
        target.stop()


@pytest.mark.parametrize("kind", sorted(table.TARGETS))
def test_every_target_keeps_the_contract(start, server, tmp_path, kind):
    """Started, it lists its one model under the endpoint's URL; stopped, twice, its own process is gone."""
    server.routes["GET /v1/models"] = server.models("m1")
    at = (server.url, "--model", "m1")
    words = {
        "endpoint": at,
        "board": (*at, "--board", "generic-linux", "--quant", "q4_0", "--sysfs-root", str(tmp_path)),
    }
    target = start(*words.get(kind, ("--target", kind)))
    assert target.kind == kind
    base = target.endpoint.base_url.removesuffix("/v1")
    listed = httpx.get(f"{base}/v1/models", trust_env=False).json()["data"]
    assert [row["id"] for row in listed] == [target.endpoint.model]
    for _ in range(2):
        target.stop()
    assert (target.running is None) == (kind in words)
    if target.running is not None:
        assert not target.running.alive()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{base}/v1/models", trust_env=False)


def test_the_engine_is_made_for_the_plan(start):
    """A slot for every stream, the model's own window, which is the endpoint's, and it says that it is built in."""
    target = start("--tiers", "64,200", "--concurrency", "1,3")
    assert (target.facts["source"], target.facts["slots"], target.facts["queue"]) == ("builtin", 3, 6)
    assert target.facts["context"] == target.endpoint.window == 32768


@pytest.mark.parametrize("words", [("--weights", "gone.gguf"), ("--target", "board", "--board", "orin")])
def test_what_cannot_be_loaded_is_a_line(start, words):
    """Weights that are not there, and a kind of target that this version has not: a ConfigError that names it."""
    with pytest.raises(ConfigError, match=words[1]) as caught:
        start(*words)
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("how", ["option", "folder"])
def test_weights_that_are_none_end_the_start(start, tmp_path, how):
    """A file that is no model, named or found: a TargetError with the engine's own reason, not another model."""
    path = tmp_path / "weights" / NAME
    path.parent.mkdir()
    path.write_bytes(b"GGUF but not really")
    with pytest.raises(TargetError, match=r"loadkit\.engine did not start: ") as caught:
        start("--weights", str(path)) if how == "option" else start("--tiers", "64", environ={})
    assert caught.value.message.isprintable()
