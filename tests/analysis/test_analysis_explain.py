"""Every name a record can hold has causes to check."""

import pytest

from loadkit.analysis.explain import CHECK_ORDER, CONFIGURATION, EXPLANATIONS, STATUS_CODES, explain
from loadkit.record.names import Flag, Outcome


def test_every_outcome_and_flag_is_explained():
    """The table holds exactly the closed sets, each name with at least one cause of one line."""
    assert set(EXPLANATIONS) == {*Outcome, *Flag}
    for causes in EXPLANATIONS.values():
        assert causes
        assert all(cause.strip() and "\n" not in cause for cause in causes)


def test_without_a_name_the_order_is_fixed():
    """Status code, then 401 key, then 404 model and path, then timeouts and length."""
    assert explain() == CHECK_ORDER
    assert [line.split(":")[0] for line in CHECK_ORDER] == ["the status code", "401", "404", "timeouts"]


@pytest.mark.parametrize(("asked", "name"), [("429", "rate_limited"), ("401", "auth"), ("No-Done", "no_done")])
def test_a_status_code_or_another_spelling_finds_the_outcome(asked, name):
    """An HTTP status, capitals and dashes lead to the outcome."""
    assert explain(asked) == EXPLANATIONS[name]


def test_a_fault_of_the_configuration_is_explained_too():
    """It has a name of its own, since it is in no record."""
    assert explain("endpoint_style_mix") == CONFIGURATION["endpoint_style_mix"]
    assert not set(CONFIGURATION) & set(EXPLANATIONS)
    assert "--no-proxy" in " ".join(explain("proxy_error"))


def test_status_codes_lead_to_outcomes():
    """No status code points at a name that is not there."""
    assert set(STATUS_CODES.values()) <= set(Outcome)


def test_an_unknown_name_is_refused_with_a_hint():
    """A misspelt name gives one line with the nearest name."""
    with pytest.raises(ValueError, match="did you mean rate_limited"):
        explain("rate_limitd")


def test_rate_limits_are_never_called_unsupported():
    """The reading rules: 429 is a limit of rate, one timeout does not make a tier unavailable."""
    assert "lower the concurrency first" in explain("rate_limited")[0]
    assert any("not unsupported" in cause for cause in explain("rate_limited"))
    assert any("one timeout does not make" in cause for cause in explain("read_timeout"))
