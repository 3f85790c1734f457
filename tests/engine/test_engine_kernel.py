"""The parts of the kernel: products with few and many rows, threads that meet, dimensions, the two prefill modes."""

from __future__ import annotations

import threading
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadkit.engine import builtin, dims, hf_folder, products
from loadkit.engine.errors import EngineError
from loadkit.engine.model import Model
from loadkit.engine.products import project
from loadkit.engine.team import Abandoned, Team

CATALOGUE = Path(__file__).parents[2] / "loadkit" / "capacity" / "catalogue.toml"


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 20), inputs=st.integers(0, 40), outputs=st.integers(0, 90), small=st.integers(1, 900))
def test_a_product_is_the_same_for_any_number_of_rows(rows, inputs, outputs, small):
    """One row, blocks of any size with any rest, and many rows give x @ matrix.T, also inside a wider array."""
    rng = np.random.default_rng(rows + 100 * inputs + 10_000 * outputs)
    x = rng.standard_normal((rows, inputs)).astype(np.float32)
    wide = rng.standard_normal((outputs, inputs + 5)).astype(np.float32)
    out = np.full((rows, outputs + 7), 9.0, np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "SMALL", small)
        project(x, wide[:, 3 : 3 + inputs], out[:, 2 : 2 + outputs])
    expected = x.astype(float) @ wide[:, 3 : 3 + inputs].T.astype(float)
    np.testing.assert_allclose(out[:, 2 : 2 + outputs], expected, atol=1e-4)
    assert (out[:, :2] == 9).all()
    assert (out[:, 2 + outputs :] == 9).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_threads_part_of_a_layer_is_one_run_of_memory(threads):
    """Its matrices stand one behind the other, and all parts together are the layer, each weight once."""
    config = dims.of("qwen2.5-0.5b")
    config = replace(config, layers=1, hidden=12, heads=6, kv_heads=3, head_dim=2, ffn=7, vocab=5)
    ((whole,),) = builtin.random_weights(config, 1).layers
    (parts,) = builtin.random_weights(config, 1, threads).layers
    assert len(parts) == threads
    for part in parts:
        ends = [matrix.ctypes.data + matrix.nbytes for matrix in part.matrices]
        assert [matrix.ctypes.data for matrix in part.matrices[1:]] == ends[:-1]
        assert all(matrix.flags.c_contiguous for matrix in part.matrices)
    np.testing.assert_array_equal(np.concatenate([part.qkv for part in parts]), whole.qkv)
    np.testing.assert_array_equal(np.concatenate([part.out for part in parts], axis=1), whole.out)
    np.testing.assert_array_equal(np.concatenate([part.down for part in parts], axis=1), whole.down)
    gates_ups = [part.gate_up.reshape(2, -1, 12) for part in parts]
    np.testing.assert_array_equal(np.concatenate(gates_ups, axis=1).reshape(-1, 12), whole.gate_up)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_team_meets(size):
    """After a meeting every thread sees what every other wrote before it, over and over."""
    team, rounds = Team(size), 50
    seen = np.zeros((size, rounds))
    written = np.zeros((2, size))

    def work(rank: int) -> None:
        for turn in range(rounds):
            written[turn % 2, rank] = turn + rank
            team.meet(rank)
            seen[rank, turn] = written[turn % 2].sum()

    team.run(work)
    np.testing.assert_array_equal(seen, [[turn * size + size * (size - 1) / 2 for turn in range(rounds)]] * size)


@pytest.mark.parametrize("fails", [0, 1, 2])
def test_a_failure_reaches_the_caller_and_ends_the_pass(fails):
    """The error of the thread that failed is raised, not that of those who waited for it; the next pass works."""
    team, abandoned = Team(3), []

    def work(rank: int) -> None:
        team.meet(rank)
        if rank == fails:
            raise MemoryError("no room")
        try:
            team.meet(rank)
        except Abandoned:
            abandoned.append(rank)
            raise

    with pytest.raises(MemoryError, match="no room"):
        team.run(work)
    assert sorted(abandoned) == [rank for rank in range(3) if rank != fails]
    met = []
    team.run(lambda rank: (team.meet(rank), met.append(rank)))
    assert sorted(met) == [0, 1, 2]


def test_a_team_of_one_is_the_caller():
    """With one thread the work runs in the calling one."""
    names = []
    Team(1).run(lambda rank: names.append(threading.current_thread().name))
    assert names == [threading.current_thread().name]


def test_dimensions_equal_the_catalogue():
    """Every named model has the dimensions and the parameter count of the catalogue's card, by the card's own alias."""
    cards = tomllib.loads(CATALOGUE.read_text("utf-8"))["model"]
    by_alias = {alias: card for card in cards for alias in card["aliases"]}
    for name, config in dims.DIMENSIONS.items():
        card = by_alias[name]
        told = {key: value for key, value in config.dimensions.items() if key in card["dims"]}
        assert told == {key: value for key, value in card["dims"].items() if key in told}, name
        assert {"layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "tied"} <= told.keys()
        assert config.qkv_bias == card["dims"].get("qkv_bias", False)
        assert config.qk_norm == card["dims"].get("qk_norm", False)
        assert config.parameters == card["params"]
    with pytest.raises(EngineError, match=r"qwen2\.5-0\.5b"):
        dims.of("gpt-2")


def test_sequential_prefill_changes_nothing(golden):
    """Token by token gives the logits of batches, at every position, and decode goes on from there."""
    model = Model(*hf_folder.load(golden.folder, 2), prefill_mode="sequential")
    cache = model.new_cache(60)
    logits = model.logits(model.extend(golden.tokens[:40], cache))
    assert np.abs(logits - golden.logits[:40]).max() < 3e-4
    (logits,) = model.decode([golden.tokens[40]], [cache])
    assert np.abs(logits - golden.logits[40]).max() < 3e-4


def test_sequential_prefill_reads_the_weights_for_every_token(golden, monkeypatch):
    """A prompt of 7 tokens is 7 passes of one row, or one pass of 7."""
    for mode, passes in (("sequential", [1] * 7), ("batched", [7])):
        model = Model(*hf_folder.load(golden.folder), prefill_mode=mode)
        lane, rows = model._lanes[0], []
        run = lane.run
        monkeypatch.setattr(lane, "run", lambda *given, run=run, rows=rows: (rows.append(len(given[1])), run(*given)))
        model.prefill(golden.tokens[:7], model.new_cache(7))
        assert rows == passes


@pytest.mark.parametrize("rows", [1, 2, 17])
def test_many_sequences_decode_as_each_alone(rows):
    """1 to 17 streams of unequal lengths, whatever way their number multiplies, get the logits each gets alone."""
    config = builtin.CONFIG
    model = Model(config, builtin.random_weights(config, 1, 2), context=128)
    lengths = [1 + 13 * row % 30 for row in range(rows)]
    caches = []
    for length in lengths:
        caches.append(model.new_cache(80))
        model.prefill([token % 250 for token in range(length)], caches[-1])
    together = model.decode([7] * rows, caches)
    for row in range(0, rows, 8):
        alone = model.new_cache(80)
        logits = model.prefill([*(token % 250 for token in range(lengths[row])), 7], alone)
        assert np.abs(logits - together[row]).max() < 1e-4
