"""Advice: order of layers, calculation before conclusion, what is asked or refused, and that nothing is changed."""

import ast
import json
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from loadkit.capacity.advise import advice as module
from loadkit.capacity.advise.advice import advise, misreadings, stop_check
from loadkit.capacity.advise.numbers import numbers
from loadkit.capacity.advise.rules import RULES
from loadkit.capacity.advise.situation import Situation, from_facts
from loadkit.capacity.advise.table import LAYERS, ROUTES, actions, engines, layer_of, questions, rejected, table
from loadkit.capacity.errors import CardError

PLAIN = {
    "engine": "llama.cpp", "weights_gb": 4.9, "mem_gb": 24, "users": 1, "ctx_set": 8192, "quant_bits": 4,
    "kv_bytes_per_token": 131_072,
}  # fmt: skip
BIG = {**PLAIN, "engine": "vllm", "weights_gb": 40, "mem_gb": 80, "kv_bytes_per_token": 327_680}


def told(**more):
    return advise(from_facts({**PLAIN, **more}))


def big(**more):
    return advise(from_facts({**BIG, **more}))


def test_questions_come_one_by_one_in_order():
    """Without an answer there is no advice, only the next question; each answer brings the one behind it."""
    asked, facts = [], {}
    while (found := advise(from_facts(facts))).layer == "ask":
        field = found.questions[0]["field"]
        assert (found.action, found.numbers, found.calculation) == (f"ask:{field}", None, ())
        assert found.why == found.questions[0]["ask"]
        asked.append(field)
        facts[field] = PLAIN[field]
    assert asked == ["engine", "weights_gb", "mem_gb", "users", "ctx_set", "quant_bits", "kv_bytes_per_token"]


def test_a_card_spares_the_question_of_size():
    """Where a card is at hand, the quantisation is asked and the size follows from it."""
    assert advise(from_facts({"engine": "vllm"}), carded=True).action == "ask:quant_bits"
    assert advise(from_facts({"engine": "vllm", "quant_bits": 4}), carded=True).action == "ask:weights_gb"


def test_every_answer_has_a_question():
    """The fields of a situation and the questions of the table are the same."""
    assert {field.name for field in fields(Situation)} == {each["field"] for each in questions()}


def test_the_calculation_is_shown_in_both_units():
    """GB and GiB, which of weights and cache is larger, and what lacks."""
    found = big(users=8, ctx_set=32_768)
    assert found.calculation == (
        "weights  40.00 GB (37.25 GiB) at 4 bits",
        "cache    327,680 B x 32768 tokens x 8 = 85.90 GB (80.00 GiB)",
        "need     weights + cache + 1.00 GB (0.93 GiB) = 126.90 GB (118.18 GiB)",
        "budget   0.9 x 80.00 GB (74.51 GiB) = 72.00 GB (67.06 GiB): it does not fit",
        "larger   the cache; the cache is 107% of the memory",
    )


@pytest.mark.parametrize(
    ("more", "cut"),
    [
        ({"ctx_set": 131_072}, 16_384),  # need unknown: 16K, though 64K would fit
        ({"ctx_set": 131_072, "ctx_needed": 131_072}, 65_536),  # needed, and could be less: the largest that fits
        ({"ctx_set": 131_072, "ctx_needed": 20_000}, 20_000),  # what is needed fits
        ({"ctx_set": 32_768, "users": 8}, 8192),  # 16K does not fit for eight
        ({"ctx_set": 16_384, "users": 8}, 8192),
    ],
)
def test_contexts_that_are_cut(more, cut):
    """To the need, to 16K where nobody knows it, or to the largest power of two that fits."""
    found = big(**more)
    assert (found.layer, found.action, found.route) == ("scheduling", f"cut_context_to_{cut}", "fewer bytes")
    assert f"--max-model-len {cut} " in found.launch
    assert big(**{**more, "ctx_set": cut, "ctx_needed": None}).numbers.fits


def test_a_context_declared_far_too_long():
    """It fits, and is cut where it is twice the need and takes a fifth of the memory; not where it costs little."""
    assert told(ctx_set=65_536, ctx_needed=8192).action == "cut_context_to_8192"
    assert told(ctx_set=8192, ctx_needed=2048).layer == "none"
    assert told(ctx_set=65_536, ctx_needed=40_000).layer == "none"


def test_a_hard_context_changes_the_model():
    """Not a bigger one: one with a smaller cache."""
    found = big(ctx_set=32_768, users=40, ctx_hard=True)
    assert (found.layer, found.action) == ("architecture", "kv_saving_model")
    assert "not to a bigger one" in found.title


@pytest.mark.parametrize(
    ("weights", "moe", "action"),
    [
        (25, True, "n_cpu_moe"),
        (25, False, "partial_offload_ngl"),
        (29.4, None, "partial_offload_ngl"),
        (29.5, None, "smaller_or_moe_model"),
        (400, True, "n_cpu_moe"),
    ],
)
def test_weights_that_do_not_fit_at_4_bit(weights, moe, action):
    """Experts of a mixture, layers of a dense model short of up to 30 %, else a smaller model. Engines are named."""
    found = told(weights_gb=weights, moe=moe)
    assert found.action == action
    assert "llama.cpp --n-cpu-moe" in found.title or "-ngl" in found.title
    assert ("KTransformers" in found.title) == (action != "partial_offload_ngl")
    assert {each["field"] for each in found.questions} >= {"layers", "pcie_gen"}


def test_offloading_in_numbers():
    """How many layers, and what the PCIe generation makes of what lacks."""
    dense = told(weights_gb=25, layers=50, pcie_gen=4)
    assert "-ngl 41" in dense.launch
    assert "PCIe 4   16 lanes move 31.5 GB/s: copying what lacks takes 0.14 s" in dense.calculation
    routed = told(weights_gb=30, layers=48, moe=True, pcie_gen=3)
    assert routed.launch.endswith("-ngl 99 --n-cpu-moe 16")
    assert any("15.75 GB/s" in text for text in routed.calculation)
    assert "-ngl N" in told(weights_gb=25).launch


def test_16_bit_is_quantised_before_layers_are_offloaded():
    """Rows A09 against A11: 8 bit and more goes to 4 bit first, and the stop questions stand with it."""
    found = told(weights_gb=16.06, quant_bits=16, mem_gb=12, ctx_set=4096)
    assert (found.layer, found.action, found.reversible) == ("weights", "quantise_to_4bit", False)
    assert [each["ask"] for each in found.stop] == [each["ask"] for each in table()["stop"]]
    assert found.stop[0]["known"] == "no"
    assert any("70B at Q4 (40 GB) before 13B at 16 bit (26 GB)" in note for note in found.notes)
    assert told(weights_gb=16.06, quant_bits=8, min_quant_bits=8, mem_gb=12, ctx_set=4096).layer == "architecture"


def test_prune_for_speed_is_turned_down():
    """The wish is answered, and the advice goes on."""
    found = told(users=8, engine="ollama", want="prune_for_speed")
    assert found.rejected == "pruning buys memory, not speed"
    assert found.action == "continuous_batching_engine"


def test_4_bit_is_where_to_stop():
    """Lower bits are turned down at 4 bit, with the imatrix rule, and not at 8."""
    assert "Q3 and below only with an imatrix" in told(want="lower_bits").rejected
    assert told(want="lower_bits", quant_bits=8).rejected is None
    stop = stop_check(from_facts(PLAIN), numbers(from_facts(PLAIN)))
    assert "stop here" in stop[2]["known"]
    assert "3 bit: visible loss; only with an imatrix" in stop[2]["known"]


def test_a_draft_model():
    """Speculation pays for one user with memory left and a target in reach, where nothing can be quantised."""
    facts = {"bw_gbs": 936, "target_tps": 200, "draft_gb": 0.5}
    found = told(**facts)
    assert (found.layer, found.action, found.route) == ("scheduling", "speculative_decoding", "more tokens per read")
    assert "-md" in found.launch
    assert told(**{**facts, "target_tps": 400}).layer == "architecture"
    assert told(**{**facts, "draft_gb": 20}).layer == "architecture"
    assert told(**facts, users=2, engine="vllm").layer == "architecture"


def test_the_target_is_reached():
    """A rate measured at the target asks for nothing."""
    facts = {"bw_gbs": 936, "target_tps": 100}
    assert told(**facts).action == "check_efficiency"
    assert told(**facts, measured_tps=101).layer == "none"


def test_two_budgets():
    """Largest total from memory, largest active from bandwidth, in parameters at 4 bit."""
    found = told(bw_gbs=936, target_tps=100)
    room = 21.6 - 1.0737 - 1
    assert found.budgets["largest_total"] == pytest.approx(room * 8e9 / 4.88, rel=1e-3)
    assert found.budgets["largest_active"] == pytest.approx((0.85 * 9.36 - 1.0737) * 8e9 / 4.88, rel=1e-3)
    assert told().budgets["largest_active"] is None


def test_active_parameters_decide_the_speed():
    """27B dense against 3B active at equal bits: nine times the bytes."""
    dense = told(weights_gb=27, mem_gb=80, kv_bytes_per_token=1, bw_gbs=936, target_tps=1)
    routed = told(weights_gb=35, active_gb=3, moe=True, mem_gb=80, kv_bytes_per_token=1, bw_gbs=936, target_tps=1)
    assert routed.numbers.roofline_tps / dense.numbers.roofline_tps == pytest.approx(9.0, abs=0.01)


def test_three_misreadings_with_this_models_numbers():
    """Pruning, full memory, and long chats: eight of 32K take 85.9 GB of a 70B's cache."""
    said = misreadings(327_680)
    assert len(said) == 3
    assert "85.9 GB (80.0 GiB)" in said[2]["is"]
    assert "knee" in said[1]["is"]


def test_actions_and_their_layers():
    """Each action has its layer and one of three routes; none at all only where nothing is moved."""
    layers = {key: layer_of(row.get("name", key).format(cut=8192)) for key, row in actions().items()}
    assert layers["continuous_batching_engine"] == "engine"
    assert layers["n_cpu_moe"] == layers["speculative_decoding"] == layers["cut_context"] == "scheduling"
    assert layers["kv_saving_model"] == "architecture"
    assert layers["quantise_to_4bit"] == "weights"
    for row in actions().values():
        assert (row["route"] in ROUTES) == (row["layer"] in LAYERS)
    assert {rule.action for rule in RULES} | {"keep", "ask"} == set(actions())
    with pytest.raises(KeyError):
        layer_of("reboot")


def test_a_single_user_who_fits_is_not_moved():
    """Neither from a simple engine nor from a server."""
    for engine in engines():
        assert told(engine=engine).action == "keep_or_simpler_engine"


@pytest.mark.parametrize("engine", sorted(name for name, row in engines().items() if "start" in row))
def test_launch_commands_are_filled_in(engine):
    """No brace is left, and the model stands in it wherever the engine takes one."""
    for more in ({}, {"shared_prefix_share": 0.9, "prefix_reuse": False}, {"users": 3}, {"weights_gb": 25}):
        command = advise(from_facts({**PLAIN, "engine": engine, **more}), "org/model").launch
        assert command is None or not set("{}") & set(command.replace('{"model"', "").replace("}'", ""))


FACTS = st.fixed_dictionaries(
    {
        "engine": st.sampled_from(sorted(engines())),
        "weights_gb": st.floats(0.5, 500),
        "mem_gb": st.floats(4, 640),
        "users": st.integers(1, 64),
        "ctx_set": st.sampled_from([2048, 8192, 32_768, 131_072]),
        "quant_bits": st.sampled_from([4, 4.88, 5.7, 8, 16]),
        "kv_bytes_per_token": st.floats(1000, 400_000),
    },
    optional={
        "ctx_needed": st.sampled_from([512, 2048]),
        "ctx_hard": st.booleans(),
        "moe": st.booleans(),
        "layers": st.integers(1, 100),
        "shared_prefix_share": st.floats(0, 1),
        "prefix_reuse": st.booleans(),
        "prefill_share": st.floats(0, 1),
        "bw_gbs": st.floats(10, 4000),
        "target_tps": st.floats(1, 300),
        "draft_gb": st.floats(0.1, 5),
        "want": st.sampled_from(sorted(rejected())),
    },
)


@drawn(FACTS)
@settings(max_examples=150)
def test_weights_are_last_and_everything_is_shown(facts):
    """No rule of a layer before the advised one matches; every answer has a route, numbers and a calculation."""
    given = from_facts(facts)
    found, made = advise(given), numbers(given)
    order = [*LAYERS, "measure", "none"]
    assert found.layer in order
    for rule in RULES:
        if order.index(actions()[rule.action]["layer"]) < order.index(found.layer):
            assert rule.test(given, made) is None, rule.action
    assert found.route in ROUTES or found.layer in ("measure", "none")
    assert len(found.calculation) >= 5
    assert made.fits == (made.need_gb <= made.budget_gb)
    assert [each["layer"] for each in found.layers] == list(LAYERS)
    assert (len(found.stop) == 4) == (found.layer == "weights")
    assert json.loads(json.dumps(found.as_dict()))["action"] == found.action


@drawn(FACTS)
@settings(max_examples=60)
def test_what_is_cut_fits(facts):
    """A cut context is shorter than the declared one, and what it leaves fits the budget."""
    given = from_facts(facts)
    found = advise(given)
    if found.action.startswith("cut_context_to_"):
        cut = int(found.action.rsplit("_", 1)[1])
        assert cut < given.ctx_set
        assert numbers(from_facts({**facts, "ctx_set": cut, "ctx_needed": None})).fits


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"mem_gb": -80}, "mem_gb must be above 0, it is -80"),
        ({"mem_gb": "-80GB"}, "is no size above 0"),
        ({"weights_gb": float("nan")}, "weights_gb must be a number"),
        ({"users": 10**400}, "users must be a number, it is out of all proportion"),
        ({"mem_gb": float("inf")}, "mem_gb must be a number, it is inf"),
        ({"users": 0}, "users must be a whole number of at least 1"),
        ({"users": 1.5}, "users must be a whole number"),
        ({"users": True}, "users must be a number"),
        ({"engine": "magic"}, "engine: 'magic' is not known, only ollama, llama.cpp, vllm"),
        ({"want": "speed"}, "want: 'speed' is not known"),
        ({"moe": "perhaps"}, "answer yes or no"),
        ({"moe": 1}, "moe is yes or no"),
        ({"ctx_set": "long"}, "is no number"),
        ({"prefill_share": 80}, "a share from 0 to 1"),
        ({"quant_bits": 64}, "at most 32"),
        ({"quant_bits": "q9"}, "quantisation 'q9' is not known"),
        ({"colour": 1}, "'colour' is not asked for"),
        ({"active_gb": 9, "weights_gb": 5}, "contradict each other: GB of the weights"),
        ({"ctx_needed": 9000, "ctx_set": 4096}, "ctx_needed 9000 and ctx_set 4096 contradict"),
        ({"min_quant_bits": 8, "quant_bits": 4}, "contradict each other: the weights cannot be narrower"),
        ({"moe": False, "active_gb": 1, "weights_gb": 5}, "a dense model reads all its weights"),
    ],
)
def test_contradictory_facts_are_named(facts, message):
    """Nothing is computed from what cannot be."""
    with pytest.raises(CardError, match=message):
        from_facts(facts)


def test_answers_in_words():
    """Sizes, lengths and quantisations as people write them."""
    facts = {"weights_gb": "4900MB", "ctx_set": "32K", "quant_bits": "q8_0", "moe": "Yes", "mem_gb": "24", "users": "2"}
    given = from_facts({**facts, "description": "not read"})
    assert (given.weights_gb, given.ctx_set, given.quant_bits, given.moe) == (4.9, 32_768, 8.5, True)
    assert (given.mem_gb, given.users) == (24, 2)


def test_nothing_is_written_or_run_by_the_advisor():
    """It only suggests: none of its modules opens a file to write, starts a program or opens a socket."""
    banned = {"open", "write_text", "write_bytes", "exec", "eval", "system", "popen", "unlink", "mkdir"}
    for file in Path(module.__file__).parent.glob("*.py"):
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                assert name not in banned, f"{file.name} calls {name}"
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                assert not {n.split(".")[0] for n in names} & {"subprocess", "socket", "os", "shutil", "httpx"}
