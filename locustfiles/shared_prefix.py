"""What a prefix cache saves: 80 % of every prompt is the same. Compare the run with one of locustfiles/ladder.py.

locust -f locustfiles/shared_prefix.py --headless --url http://127.0.0.1:8000 --tiers 1K,4K
"""

from loadkit.analysis.decide import decide
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, install  # noqa: F401  Locust finds the classes by their names

install(finish, decide, shared_prefix="0.8")
