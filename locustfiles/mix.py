"""A mix of short and long prompts by users who think between them, with Locust's own -u, -r and -t:

locust -f locustfiles/mix.py --headless --url http://127.0.0.1:8000 --tiers 128,1K -u 8 -r 2 -t 1m
"""

from locust import between, task

from loadkit.report.finish import finish
from loadkit.swarm import PromptUser, install


class Reader(PromptUser):
    wait_time = between(0.5, 2)

    @task(3)
    def short(self):
        self.send("128")

    @task
    def long(self):
        self.send("1K")


install(finish)
