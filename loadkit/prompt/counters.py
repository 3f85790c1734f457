"""Counting tokens: one contract, and a plain dict of the ways to do it.

To add one: write a class with the six members of `Counter` (`ByteCounter` is a complete example), add a line to
`COUNTERS`, and give the contract test a text it can count.
"""

import base64
import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from loadkit.plan.errors import ConfigError
from loadkit.prompt.calibrate import words

if TYPE_CHECKING:
    import httpx

COUNTING_S = 120.0  # all calls of one server's /tokenize together
REMOTE_CHARS = 131_072  # one /tokenize call stays under half a second and a few hundred KB


Recipe = tuple[str, dict[str, Any]]


class Counter(Protocol):
    """Counts the tokens of a text as the server will read it, without template and special tokens.

    source: "tokenizer", "server" or "estimate". exact: false when `count` is an estimate.
    max_chars: longest text worth one call; None when counting is local and has no bound.
    recipe: a name in `COUNTERS` and the arguments (JSON values) with which another process makes the same counter;
    None when it cannot.
    """

    @property
    def source(self) -> str: ...

    @property
    def exact(self) -> bool: ...

    @property
    def max_chars(self) -> int | None: ...

    @property
    def recipe(self) -> Recipe | None: ...

    def count(self, text: str) -> int: ...

    def bos_tokens(self) -> int | None:
        """Special tokens the tokenizer puts in front of a plain text; None when nothing can tell."""
        ...


class ByteCounter:
    """One token for each UTF-8 byte: what byte-level models read, the engine's built-in one among them."""

    source, exact, max_chars = "tokenizer", True, None

    @property
    def recipe(self) -> Recipe:
        return "bytes", {}

    def count(self, text: str) -> int:
        return len(text.encode())

    def bos_tokens(self) -> int | None:
        return None


class EstimateCounter:
    """Words times a measured price (`calibrate`). Never exact, and says so."""

    source, exact, max_chars = "estimate", False, None

    def __init__(self, tokens_per_word: float) -> None:
        if not tokens_per_word > 0:
            raise ConfigError(f"tokens per word must be above 0, not {tokens_per_word}")
        self.tokens_per_word = tokens_per_word
        self.recipe: Recipe = ("estimate", {"tokens_per_word": tokens_per_word})

    def count(self, text: str) -> int:
        return round(self.tokens_per_word * words(text))

    def bos_tokens(self) -> int | None:
        return None


class TokenizerJsonCounter:
    """A Hugging Face tokenizer.json (or a folder that holds one), read by `tokenizers`."""

    source, exact, max_chars = "tokenizer", True, None

    def __init__(self, path: str | Path) -> None:
        from tokenizers import Tokenizer

        file = _inside(Path(path), "tokenizer.json")
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # noqa: BLE001  the Rust reader raises bare Exception for any fault of the file
            raise ConfigError(f"{file} is not a tokenizer.json that can be read: {error}") from None
        self.recipe: Recipe = ("tokenizer", {"path": str(file.absolute())})
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0])

    def bos_tokens(self) -> int | None:
        plain, full = (self._tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
        return _leading(plain, full)


class TiktokenCounter:
    """A tiktoken ranks file (`*.tiktoken`). The file has no split pattern, so it is known by its number of ranks."""

    source, exact, max_chars = "tokenizer", True, None

    def __init__(self, path: str | Path) -> None:
        tiktoken = _library("tiktoken", "a tiktoken ranks file")
        file = _inside(Path(path), "*.tiktoken")
        self.recipe: Recipe = ("tiktoken", {"path": str(file.absolute())})
        ranks = _read_ranks(file)
        pattern = PATTERNS.get(len(ranks))
        if pattern is None:
            known = ", ".join(str(n) for n in sorted(PATTERNS))
            raise ConfigError(f"{file} has {len(ranks)} ranks; the files whose split pattern is known have {known}")
        self._encoding = tiktoken.Encoding(file.stem, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))

    def bos_tokens(self) -> int | None:
        return 0


class SentencePieceCounter:
    """A sentencepiece model file (`tokenizer.model`)."""

    source, exact, max_chars = "tokenizer", True, None

    def __init__(self, path: str | Path) -> None:
        sentencepiece = _library("sentencepiece", "a sentencepiece model")
        file = _inside(Path(path), "*.model")
        self.recipe: Recipe = ("sentencepiece", {"path": str(file.absolute())})
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"{file} is not a sentencepiece model that can be read: {error}") from None

    def count(self, text: str) -> int:
        return len(self._processor.encode(text))

    def bos_tokens(self) -> int | None:
        return int(self._processor.bos_id() >= 0)


class CountError(RuntimeError):
    """The server could not count a text; the message is one line. The caller falls back to two probes."""


class CountTooSlow(CountError):
    """The server counts, but not as fast as building the prompts of a run needs it."""


class ServerCounter:
    """The server's own /tokenize, in llama.cpp's form ({"content"}) or vLLM's and SGLang's ({"prompt"}).

    `client` is a control client that bounds each call and knows the key; `url` is the whole address of /tokenize. The
    form is found by asking once. Raises CountError when neither form is answered, CountTooSlow when it is asked
    COUNTING_S seconds after it was made.
    """

    source, exact, max_chars, recipe = "server", True, REMOTE_CHARS, None

    def __init__(
        self,
        client: "httpx.Client",
        url: str,
        model: str | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._url, self._now = client, url, now
        self._until = now() + COUNTING_S
        forms: list[Callable[[str, bool], dict[str, Any]]] = [
            lambda text, special: {"content": text, "add_special": special},
            lambda text, special: {"prompt": text, "add_special_tokens": special} | ({"model": model} if model else {}),
        ]
        fault = ""
        for form in forms:
            self._form = form
            try:
                if self.count("one two three") > 0:
                    return
                fault = f"{url} counted no tokens"
            except CountError as error:
                fault = str(error)
        raise CountError(fault)

    def count(self, text: str) -> int:
        answer = self._ask(text, special=False)
        if isinstance(answer.get("tokens"), list):
            return len(answer["tokens"])
        if type(answer.get("count")) is int:
            return answer["count"]
        raise CountError(f"{self._url} answered without tokens or count")

    def bos_tokens(self) -> int | None:
        plain, full = (self._ask("a", special=special).get("tokens") for special in (False, True))
        return _leading(plain, full) if isinstance(plain, list) and isinstance(full, list) else None

    def _ask(self, text: str, *, special: bool) -> dict[str, Any]:
        if self._now() > self._until:
            raise CountTooSlow(f"{self._url} took more than {COUNTING_S:.0f} s to count the prompts")
        try:
            response = self._client.post(self._url, json=self._form(text, special))
            answer = response.json() if response.status_code == 200 else None
        except Exception as error:  # noqa: BLE001  any fault of client or answer means the same here: no count
            raise CountError(f"{self._url} could not be asked: {type(error).__name__}") from None
        if not isinstance(answer, dict):
            raise CountError(f"{self._url} answered {response.status_code} instead of a token count")
        return answer


COUNTERS: dict[str, Callable[..., Counter]] = {
    "tokenizer": TokenizerJsonCounter,
    "tiktoken": TiktokenCounter,
    "sentencepiece": SentencePieceCounter,
    "bytes": ByteCounter,
    "server": ServerCounter,
    "estimate": EstimateCounter,
}

_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {  # number of ranks -> split pattern, as the owners of the files publish them
    50_256: r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # r50k_base, gpt2
    100_256: _CL100K % "{1,3}",  # cl100k_base
    151_643: _CL100K % "",  # Qwen: one token for each digit
    199_998: _O200K,  # o200k_base
}


def tokenizer_counter(path: str | Path) -> Counter:
    """The counter for a tokenizer file or a folder with one; ConfigError when it is none of the known kinds."""
    at = Path(path)
    for pattern, kind in (("tokenizer.json", "tokenizer"), ("*.tiktoken", "tiktoken"), ("*.model", "sentencepiece")):
        named = any(at.glob(pattern)) if at.is_dir() else at.match(pattern)
        if named:
            return COUNTERS[kind](at)
    if at.is_file() and at.suffix == ".json":
        return TokenizerJsonCounter(at)
    if not at.exists():
        raise ConfigError(f"no tokenizer at {at}")
    raise ConfigError(f"{at} is no tokenizer: give a tokenizer.json, *.tiktoken ranks or a sentencepiece *.model")


def _inside(path: Path, pattern: str) -> Path:
    """The file itself, or the first match of `pattern` in a folder."""
    found = sorted(path.glob(pattern)) if path.is_dir() else [path] if path.is_file() else []
    if not found:
        raise ConfigError(f"no {pattern} at {path}")
    return found[0]


def _library(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(f"counting with {what} needs the library {name}: pip install {name}") from None


def _read_ranks(file: Path) -> dict[bytes, int]:
    try:
        pairs = (line.split() for line in file.read_bytes().splitlines() if line)
        return {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
    except ValueError:
        raise ConfigError(f"{file} is not a tiktoken ranks file: lines must be base64 and a number") from None


def _leading(plain: list[int], full: list[int]) -> int | None:
    """How many ids stand in `full` before the ids of the plain text."""
    for at in range(len(full) - len(plain) + 1):
        if full[at : at + len(plain)] == plain:
            return at
    return None
