"""How many users Locust keeps: as many as the open visit has streams. The visits themselves run inside `tick`."""

from locust import LoadTestShape

from loadkit.swarm.session import session_of

SPAWN_RATE = 100.0


class LadderShape(LoadTestShape):
    """Asks for the users of the next visit, runs every visit they suffice for, and ends the test after the last.

    Locust calls `tick` about once a second. Waiting inside it keeps visits back to back, and a ramp costs a second only
    where the number of users changes.
    """

    def tick(self) -> tuple[int, float] | None:
        """(users, spawn rate), or None when the plan is through."""
        assert self.runner is not None
        session = session_of(self.runner.environment)
        assert session is not None
        visits = session.visits
        while (needed := visits.next_concurrency) is not None:
            if session.live_users < needed:
                return needed, SPAWN_RATE
            visits.run_next()
        visits.close()
        return None
