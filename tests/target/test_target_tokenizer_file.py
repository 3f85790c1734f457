"""A tokenizer file is used when the server's own counts agree with it."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from loadkit.plan.errors import ConfigError
from loadkit.target.counting import GUESSED_OVERHEAD
from loadkit.target.tokenizer_file import by_file


@pytest.fixture
def path(tmp_path):
    """A tokenizer.json in which every UTF-8 byte is one token."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer = Tokenizer(models.BPE(vocab={sign: i for i, sign in enumerate(sorted(alphabet))}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_pings_that_agree_prove_it(path):
    """Both leave the same overhead, which is then known; a folder serves as well as the file."""
    for named in (path, path.parent):
        found = by_file(named, [("a" * 20, 31), ("b" * 900, 911)])
        assert (found.overhead_tokens, found.bos_tokens, found.proven) == (11, 0, True)
        assert found.counter.count("abc") == 3
        assert "held against 2 pings" in found.note
        assert found.counter.recipe == ("tokenizer", {"path": str(path)})


@pytest.mark.parametrize("pings", [[("a" * 20, 31), ("b" * 900, 912)], [("a" * 20, 19)]])
def test_pings_that_disagree_refuse_it(path, pings):
    """Another model's tokenizer would put every prompt off by some percent: the counts are shown."""
    with pytest.raises(ConfigError, match="is not the server's: it counts 20 ") as caught:
        by_file(path, pings)
    assert f"the server counted {pings[0][1]}" in caught.value.message


def test_without_any_usage_it_is_labelled(path):
    """The file counts the text, the template is guessed, and nothing is called exact."""
    found = by_file(path, [])
    assert (found.overhead_tokens, found.proven) == (GUESSED_OVERHEAD, False)
    assert "not proven" in found.note


def test_a_file_of_another_kind_is_one_line(tmp_path):
    """Before anything is sent."""
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        by_file(tmp_path, [])
