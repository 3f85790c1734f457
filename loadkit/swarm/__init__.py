"""Many callers at once, on Locust. This is the only room that imports locust, and it does so first.

Importing it patches the standard library for gevent (locust does that), so import it before anything that opens
sockets. What a locustfile needs is here: `PromptUser` to subclass, `LadderUser` and `LadderShape` for the plan,
`install` to hook a run into Locust, and `events` to listen to.
"""

import locust  # noqa: F401  first: it patches what every other import may use

from loadkit.swarm import events
from loadkit.swarm.install import install
from loadkit.swarm.shape import LadderShape
from loadkit.swarm.users import LadderUser, PromptUser

__all__ = ["LadderShape", "LadderUser", "PromptUser", "events", "install"]
