"""How many users Locust keeps: as many as the open visit has streams. The visits themselves run inside `tick`."""

from locust import LoadTestShape

import time

import gevent

from loadkit.swarm.session import Session, session_of

SPAWN_RATE = 100.0
LOOK_S = 0.02  # how often users that were asked for are counted, while nothing is in flight
AGAIN_S = 1.0  # users that are not there so long after they should be are asked for again


class LadderShape(LoadTestShape):
    """Asks for the users of the next visit, runs every visit they suffice for, and ends the test after the last.

    Locust calls `tick` about once a second, and every visit with more streams than the one before would wait for that.
    So `tick` asks for users by itself and comes back when the plan is through: a visit begins as soon as its users are
    there. Where users are on workers, every visit waits for all of them to be there.
    """

    def tick(self) -> None:
        """None, as Locust ends a test, when the plan is through."""
        assert self.runner is not None
        session = session_of(self.runner.environment)
        assert session is not None
        visits = session.visits
        while visits.next_concurrency is not None:
            session.gather()
            if (needed := visits.next_concurrency) is None:
                break
            if session.live_users < needed:
                self._ramp(session, needed)
            else:
                visits.run_next()
        visits.close()
        session.disperse()

    def _ramp(self, session: Session, users: int) -> None:
        """Have Locust start users, and wait until they are there, or should be, or no visit needs them any more."""
        assert self.runner is not None
        until = time.monotonic() + users / SPAWN_RATE + AGAIN_S
        self.runner.start(users, SPAWN_RATE)
        while session.live_users < users and not session.visits.stopped and time.monotonic() < until:
            gevent.sleep(LOOK_S)
