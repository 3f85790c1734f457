"""What two short requests tell about a tokenizer nobody has: pure arithmetic on the usage the server reported."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\s\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


@dataclass(frozen=True, slots=True)
class Calibration:
    """tokens_per_word: tokens of one word of the filler; overhead_tokens: chat template and BOS."""

    tokens_per_word: float
    overhead_tokens: int


def words(text: str) -> int:
    """Words of `text`: runs without a space, and each Chinese, Japanese or Korean character by itself."""
    return sum(1 for _ in _WORD.finditer(text))


def first_words(text: str, n: int) -> str:
    """The beginning of `text` that holds exactly `n` words (repeated when it is shorter): the text of a probe."""
    have = words(text)
    if have == 0:
        raise ValueError("a probe needs a text with words in it")
    whole = "\n\n".join([text] * (1 + (n - 1) // have))
    end = 0
    for _, match in zip(range(n), _WORD.finditer(whole), strict=False):
        end = match.end()
    return whole[:end]


def calibrate(words: Sequence[float], prompt_tokens: Sequence[int]) -> Calibration:
    """Two probes of words[0] and words[1] words cost prompt_tokens[0] and [1]: the line through both.

    tokens_per_word = (p1 - p0) / (w1 - w0), so that template and BOS cancel; overhead = p0 - tokens_per_word * w0.
    With counted tokens in place of words, a slope of exactly 1 says that the counter is the server's own.
    ValueError when the probes are equally long or the longer one did not cost more.
    """
    (short, long), (cheap, dear) = words, prompt_tokens
    if long <= short:
        raise ValueError(f"the second probe must be longer than the first: {short} and {long} words")
    if dear <= cheap:
        raise ValueError(f"the server counted {cheap} and then {dear} prompt tokens: the usage is not of the prompt")
    slope = (dear - cheap) / (long - short)
    return Calibration(slope, max(0, round(cheap - slope * short)))


def overhead_tokens(prompt_tokens: int, counted: int) -> int:
    """Tokens of template and BOS: usage.prompt_tokens of a ping less the count of the ping's text.

    ValueError when the server counted fewer tokens than the text has: the tokenizer is not the server's.
    """
    if prompt_tokens < counted:
        raise ValueError(
            f"the server counted {prompt_tokens} prompt tokens where the tokenizer counts {counted} in the text alone: "
            "this is not the server's tokenizer"
        )
    return prompt_tokens - counted
