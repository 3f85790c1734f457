"""The SLO grammar, and what it means for a cell and for a request."""

import pytest

from loadkit.measure.slo import Slo, parse


def test_the_grammar():
    """Every metric, with and without a quantile, in every unit, with spaces."""
    assert parse("ttft=2s, itl=50ms ,tpot.p50=0.5ms,e2e.max=2m,ttft.p99=1500us,ITL.mean=.5s,error_rate=1%") == [
        Slo("ttft", "p95", 2000.0),
        Slo("itl", "p95", 50.0),
        Slo("tpot", "p50", 0.5),
        Slo("e2e", "max", 120_000.0),
        Slo("ttft", "p99", 1.5),
        Slo("itl", "mean", 500.0),
        Slo("error_rate", None, 0.01),
    ]
    assert [slo.name for slo in parse("ttft=2s,error_rate=0%")] == ["ttft.p95", "error_rate"]


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("", "expected METRIC=LIMIT"),
        ("ttft=2s,", "expected METRIC=LIMIT"),
        ("ttft", "'ttft': expected METRIC=LIMIT"),
        ("ttft=2s,latency=1s", "unknown metric 'latency'"),
        ("ttft.p97=2s", "unknown quantile 'p97'"),
        ("ttft.=2s", "unknown quantile ''"),
        ("ttft=2", "limit '2' is not a time"),
        ("ttft=2h", "limit '2h' is not a time"),
        ("ttft=-2s", "limit '-2s' is not a time"),
        ("ttft=nan", "limit 'nan' is not a time"),
        ("ttft=2s=3s", "limit '2s=3s' is not a time"),
        ("ttft=0s", "limit '0s' must be above 0"),
        ("ttft=1%", "limit '1%' is not a time"),
        ("error_rate=0.01", "limit '0.01' is not a share"),
        ("error_rate=101%", "limit '101%' is not a share"),
        ("error_rate.p95=1%", "takes no quantile, but has 'p95'"),
        ("ttft=2s,ttft.p95=3s", "'ttft.p95=3s': ttft.p95 is given twice"),
    ],
)
def test_an_error_names_the_bad_part(text, bad):
    """One line that shows what to correct."""
    with pytest.raises(ValueError, match="SLO") as caught:
        parse(text)
    assert bad in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("ttft=1200ms", True),  # at the limit
        ("ttft=1199ms", False),
        ("ttft.p50=300ms", True),
        ("error_rate=10%", True),
        ("error_rate=9%", False),
        ("itl=50ms", None),  # withheld
        ("tpot=50ms", None),  # not in the cell
    ],
)
def test_a_cell_holds_breaks_or_cannot_tell(text, holds):
    """A number that is absent neither passes nor fails."""
    cell = {"n": 20, "ok": 18, "ttft_ms": {"p50": 300.0, "p95": 1200.0}, "itl_ms": None}
    assert parse(text)[0].holds(cell) is holds


def test_a_cell_where_all_failed_breaks_its_error_rate_only():
    """No TTFT was measured, so the TTFT objective cannot tell; the error rate can."""
    cell = {"n": 3, "ok": 0, "ttft_ms": None}
    ttft, errors = parse("ttft=1s,error_rate=50%")
    assert (ttft.holds(cell), errors.holds(cell)) == (None, False)
    assert errors.holds({"n": 0, "ok": 0}) is None


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("ttft=500ms", True),
        ("ttft=499ms", False),
        ("itl=30ms", False),
        ("itl.p50=10ms", True),
        ("itl.mean=15ms", True),
        ("itl.max=39ms", False),
        ("tpot=1s", None),
        ("error_rate=1%", None),
    ],
)
def test_a_request_meets_misses_or_cannot_tell(text, met):
    """For goodput: the limit is put to the values of one request."""
    record = {"outcome": "ok", "ttft_ms": 500.0, "itl_ms": [10.0, 10.0, 10.0, 10.0, 35.0], "tpot_ms": None}
    record["itl_ms"][-1] = 40.0 if "max" in text or "p95" in text else 35.0
    assert parse(text)[0].met_by(record) is met


def test_a_failed_request_meets_nothing():
    """A fast refusal is not good service."""
    assert parse("ttft=1s")[0].met_by({"outcome": "rate_limited", "ttft_ms": None}) is False
    assert parse("itl=1s")[0].met_by({"outcome": "ok", "itl_ms": []}) is None


def test_underscores_and_errors_are_other_spellings():
    """`ttft_p95` is ttft.p95 and `errors` is error_rate; a name that only looks like one is unknown."""
    assert parse("ttft_p95=2s,itl_p50=50ms,errors=1%") == parse("ttft.p95=2s,itl.p50=50ms,error_rate=1%")
    for text in ("ttft_p42=2s", "xttft_p95=2s", "ttft_p95_p50=2s", "errors.p95=1%"):
        with pytest.raises(ValueError, match="SLO"):
            parse(text)
