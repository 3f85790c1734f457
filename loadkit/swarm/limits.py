"""What this process cannot do for a plan, said before anything is started."""

import resource

from loadkit.plan.errors import ConfigError
from loadkit.plan.ladder import Plan

FILES_BESIDE_STREAMS = 64


def check_limits(plan: Plan) -> None:
    """Raise the soft limit of open files to what the plan takes; ConfigError where the plan cannot be run here.

    A socket that this system refuses would otherwise look like a server that cannot be reached.
    """
    streams = max(cell.concurrency for cell in plan.cells)
    needed = streams + FILES_BESIDE_STREAMS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(f"{streams} streams take {needed} open files and `ulimit -Hn` allows {hard}: raise it")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
