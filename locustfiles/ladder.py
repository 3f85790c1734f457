"""The ladder, with Locust's own command line: `locust -f locustfiles/ladder.py --headless --tiers 1K,4K`.

Without a URL it loads the embedded engine, as `loadkit run` does; `locust --help` lists the options under "loadkit".
"""

from loadkit.analysis.decide import decide
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, install  # noqa: F401  Locust finds the classes by their names

install(finish, decide)
