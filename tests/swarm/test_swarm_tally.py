"""What the page /llm counts: repeated visits are left out, a resumed run counts its folder, memory is bounded.

Swarm patches the standard library, so every test runs in a process of its own.
"""

GAPS = """
import json, random
from loadkit.swarm.judge import KEPT, Gaps

rng = random.Random(7)
gaps, told, ends = Gaps(), [], []
for _ in range(9000):
    answer = [rng.gauss(20, 3) for _ in range(rng.randrange(40))]
    gaps.add(answer)
    told += answer
    ends.append(len(gaps.values))
stride = -(-len(told) // len(gaps.values))
kept = list(gaps.values)
few = Gaps()
few.add([1.0, 2.0, 3.0])
few.add([])
print(json.dumps([KEPT, max(ends), kept == told[::stride], stride, list(few.values)]))
"""

TALLY = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from loadkit.record.record import Record
from loadkit.swarm import events
from loadkit.swarm.tally import Tally

folder = Path("records.jsonl")

def record(visit, ttft, cell="32x1", outcome="ok", phase="measure"):
    row = Record(visit=visit, cell=cell, ttft_ms=ttft, tpot_ms=ttft / 10, outcome=outcome, phase=phase, worker="w",
                 start_ms=0.0, done_ms=ttft, itl_ms=[])
    return row.to_json()

def planned(index, cell="32x1", state="planned"):
    return {"visit": index, "cell": cell, "round": 1, "state": state}

old = {name: value for name, value in record(0, 1.0).items() if value is not None}
folder.write_text(json.dumps(old) + "\\n")
visits = [planned(0, state="done"), planned(1), planned(2, "64x1")]
session = SimpleNamespace(
    manifest=SimpleNamespace(visits=visits), folder=SimpleNamespace(records_path=folder), ladder=True,
    records=events.Hook(), samples=events.Hook(),
)
tally = Tally(session)

def shown():
    return [[row.cell, row.state, f"{row.closed}/{row.visits}", list(row.part.ttft), list(row.part.tpot),
             dict(row.part.outcomes), row.validity.status, row.unjudged] for row in tally.rows()] + [tally.left]

def stage(visit, state):
    visits[visit]["state"] = state
    events.stage.fire(run_id="r", cell=visits[visit]["cell"], visit=visit, state=state)

seen = [shown()]
stage(1, "open")
for row in (record(1, 30.0), record(1, 20.0), record(1, 9.0, outcome="rate_limited"), record(1, 5.0, phase="drain")):
    session.records.fire(record=row)
seen.append(shown())
stage(1, "done")
visits[1] |= {"validity": {"status": "invalid", "reasons": ["a worker was lost"]}, "repeated_as": 3}
visits.append(planned(3) | {"repeats": 1})
stage(3, "open")
session.records.fire(record=record(3, 40.0))
stage(3, "done")
seen.append(shown())
visits[3]["validity"] = {"status": "invalid", "reasons": ["a worker was lost"]}
seen.append([row.validity.reasons for row in tally.rows()])
print(json.dumps(seen))
"""


def test_few_gaps_stand_for_many(snippet):
    """Of any stream of gaps at most KEPT are kept: evenly, whatever the lengths of the answers; of few, all."""
    kept, most, evenly, stride, few = snippet(GAPS)
    assert most <= kept
    assert evenly
    assert stride > 1
    assert few == [1.0, 2.0, 3.0]


def test_cells_are_tallied_and_a_repeated_visit_is_left_out(snippet):
    """Times of measured answers only, outcomes of all; what the folder of a resumed run holds counts unjudged."""
    before, running, repeated, reasons = snippet(TALLY)
    assert before == [
        ["32x1", "started", "1/2", [1.0], [0.1], {"ok": 1}, "valid", 1],
        ["64x1", "planned", "0/1", [], [], {}, "valid", 0],
        2,
    ]
    cell = ["32x1", "running", "1/2", [1.0, 20.0, 30.0], [0.1, 2.0, 3.0], {"ok": 4, "rate_limited": 1}, "valid", 1]
    assert running[0] == cell
    assert repeated[0][:6] == ["32x1", "done", "2/2", [1.0, 40.0], [0.1, 4.0], {"ok": 2}]
    assert repeated[-1] == 1
    assert reasons == [["a worker was lost"], []]
