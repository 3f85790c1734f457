"""The committed files that are made from the table; a test holds them equal."""

from collections.abc import Callable

from loadkit.live.dashboards.files import FILES as GRAFANA
from loadkit.live.docs import markdown
from loadkit.live.rule_tests import tests_yaml
from loadkit.live.rules import rules_yaml

# path from the root of the project -> what makes its text
FILES: dict[str, Callable[[], str]] = {
    "docs/metrics.md": markdown,
    "grafana/rules/loadkit.rules.yaml": rules_yaml,
    "grafana/rules/loadkit.test.yaml": tests_yaml,
    **GRAFANA,
}
