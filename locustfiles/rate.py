"""An open loop: requests arrive at a rate, whatever the server does. Every process of a fleet sends its share of them:

locust -f locustfiles/rate.py --headless --url http://127.0.0.1:8000 --tiers 1K --rate 1,2,4 --duration 1m
"""

from loadkit.analysis.decide import decide
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, install  # noqa: F401  Locust finds the classes by their names

install(finish, decide)
