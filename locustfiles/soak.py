"""The same load for 20 minutes a cell: `locust -f locustfiles/soak.py --headless --url URL --concurrency 8 --yes`.

`--duration` changes the time; `--budget-tokens N` in place of --yes bounds what it takes.
"""

from loadkit.analysis.decide import decide
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, install  # noqa: F401  Locust finds the classes by their names

install(finish, decide, duration="20m")
