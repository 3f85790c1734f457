"""What steers a search for a rate knows of the load generator's health."""

import json
import subprocess
import sys

PROGRAM = """
import locust
import json
from types import SimpleNamespace

from loadkit.measure.histogram import LAG_BOUNDS_S, Histogram
from loadkit.plan.further import Decision
from loadkit.plan.ladder import Cell, Plan, Visit, fit_cells
from loadkit.record.record import Record
from loadkit.swarm.further import Further

CELL = Cell(64, 4, rate=20.0)

def verdict_on(lag_s, *, search=True):
    plan = Plan("rate", (CELL,), 1, duration_s=60.0, rate_search=search)
    seen, visit = [], Visit(0, CELL, 0, True)
    visits = SimpleNamespace(current=visit, stopped=False, left=(), ending=False)
    decide = lambda cells, plan, left: seen.append({name: each.unusable for name, each in cells.items()}) or Decision()
    further = Further(plan, visits, SimpleNamespace(), {}, decide=decide, build=dict, fail=print)
    for number in range(20):
        record = Record(worker="w", visit=0, cell=CELL.id, tier_tokens=64, concurrency=4, rate=20.0, phase="measure",
                        outcome="ok", start_ms=1000.0 * number, done_ms=500.0, itl_ms=[20.0] * 9)
        further.on_record(record=record.to_json())
    lag = Histogram(LAG_BOUNDS_S)
    for _ in range(100):
        lag.add(lag_s * 1e3)
    further.on_sample(row={"kind": "telemetry", "worker": "w", "at_ms": 5000.0, "cell": CELL.id, "cpu": 0.1,
                           "hub_lag": lag.to_wire(), "users_planned": 4, "users_live": 4})
    further.on_sample(row={"kind": "server", "at_ms": 5000.0})
    further.on_closed(visit, None)
    return seen[0][CELL.id]

print(json.dumps([verdict_on(0.0002), verdict_on(0.5), verdict_on(0.5, search=False)]))
"""


def test_a_rate_that_the_client_did_not_keep_up_with_is_marked():
    """A loop that is half a second late with gaps of 20 ms makes the rate unusable, with the reason; one that is in
    time does not, and a run that searches nothing is not judged here."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    in_time, late, no_search = json.loads(done.stdout)
    assert (in_time, no_search) == (None, None)
    assert "event loop lag" in late
