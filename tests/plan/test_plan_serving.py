"""Where the live metrics are served."""

import pytest

from loadkit.plan.errors import ConfigError


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), ("127.0.0.1", 9646)),
        (("--metrics-port", "0"), ("127.0.0.1", 0)),
        (("--metrics-port", "9700"), ("127.0.0.1", 9700)),
        (("--metrics-port", "0.0.0.0:9646"), ("0.0.0.0", 9646)),
        (("--metrics-port", "[::1]:9646"), ("::1", 9646)),
        (("--no-metrics",), None),
    ],
)
def test_where_the_page_is(run, argv, expected):
    """Loopback unless told, the port of exporters for Locust unless told, and nothing where it is not wanted."""
    assert run(*argv).metrics == expected


@pytest.mark.parametrize("argv", [("x",), ("65536",), (":1",), ("-1",), ("1", "--no-metrics")])
def test_a_port_that_is_none_is_an_error(run, argv):
    """One line that says what to write."""
    with pytest.raises(ConfigError, match="--metrics-port"):
        run(f"--metrics-port={argv[0]}", *argv[1:])
