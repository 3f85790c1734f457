"""Two claims about one board and one model: what each figure can be, with numbers, the likeliest first.

Counting one request: output tokens over the whole time make n_out / (n_in / prefill + n_out / decode), which is at most
the decode rate; prompt and output tokens together make (n_in + n_out) over the same time, which lies between the two.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from loadkit.capacity.boards import published
from loadkit.capacity.boards.bound_check import NEAR, Bench, Check, check, nearest_row
from loadkit.capacity.errors import CardError

PROMPT, OUTPUT = 512, 128  # lengths assumed where a claim states none, and said so
LONGEST = 32_768  # a prompt beyond this is no explanation
COUNTED = ("decode", "output", "all")
CLAIM = re.compile(r"(\d+(?:\.\d+)?)(?::(\d+)/(\d+)(?::([a-z]+))?)?")


@dataclass(frozen=True, slots=True)
class Claim:
    """A rate in tokens/s, the prompt and output tokens behind it, and what was counted where that is known."""

    tokens_per_s: float
    prompt: int | None = None
    output: int | None = None
    counted: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a figure may be: the rates this makes, how far the claim is off them, and what it assumes.

    `off` 0 within low to high, else the relative distance to the nearer end; `solved` where a length was chosen so
    that the figure comes out, which proves less.
    """

    name: str
    low: float
    high: float
    off: float
    solved: bool
    text: str
    look: str

    @property
    def fits(self) -> bool:
        """Within 10 %."""
        return abs(self.off) <= NEAR

    @property
    def spread(self) -> float:
        """Half the range over its middle: what allows much explains little."""
        return (self.high - self.low) / (self.high + self.low)


def parse(text: str) -> Claim:
    """A claim such as 42, 8.5:512/29 (prompt and output tokens) or 8.5:512/29:output. CardError says what is wrong."""
    match = CLAIM.fullmatch(text.strip())
    if match is None or not 0 < float(match[1]) < math.inf or (match[4] or "decode") not in COUNTED:
        raise CardError(
            f"{text.strip()[:40]!r} is no claim: write tokens/s, or RATE:PROMPT/OUTPUT, "
            f"or RATE:PROMPT/OUTPUT:COUNTED with one of {', '.join(COUNTED)}"
        )
    if match[2] and (int(match[2]) < 1 or int(match[3]) < 1):
        raise CardError(f"{text.strip()[:40]!r}: a request has at least one prompt and one output token")
    prompt, output = (int(match[2]), int(match[3])) if match[2] else (None, None)
    return Claim(float(match[1]), prompt, output, match[4])


def output_rate(prompt: float, output: float, prefill: float, decode: float) -> float:
    """Output tokens over the time of prefill and decode, tokens/s."""
    return output / (prompt / prefill + output / decode)


def all_rate(prompt: float, output: float, prefill: float, decode: float) -> float:
    """Prompt and output tokens over the same time, tokens/s."""
    return (prompt + output) / (prompt / prefill + output / decode)


@dataclass(frozen=True, slots=True)
class Answer:
    """One claim with its check against the bound (None where no bound is known) and its explanations, best first."""

    claim: Claim
    check: Check | None
    explanations: tuple[Explanation, ...]

    @property
    def sentence(self) -> str:
        """The best explanation, or that none fits."""
        rate = f"{self.claim.tokens_per_s:g} tokens/s"
        fitting = [each for each in self.explanations if each.fits]
        if not fitting:
            return f"{rate}: nothing known explains it; give more of the model, the board, prompt and output tokens."
        return f"{rate}: {fitting[0].text}"


def reconcile(claims: list[Claim], bench: Bench) -> list[Answer]:
    """Every claim explained, in the order given."""
    return [
        Answer(claim, check(claim.tokens_per_s, bench) if bench.bound else None, explain(claim, bench))
        for claim in claims
    ]


def explain(claim: Claim, bench: Bench) -> tuple[Explanation, ...]:
    """Explanations that can be put in numbers: fitting ones first, those without a chosen length before the others, and
    near and narrow ones before the rest."""
    found = [made for ask in HYPOTHESES if (made := ask(claim, bench)) is not None]
    return tuple(sorted(found, key=lambda each: (not each.fits, each.solved, abs(each.off) + each.spread / 4)))


def expected(bench: Bench) -> tuple[float, float] | None:
    """Decode rates to expect: the one known, else the published band of the bound."""
    if bench.decode is not None:
        return bench.decode, bench.decode
    if bench.bound is None:
        return None
    band = published.band(bench.board, bench.quant)
    return bench.bound * band.low, bench.bound * band.high


def _made(name: str, claim: Claim, low: float, high: float, text: str, look: str, solved: bool = False) -> Explanation:
    rate = claim.tokens_per_s
    off = 0.0 if low <= rate <= high else (low / rate - 1 if rate < low else high / rate - 1)
    return Explanation(name, low, high, off, solved, text, look)


def _plain(claim: Claim, bench: Bench) -> Explanation | None:
    rates = expected(bench)
    if rates is None:
        return None
    low, high = rates
    span = f"{low:.4g}" if low == high else f"{low:.3g} to {high:.3g}"
    text = f"it is the decode rate of this model: {span} tokens/s are to be expected."
    return _made("decode", claim, low, high, text, "engine's own decode rate, prompt and load excluded")


def _prompt_counted(claim: Claim, bench: Bench) -> Explanation | None:
    """Prompt tokens counted as if they had been generated."""
    rates = expected(bench)
    if rates is None or bench.prefill is None or claim.counted in ("decode", "output"):
        return None
    decode = rates[1]
    look = "what the tool divides: prompt and output tokens, or output tokens alone"
    if claim.prompt and claim.output:
        value = all_rate(claim.prompt, claim.output, bench.prefill, decode)
        text = f"prompt tokens counted: {claim.prompt} in and {claim.output} out make {value:.3g} tokens/s."
        return _made("prompt_counted", claim, value, value, text, look)
    rate, output = claim.tokens_per_s, claim.output or OUTPUT
    if not decode < rate < bench.prefill:
        top = max(decode, bench.prefill)
        text = f"prompt tokens counted: makes {min(decode, bench.prefill):.3g} to {top:.3g} tokens/s."
        return _made("prompt_counted", claim, min(decode, bench.prefill), top, text, look, solved=True)
    prompt = output * (rate / decode - 1) / (1 - rate / bench.prefill)
    text = f"prompt tokens counted: {prompt:.0f} in and {output} out make {rate:g} tokens/s."
    if prompt > LONGEST:
        return None
    return _made("prompt_counted", claim, rate, rate, text, look, solved=True)


def _prefill_averaged(claim: Claim, bench: Bench) -> Explanation | None:
    """Output tokens over the whole time: below the decode rate, and never above it."""
    rates = expected(bench)
    if rates is None or bench.prefill is None or claim.counted in ("decode", "all"):
        return None
    rate, decode = claim.tokens_per_s, rates[1]
    look = "whether the clock starts at the request or at the first token"
    if claim.prompt and claim.output:
        value = output_rate(claim.prompt, claim.output, bench.prefill, decode)
        text = f"prefill averaged in: {claim.prompt} in and {claim.output} out make {value:.3g} tokens/s."
        return _made("prefill_averaged", claim, value, value, text, look)
    if rate >= decode:
        most = output_rate(5, OUTPUT, bench.prefill, decode)
        text = f"prefill averaged in: never above the decode rate; 5 in and {OUTPUT} out make {most:.4g} tokens/s."
        return _made("prefill_averaged", claim, most, most, text, look)
    prompt = claim.prompt or PROMPT
    output = rate * prompt / bench.prefill / (1 - rate / decode)
    text = f"prefill averaged in: {prompt} in and {output:.1f} out make {rate:g} tokens/s."
    if output < 1:
        return None
    return _made("prefill_averaged", claim, rate, rate, text, look, solved=True)


def _other_model(claim: Claim, bench: Bench) -> Explanation | None:
    row = nearest_row(claim.tokens_per_s, bench)
    if row is None:
        return None
    text = f"another model: {row.model} {row.quant} makes {row.tokens_per_s:g} tokens/s on {row.board} ({row.source})."
    look = "the name and the checksum of the file that was loaded"
    return _made("other_model", claim, row.tokens_per_s, row.tokens_per_s, text, look)


def _grouped(claim: Claim, bench: Bench) -> Explanation | None:
    """Weights with a scale per group, which a board computes more slowly."""
    rates, ratios = expected(bench), published.group_ratios(bench.board) if bench.board else {}
    if rates is None or not ratios or (bench.quant and published.GROUPED.search(bench.quant)):
        return None
    low, high = rates[0] * min(ratios.values()), rates[1] * max(ratios.values())
    text = (
        f"group quantisation: {min(ratios.values()):.2f} to {max(ratios.values()):.2f} of the rate without groups, "
        f"{low:.3g} to {high:.3g} tokens/s."
    )
    return _made("group_quantisation", claim, low, high, text, "the quantisation label: w8a8 or w8a8_g128")


def _half_width(claim: Claim, bench: Bench) -> Explanation | None:
    """One memory package of two: half the bandwidth, half the rate."""
    rates = expected(bench)
    if rates is None:
        return None
    low, high = rates[0] / 2, rates[1] / 2
    span = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
    text = f"half-width memory: half the bandwidth makes {span} tokens/s."
    return _made("half_width", claim, low, high, text, "the memory packages on the board; a bandwidth test")


def _low_clock(claim: Claim, bench: Bench) -> Explanation | None:
    """The memory at a lower step than its highest, because nobody locked it."""
    rates = expected(bench)
    if rates is None or bench.board is None or len(bench.board.clocks) < 2:
        return None
    top = max(bench.board.clocks)
    steps = [(step, rates[0] * step / top, rates[1] * step / top) for step in bench.board.clocks if step < top]
    tried = [(_made("low_clock", claim, low, high, "", ""), step) for step, low, high in steps]
    best, step = min(tried, key=lambda pair: abs(pair[0].off))
    text = f"memory not locked: {step / 1e6:g} of {top / 1e6:g} MHz make about {best.high:.3g} tokens/s."
    return _made("low_clock", claim, best.low, best.high, text, "the memory's cur_freq during the run")


def _bandwidth_figure(claim: Claim, bench: Bench) -> Explanation | None:
    """The board's own bandwidth where the given one is well below it."""
    if bench.board is None or bench.bandwidth is None or bench.bytes_per_token is None or bench.decode is not None:
        return None
    if bench.board.bandwidth <= 1.05 * bench.bandwidth:
        return None
    band = published.band(bench.board, bench.quant)
    bound = bench.board.bandwidth / bench.bytes_per_token
    text = (
        f"the bandwidth is not {bench.bandwidth / 1e9:.3g} but {bench.board.bandwidth / 1e9:.3g} GB/s: "
        f"{bound * band.low:.3g} to {bound * band.high:.3g} tokens/s are to be expected."
    )
    return _made(
        "bandwidth_figure", claim, bound * band.low, bound * band.high, text, "clock x 2 x bits / 8 of the memory"
    )


Hypothesis = Callable[[Claim, Bench], Explanation | None]
HYPOTHESES: tuple[Hypothesis, ...] = (
    _plain,
    _bandwidth_figure,
    _other_model,
    _half_width,
    _grouped,
    _low_clock,
    _prompt_counted,
    _prefill_averaged,
)
