"""A server on an edge board, at 128, 512 and 1024 tokens, with the board's clocks and heat beside every answer:

locust -f locustfiles/board.py --headless --url http://rock-5b:8080 --board rk3588 --board-host rock-5b --quant w8a8
"""

from loadkit.analysis.decide import decide
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, install  # noqa: F401  Locust finds the classes by their names

install(finish, decide, target="board")
