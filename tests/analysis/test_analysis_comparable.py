"""Which runs may be compared: one thing differs, and it is not one that makes two runs two worlds."""

import copy

import pytest

from loadkit.analysis.comparable import GUARD, changes, one_thing

MANIFEST = {
    "plan": {
        "name": "grid",
        "cells": [{"tier_tokens": 128, "concurrency": 1}, {"tier_tokens": 128, "concurrency": 2}],
        "seed": 7,
        "rounds": 3,
        "max_tokens": 16,
        "temperature": 0.0,
        "ignore_eos": False,
        "filler": "en",
        "slo": "",
        "tokenizer": None,
        "headers": {"X-Team": "a-secret"},
        "extra_body": {"top_k": 1},
    },
    "endpoint": {"name": "lab", "base_url": "http://user:pass@host:8000/v1?key=k", "model": "m1", "protocol": "chat"},
    "target": {"kind": "endpoint"},
    "prompts": {"counter": "server", "bos_tokens": 1, "tiers": [{"filler_sha256": "ab" * 32}]},
    "host": {"machine": "x86_64", "cpus": 2, "system": "Linux"},
    "versions": {"loadkit": "0.1.0", "numpy": "2.4"},
    "run_id": "one",
    "started_at": "2026-01-01T00:00:00",
}


def other(**paths):
    """The manifest with values replaced; plan__seed=3 replaces manifest["plan"]["seed"]."""
    manifest = copy.deepcopy(MANIFEST)
    for path, value in paths.items():
        *parents, last = path.split("__")
        place = manifest
        for name in parents:
            place = place[name]
        place[last] = value
    return manifest


@pytest.mark.parametrize(
    ("changed", "name", "shown"),
    [
        ({"endpoint__model": "m2"}, "model", ("m1", "m2")),
        ({"endpoint__base_url": "http://other/v1"}, "endpoint", ("http://host:8000/v1", "http://other/v1")),
        ({"endpoint__protocol": "completions"}, "protocol", ("chat", "completions")),
        ({"plan__ignore_eos": True}, "ignore_eos", ("no", "yes")),
        ({"plan__rounds": 5}, "rounds", ("3", "5")),
        ({"plan__extra_body": {"top_k": 2}}, "extra_body top_k", ("1", "2")),
        ({"plan__extra_body": {}}, "extra_body top_k", ("1", "nothing")),
        ({"plan__headers": {"X-Team": "another"}}, "header X-Team", ("(a value)", "(a value)")),
        ({"versions__loadkit": "0.2.0"}, "loadkit version", ("0.1.0", "0.2.0")),
    ],
)
def test_one_thing_is_named(changed, name, shown):
    """The thing that differs, with both values; no key and no header value is among them."""
    change = one_thing(MANIFEST, other(**changed))
    assert (change.name, change.shown) == (name, shown)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"host__machine": "aarch64"}, "hardware"),
        ({"host__cpus": 64}, "hardware"),
        ({"plan__cells": [{"tier_tokens": 128, "concurrency": 4}]}, "concurrency"),
        ({"plan__max_tokens": 32}, "max_tokens"),
        ({"plan__filler": "zh"}, "filler"),
        ({"prompts__tiers": [{"filler_sha256": "cd" * 32}]}, "filler"),
        ({"plan__prompts": "texts.jsonl"}, "filler"),
        ({"plan__temperature": 0.7}, "temperature"),
        ({"plan__seed": 8}, "prompt seed"),
    ],
)
def test_the_guard_refuses_alone(changed, name):
    """Each guarded thing is refused although it is the only one, and named with both values."""
    assert name in GUARD
    with pytest.raises(ValueError, match=f"nothing is compared across {name}. The runs differ in {name}: "):
        one_thing(MANIFEST, other(**changed))


def test_more_than_one_thing_is_refused_with_all_names():
    """Model and a setting: both are in the message."""
    with pytest.raises(ValueError, match="differ in 2: model: m1 against m2; ignore_eos: no against yes"):
        one_thing(MANIFEST, other(endpoint__model="m2", plan__ignore_eos=True))


def test_the_guard_names_everything_and_says_how_to_repeat():
    """With a guarded thing all that differs is listed, and the seed has its option."""
    with pytest.raises(ValueError, match=r"across temperature, prompt seed.*model: m1 against m2; give both .* --seed"):
        one_thing(MANIFEST, other(plan__seed=8, plan__temperature=1.0, endpoint__model="m2"))


def test_what_says_nothing_about_numbers_is_no_difference():
    """Names, times, objectives, tiers and library versions may differ."""
    cells = [{"tier_tokens": tier, "concurrency": n} for tier in (256, 512) for n in (1, 2)]
    repeat = other(run_id="two", plan__slo="ttft=1s", plan__name="other", versions__numpy="3", plan__cells=cells)
    assert one_thing(MANIFEST, repeat) is None


def test_what_follows_from_the_model_is_the_model():
    """Another model has another tokenizer, size and BOS: one thing."""
    facts = {"kind": "engine", "parameters": 100, "dtype": "float32", "threads": 2, "bos_tokens": 0, "pid": 1}
    a = other(target=facts)
    b = other(target=facts | {"parameters": 200, "dtype": "float16", "bos_tokens": 1, "pid": 2}, plan__tokenizer="t")
    b["endpoint"]["model"] = "m2"
    assert [change.name for change in changes(a, b)] == ["model"]


def test_a_target_of_our_own_is_not_its_port():
    """The simulator gets a new port each time; its law is a setting."""
    facts = {"kind": "sim", "url": "http://127.0.0.1:1/v1", "law": {"ttft_ms": 50.0}, "slots": 0}
    a = other(target=facts, endpoint__base_url="http://127.0.0.1:1/v1")
    b = other(target={**facts, "url": "http://127.0.0.1:2/v1"}, endpoint__base_url="http://127.0.0.1:2/v1")
    assert one_thing(a, b) is None
    b["target"]["law"] = {"ttft_ms": 60.0}
    assert str(one_thing(a, b)) == "target law.ttft_ms: 50.0 against 60.0"
    b["target"] = {"kind": "endpoint"}
    assert one_thing(a, b).name == "endpoint"


@pytest.mark.parametrize("damaged", [{}, {"plan": 3, "endpoint": [], "host": None}, {"plan": {"cells": "x"}}])
def test_a_damaged_manifest_is_different_and_no_fault(damaged):
    """What is missing on one side differs; two that both lack everything do not."""
    assert changes(MANIFEST, damaged)
    assert changes(damaged, damaged) == []
