import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from loadkit.plan.errors import ConfigError
from loadkit.prompt.counters import (
    COUNTERS,
    PATTERNS,
    Counter,
    CountError,
    CountTooSlow,
    ServerCounter,
    TokenizerJsonCounter,
    tokenizer_counter,
)

Server = Callable[[str], tuple[str, list[dict]]]


def _write_ranks(path: Path, n: int) -> Path:
    tokens = [bytes([i]) for i in range(256)] + [b"%06d" % i for i in range(n - 256)]
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens)))
    return path


class _FakeEncoding:
    """Stands for tiktoken.Encoding: one token for each byte it has a rank for."""

    def __init__(self, name: str, *, pat_str: str, mergeable_ranks: dict[bytes, int], special_tokens: dict) -> None:
        self._ranks = mergeable_ranks

    def encode_ordinary(self, text: str) -> list[int]:
        return [self._ranks[bytes([byte])] for byte in text.encode()]


class _FakeProcessor:
    """Stands for sentencepiece.SentencePieceProcessor: one token for each word."""

    def __init__(self, *, model_file: str) -> None:
        if Path(model_file).read_bytes() != b"model":
            raise RuntimeError("Internal: could not parse ModelProto")

    def encode(self, text: str) -> list[int]:
        return [0] * len(text.split())

    def bos_id(self) -> int:
        return 1


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two optional libraries, replaced by small ones with the calls we use."""
    monkeypatch.setitem(sys.modules, "tiktoken", SimpleNamespace(Encoding=_FakeEncoding))
    monkeypatch.setitem(sys.modules, "sentencepiece", SimpleNamespace(SentencePieceProcessor=_FakeProcessor))


@pytest.fixture(params=sorted(COUNTERS))
def counter(
    request: pytest.FixtureRequest, tmp_path: Path, bpe_file: Path, libraries: None, tokenize_server: Server
) -> Any:
    """Every counter of the dict, made the way its users make it."""
    (tmp_path / "tokenizer.model").write_bytes(b"model")
    arguments: dict[str, Callable[[], tuple]] = {
        "tokenizer": lambda: (bpe_file,),
        "tiktoken": lambda: (_write_ranks(tmp_path / "r.tiktoken", min(PATTERNS)),),
        "sentencepiece": lambda: (tmp_path / "tokenizer.model",),
        "bytes": lambda: (),
        "server": lambda: (httpx.Client(trust_env=False), tokenize_server("llama.cpp")[0]),
        "estimate": lambda: (1.3,),
    }
    return COUNTERS[request.param](*arguments[request.param]())


def test_counter_contract(counter: Counter) -> None:
    """Every counter says where its numbers come from, counts nothing in an empty text and more in a longer one."""
    assert counter.source in ("tokenizer", "server", "estimate")
    assert counter.exact == (counter.source != "estimate")
    assert counter.count("") == 0
    one, many = counter.count("water"), counter.count("water and salt are mixed in four minutes")
    assert 1 <= one < many
    assert type(many) is int
    assert (counter.max_chars is None) == (counter.source != "server")
    assert counter.bos_tokens() in (None, 0, 1)
    assert (counter.recipe is None) == (counter.source == "server")


def test_a_recipe_makes_the_same_counter(counter: Counter) -> None:
    """What another process makes of the name and JSON arguments counts the same; only a server's own cannot be made."""
    if counter.recipe is not None:
        name, arguments = json.loads(json.dumps(counter.recipe))
        text = "water and salt, 水"
        assert COUNTERS[name](**arguments).count(text) == counter.count(text)


def test_bytes_and_words_are_counted_by_their_rule() -> None:
    """A byte counter counts UTF-8 bytes; an estimate is words times the price, rounded."""
    assert COUNTERS["bytes"]().count("水 a") == 5
    assert COUNTERS["estimate"](1.2).count("one two three four five six") == 7


def test_an_estimate_needs_a_price() -> None:
    """A price of zero or NaN is refused."""
    for price in (0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="above 0"):
            COUNTERS["estimate"](price)


def test_bos_is_what_the_tokenizer_puts_in_front(bpe_file: Path, tmp_path: Path) -> None:
    """BOS tokens are those a post-processor adds before the text, not those behind it, and never part of a count."""
    from tokenizers import Tokenizer, processors

    tokenizer = Tokenizer.from_file(str(bpe_file))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    ids = [(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ids)
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(tmp_path / "t.json"))
    with_bos, plain = TokenizerJsonCounter(tmp_path / "t.json"), TokenizerJsonCounter(bpe_file)
    assert with_bos.bos_tokens() == 1
    assert plain.bos_tokens() == 0
    text = "The harbour wakes before the town does."
    assert with_bos.count(text) == plain.count(text) > 5


@pytest.mark.parametrize(("form", "key"), [("llama.cpp", "content"), ("vllm", "prompt")])
def test_server_form_is_found_by_asking(tokenize_server: Server, bpe: Counter, form: str, key: str) -> None:
    """Both forms of /tokenize give the server's count, without its special tokens, and tell its BOS."""
    url, asked = tokenize_server(form)
    with httpx.Client(trust_env=False) as client:
        counter = ServerCounter(client, url, "m")
        text = 'Rain is measured with a "plain" glass tube. 水'
        assert counter.count(text) == bpe.count(text)
        assert asked[-1][key] == text
        assert counter.bos_tokens() == 1


@pytest.mark.parametrize(("form", "said"), [("missing", "404"), ("list", "200"), ("silent", "without tokens or count")])
def test_server_without_tokenize_is_one_clear_error(tokenize_server: Server, form: str, said: str) -> None:
    """A server that has no /tokenize, or answers something else, is a CountError with its address."""
    url, _ = tokenize_server(form)
    with httpx.Client(trust_env=False) as client, pytest.raises(CountError, match=said) as caught:
        ServerCounter(client, url)
    assert url in str(caught.value)


def test_a_server_may_count_for_two_minutes_only(tokenize_server: Server) -> None:
    """However quick each call is, all together have a limit, counted from the making of the counter."""
    url, asked = tokenize_server("vllm")
    seconds = [0.0]
    with httpx.Client(trust_env=False) as client:
        counter = ServerCounter(client, url, "m", now=lambda: seconds[0])
        seconds[0] = 120.0
        assert counter.count("one two") > 0
        seconds[0], before = 120.1, len(asked)
        with pytest.raises(CountTooSlow, match="more than 120 s"):
            counter.count("one two")
        assert len(asked) == before


def test_a_dead_server_is_a_count_error() -> None:
    """A fault of the connection is a CountError too, with the name of the fault and nothing of the request."""
    client = httpx.Client(transport=httpx.MockTransport(_refuse), headers={"authorization": "Bearer secret-value"})
    with pytest.raises(CountError, match="ConnectError") as caught:
        ServerCounter(client, "http://127.0.0.1:1/tokenize")
    assert "secret" not in str(caught.value)


def _refuse(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


@pytest.mark.parametrize(("name", "library"), [("x.tiktoken", "tiktoken"), ("x.model", "sentencepiece")])
def test_a_missing_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, library: str
) -> None:
    """Without the optional library the error is the command that cures it."""
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ConfigError, match=f"pip install {library}"):
        tokenizer_counter(tmp_path / name)


def test_files_and_folders_are_told_apart_by_name(tmp_path: Path, bpe_file: Path, libraries: None) -> None:
    """A folder or file of any known kind gives its counter; tokenizer.json comes first in a folder with several."""
    ranks = _write_ranks(tmp_path / "my.tiktoken", min(PATTERNS))
    assert type(tokenizer_counter(tmp_path)) is COUNTERS["tiktoken"]
    assert tokenizer_counter(ranks).count("水") == 3
    (tmp_path / "tokenizer.json").write_bytes(bpe_file.read_bytes())
    assert type(tokenizer_counter(tmp_path)) is TokenizerJsonCounter
    (tmp_path / "other.json").write_bytes(bpe_file.read_bytes())
    assert tokenizer_counter(tmp_path / "other.json").count("water") == TokenizerJsonCounter(bpe_file).count("water")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tokenizer.json", b"{}", "can be read"),
        ("a.tiktoken", b"not base64!\n", "base64 and a number"),
        ("b.tiktoken", b"YQ== 0\nYg== 1\n", "2 ranks"),
        ("c.model", b"junk", "sentencepiece model"),
        ("d.bin", b"", "is no tokenizer"),
        ("gone.json", None, "no tokenizer at"),
    ],
)
def test_unreadable_files_are_one_clear_line(
    tmp_path: Path, libraries: None, name: str, content: bytes | None, said: str
) -> None:
    """A file that is not what its name says is a ConfigError that names it."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=said) as caught:
        tokenizer_counter(tmp_path / name)
    assert "\n" not in caught.value.message
    assert name in caught.value.message


def test_a_folder_without_the_file_is_refused(tmp_path: Path) -> None:
    """An empty folder is no tokenizer, asked for in general or in particular."""
    with pytest.raises(ConfigError, match="is no tokenizer"):
        tokenizer_counter(tmp_path)
    with pytest.raises(ConfigError, match=r"no tokenizer\.json at"):
        TokenizerJsonCounter(tmp_path)
