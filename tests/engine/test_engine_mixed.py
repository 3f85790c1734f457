"""A prompt's chunk and other sequences' next tokens in one pass."""

from __future__ import annotations

import numpy as np
import pytest

from loadkit.engine import hf_folder
from loadkit.engine.model import CHUNK, Model

TOLERANCE = 3e-4


@pytest.mark.parametrize("mode", ["batched", "sequential"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_mixed_pass_gives_everyone_their_logits(golden, threads, mode):
    """Sequences of unequal length that decode beside a prompt read in chunks, and the prompt, get what transformers
    computes for each alone."""
    model = Model(*hf_folder.load(golden.folder, threads), prefill_mode=mode)
    lengths = [1, 60, 33]
    caches = [model.new_cache(100) for _ in lengths]
    for cache, length in zip(caches, lengths, strict=True):
        model.prefill(golden.tokens[:length], cache)
    prompt, cache = golden.tokens[:97], model.new_cache(97)
    for step, size in enumerate([12, 20, 1, 40, 24]):
        start = cache.length
        logits, hidden = model.mixed(
            [golden.tokens[length + step] for length in lengths], caches, prompt[start : start + size], cache
        )
        assert np.abs(logits - golden.logits[[length + step for length in lengths]]).max() < TOLERANCE
        assert np.abs(model.logits(hidden) - golden.logits[start : start + size]).max() < TOLERANCE
    assert [one.length for one in (*caches, cache)] == [6, 65, 38, 97]


def test_a_mixed_pass_keeps_its_bounds(golden):
    """Neither the chunk nor a sequence may grow past its cache, nor all together past a pass."""
    model = Model(*hf_folder.load(golden.folder))
    full, empty = model.new_cache(5), model.new_cache(10)
    model.prefill(golden.tokens[:5], full)
    with pytest.raises(ValueError, match="do not fit"):
        model.mixed([1], [full], [1], empty)
    with pytest.raises(ValueError, match="do not fit"):
        model.mixed([1], [empty], [1], full)
    with pytest.raises(ValueError, match="do not fit"):
        model.mixed([1], [model.new_cache(9)], [1] * CHUNK, model.new_cache(CHUNK))
    assert (full.length, empty.length) == (5, 0)
