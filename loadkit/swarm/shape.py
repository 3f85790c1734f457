"""How many users Locust keeps: as many as the open visit has streams. The visits themselves run inside `tick`."""

from locust import LoadTestShape

from loadkit.swarm.session import session_of

SPAWN_RATE = 100.0


class LadderShape(LoadTestShape):
    """Asks for the users of the next visit, runs every visit they suffice for, and ends the test after the last.

    Locust calls `tick` about once a second. Waiting inside it keeps visits back to back, and a ramp costs a second only
    where the number of users changes. Where users are on workers, every visit waits for all of them to be there.
    """

    asked = 0

    def tick(self) -> tuple[int, float] | None:
        """(users, spawn rate), or None when the plan is through."""
        assert self.runner is not None
        session = session_of(self.runner.environment)
        assert session is not None
        visits = session.visits
        while visits.next_concurrency is not None:
            session.gather()
            if (needed := visits.next_concurrency) is None:
                break
            if session.live_users < needed:
                self.asked += 1  # Locust does nothing for an answer it has had: users that got lost would not come back
                return needed, SPAWN_RATE - self.asked % 2
            visits.run_next()
        visits.close()
        session.disperse()
        return None
