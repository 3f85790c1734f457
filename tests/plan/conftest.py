"""What the tests of this room share."""

import argparse

import pytest

from loadkit.plan.endpoint import Endpoint
from loadkit.plan.options import add_options, resolve


@pytest.fixture
def endpoint():
    """Makes an endpoint from a base URL and whatever else matters to a test."""

    def make(base_url="http://h", **values):
        return Endpoint(name="lab", base_url=base_url, **values)

    return make


@pytest.fixture
def run(tmp_path):
    """Resolves a command line in an empty folder, with the given variables only and seed 7 where none is named."""

    def resolved(*argv, **environ):
        parser = argparse.ArgumentParser()
        add_options(parser, positional_url=True)
        return resolve(parser.parse_args(argv), environ, tmp_path, new_seed=lambda: 7)

    return resolved


@pytest.fixture
def endpoints_toml(tmp_path):
    """Writes ./endpoints.toml."""

    def write(text):
        path = tmp_path / "endpoints.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write
