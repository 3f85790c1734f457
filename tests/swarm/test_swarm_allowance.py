"""How workers share the budgets of a run: never more than the whole, and no less than one process would spend."""

# Workers that ask a master; what is said may be lost. A request takes all it might, or less, as most do.
PROGRAM = """
import json, random
from loadkit.plan.budget import Budget, Ledger, Spent
from loadkit.swarm import allowance
from loadkit.swarm.allowance import Allowance
from loadkit.swarm.portions import Portions

allowance.AGAIN_S = 0
MOST = Spent(64, 16)

def run(seed, workers, tokens, takes, lossy):
    rng, over = random.Random(seed), []
    def lost():
        return lossy and rng.random() < 0.3
    def tell(name, what, data):
        asked[0] += 1
        if lost():
            return
        if what == "budget":
            shares[name].given(data["share"])
        else:
            have = shares[name].give_back(data["number"])
            if not lost():
                portions.returned(name, data["number"], have)
    portions = Portions(1.0, workers, lambda: shares, tell, over.append)
    whole = Budget(tokens, 1.0, price_input=1e6 / tokens, price_output=1e6 / tokens)
    ledgers, shares, asked = {}, {}, [0]
    def begin(name):
        def ask(question):
            if not over and not lost():
                portions.ask(name, question["have"], question["need"], question["name"])
        ledgers[name] = Ledger(Budget())
        shares[name] = Allowance(whole, ledgers[name], ask, lambda: bool(over))
        shares[name].ahead()
    for number in range(workers):
        begin(number)
    count, flying = 0, []
    while not over:
        name = rng.choice(list(ledgers))
        limit = ledgers[name].refuse(MOST)
        if limit is None:
            shares[name].ahead()
        if limit is None or shares[name].more(limit, MOST):
            count += 1
            ledgers[name].start(str(count), MOST)
            flying.append((name, str(count)))
        while len(flying) > 3 * workers or (over and flying):
            at, request = flying.pop(0)
            ledgers[at].end({"request_id": request, "target_tokens": 64, "prompt_tokens": 64,
                             "output_tokens": takes, "attempts": [{"outcome": "ok", "http_status": 200}]})
    return [sum(sum(ledger.spent) for ledger in ledgers.values()), asked[0], over[0]]

found = []
for seed in range(12):
    for workers in (1, 2, 7):
        takes = 16 if seed % 2 else 3
        found.append([workers, takes, *run(seed, workers, 20_000, takes, seed % 3 == 0)])
print(json.dumps(found))
"""

SHORT = """
import json
from loadkit.plan.budget import Budget, Ledger, Spent
from loadkit.swarm.allowance import Allowance
from loadkit.swarm.portions import Portions

said, there = [], ["a", "b", "c"]
portions = Portions(0.5, 2, lambda: there, lambda *words: said.append(list(words)), said.append)
portions.ask("a", 0.0, 0.1, "tokens")
portions.ask("a", 0.0, 0.1, "tokens")  # its answer was lost
portions.ask("a", 0.1, 0.1, None)  # ahead: a part of what is left
portions.ask("b", 0.0, 0.3, "tokens")
portions.ask("c", 0.0, 0.01, "tokens")
said.append("short")
portions.ask("c", 0.01, 0.06, "tokens")
portions.ask("a", 0.1, 0.2, "tokens")  # what it has is being asked back: not given more before it is known
portions.returned("a", 0, 0.0)
portions.returned("a", 1, 0.125)
portions.returned("a", 1, 0.0)
said.append("half")
there.remove("b")  # lost, and with it what it had
portions.ask("c", 0.01, 0.06, "tokens")
portions.ask("a", 0.125, 0.2, "tokens")
ledger = Ledger(Budget())
Allowance(Budget(seconds=1.0), ledger, None, None)
print(json.dumps([said, ledger.refuse(Spent(10**9, 10**9))]))
"""

SECOND = """
import json
from types import SimpleNamespace
from loadkit.plan.budget import Budget
from loadkit.swarm.allowance import Allowance
from loadkit.swarm.pacing import Pacing

told = []
for shared in (True, False):
    pacing = Pacing(SimpleNamespace(max_tokens=8), None, Budget(), told.append)
    pacing.ledger.budget = Budget(tokens=0)
    if shared:
        pacing.allowance = Allowance(Budget(tokens=80), pacing.ledger, None, None)
    pacing.every_second()
    told.append("shared" if shared else "alone")
print(json.dumps(told))
"""


def test_workers_together_spend_what_one_process_would_and_no_more(snippet):
    """Whatever is lost on the way: where requests take all they might, a budget that they fit is spent to the last
    token; where they take less, one more would not have fitted beside those that were in flight."""
    for workers, takes, spent, asked, name in snippet(PROGRAM):
        assert 20_000 - (0 if takes == 16 else 79 + 13 * (4 * workers + 1)) <= spent <= 20_000, (workers, takes, spent)
        assert asked < 100 * workers
        assert name == "tokens"


def test_what_a_worker_has_is_known_before_it_gets_more(snippet):
    """An answer that was lost is given again, what is given back counts once, and who is lost is not waited for."""
    said, unlimited = snippet(SHORT)
    short, half = said.index("short"), said.index("half")
    given = [[worker, round(data["share"], 6)] for worker, _, data in said[:short]]
    assert given == [["a", 0.1], ["a", 0.1], ["a", 0.15], ["b", 0.3], ["c", 0.01]]
    back = [["a", "reclaim", {"number": 1}], ["b", "reclaim", {"number": 1}]]
    assert said[short + 1 : half] == back * 2
    (worker, what, data), last = said[half + 1 :]
    assert (worker, what, round(data["share"], 6), last) == ("c", "budget", 0.06, "tokens")
    assert unlimited is None


def test_a_share_that_is_used_up_ends_nothing(snippet):
    """A worker asks for more, and its master decides; who spends alone is at the end of the budget."""
    first, second, last = snippet(SECOND)
    assert (first, last) == ("shared", "alone")
    assert second.startswith("the budget of 0 tokens")
