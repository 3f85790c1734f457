import dataclasses
import json
import mmap
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import loadkit
from loadkit.plan.errors import ConfigError
from loadkit.prompt import PromptKey, build_tier, filler
from loadkit.prompt.build import BuildSpec, build_in_child
from loadkit.prompt.counters import ByteCounter
from loadkit.prompt.store import load, meta, save

KEY = PromptKey(3, "c", 1, 0, "measure")


@pytest.mark.parametrize("shared", [0.0, 0.5])
def test_a_saved_tier_is_the_same_tier(tmp_path: Path, shared: float) -> None:
    """Saving and mapping a tier changes no byte, hash or number of its prompts."""
    built = build_tier(ByteCounter(), 3000, 12, filler("zh"), shared_prefix=shared)
    mapped = load(save(built, tmp_path))
    one, two = built.prompt(KEY), mapped.prompt(KEY)
    assert b"".join(one.content) == b"".join(two.content)
    assert dataclasses.replace(one, content=()) == dataclasses.replace(two, content=())
    assert meta(built) == meta(mapped)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["zh-3000.body", "zh-3000.json"]


def test_a_mapped_body_is_shared_by_all_prompts(tmp_path: Path) -> None:
    """All prompts of a mapped tier are views of one read-only mapping: users add no memory."""
    tier = load(save(build_tier(ByteCounter(), 100_000, 0, filler("en"), shared_prefix=0.5), tmp_path))
    prompts = [tier.prompt(dataclasses.replace(KEY, slot=n)) for n in range(32)]
    bodies = [piece for prompt in prompts for piece in prompt.content if len(piece) > 1000]
    assert len(bodies) == 64
    assert all(isinstance(body, memoryview) and body.readonly for body in bodies)
    assert {id(body.obj) for body in bodies} == {id(tier.body.obj)}
    assert isinstance(tier.body.obj, mmap.mmap)


def test_the_meta_file_holds_no_text(tmp_path: Path) -> None:
    """What goes into a manifest are numbers, hashes and the units of heads, not the body."""
    path = save(build_tier(ByteCounter(), 3000, 0, filler("en")), tmp_path)
    known = json.loads(path.read_text())
    assert known["filler_sha256"] == filler("en").sha256
    assert known["body_bytes"] == path.with_suffix(".body").stat().st_size
    assert filler("en").text[:20] not in path.read_text()


def test_a_damaged_tier_is_refused(tmp_path: Path) -> None:
    """A missing, cut or foreign file is a ConfigError that names it, not a wrong prompt."""
    path = save(build_tier(ByteCounter(), 3000, 0, filler("en")), tmp_path)
    body = path.with_suffix(".body")
    body.write_bytes(body.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="build the tier again"):
        load(path)
    for damage in (lambda: body.write_bytes(b""), lambda: path.write_text("[]"), lambda: body.unlink(), path.unlink):
        damage()
        with pytest.raises(ConfigError, match="en-3000"):
            load(path)


def test_a_child_builds_what_this_process_would(bpe: Any, bpe_file: Path, tmp_path: Path) -> None:
    """Tiers built in a child process and mapped here give the bytes of tiers built here, in the order asked for."""
    spec = BuildSpec("tokenizer", {"path": str(bpe_file)}, (20_000, 512), 14, "zh", str(tmp_path), 0.25)
    for tier, tokens in zip(build_in_child(spec), (20_000, 512), strict=True):
        here = build_tier(bpe, tokens, 14, filler("zh"), shared_prefix=0.25).prompt(KEY)
        there = tier.prompt(KEY)
        assert (there.tokens, there.exact) == (tokens, True)
        assert b"".join(there.content) == b"".join(here.content)
        assert there.sha256 == here.sha256


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"counter_args": {"path": "gone.json"}}, r"no tokenizer\.json at gone\.json"),
        ({"counter": "bytes", "counter_args": {}, "tiers": (3,)}, "a tier of 3 tokens has no room"),
        ({"counter": "nonsense"}, "nonsense"),
        ({"counter": "bytes", "counter_args": {}, "filler": "fr"}, "en, zh"),
        ({"counter": "bytes", "counter_args": {}, "folder": "/nowhere/at/all"}, "No such file"),
    ],
)
def test_what_the_child_cannot_build_is_one_line(tmp_path: Path, change: dict, said: str) -> None:
    """An error in the child arrives as a ConfigError with its own line."""
    spec = BuildSpec("tokenizer", {"path": "gone.json"}, (64,), 0, "en", str(tmp_path))
    with pytest.raises(ConfigError, match=said) as caught:
        build_in_child(dataclasses.replace(spec, **change))
    assert "\n" not in caught.value.message


def test_the_child_command_refuses_nonsense_without_a_traceback() -> None:
    """Anything on stdin but a spec is exit code 2 and one line on stderr."""
    for given in (b"", b"[]", b'{"tiers": []}', b'{"unknown": 1, "tiers": []}'):
        done = subprocess.run(
            [sys.executable, "-m", "loadkit.prompt.build"],
            input=given,
            capture_output=True,
            cwd=Path(loadkit.__file__).parents[1],
        )
        assert done.returncode == 2
        assert len(done.stderr.decode().strip().splitlines()) == 1


def test_a_child_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    """The time of a build is bounded, and the bound is what the error says."""
    spec = BuildSpec("bytes", {}, (100_000,), 0, "en", str(tmp_path))
    with pytest.raises(ConfigError, match="more than 0 s"):
        build_in_child(spec, timeout_s=0)


def test_importing_the_room_loads_no_tokenizer_library() -> None:
    """Workers only splice: importing the room does not load the tokenizer libraries."""
    code = "import sys, loadkit.prompt, loadkit.prompt.store; sys.exit('tokenizers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(loadkit.__file__).parents[1]).returncode == 0
