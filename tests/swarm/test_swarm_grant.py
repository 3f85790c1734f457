"""What a worker may begin of a visit, where a budget has room for so many requests."""

import json
import subprocess
import sys

PROGRAM = """
import locust
import json

from loadkit.swarm.grant import Grant

said = []
answers = [True]
grant = Grant(lambda visit, ticket: answers[-1], lambda: said.append("used up"))
free = [grant.before(None, None) for _ in range(5)]
grant.give(2)
two = [grant.before(None, None) for _ in range(3)]
over, told = grant.over, len(said)
grant.give(2)
fresh = grant.over
answers.append(False)
refused = [grant.before(None, None) for _ in range(4)]
answers.append(True)
after = [grant.before(None, None) for _ in range(3)]
print(json.dumps([free, two, over, told, fresh, refused, after, len(said)]))
"""


def test_no_more_requests_begin_than_were_given():
    """Two of three; without a limit all; one that is not sent after all may be sent by another."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    free, two, over, told, fresh, refused, after, in_all = json.loads(done.stdout)
    assert free == [True] * 5
    assert (two, over, told) == ([True, True, False], True, 1)
    assert (fresh, refused) == (False, [False] * 4)
    assert (after, in_all) == ([True, True, False], 2)
