"""A measured decode rate against the memory's bound: its efficiency, the published band, and what an excess means.

No decode exceeds bandwidth / bytes per token. Where a figure does, one of four things is wrong, and each is put as the
number that would have to hold: the bandwidth, the bytes, the model, or that it is a decode rate at all.
"""

from dataclasses import dataclass

from loadkit.capacity import roofline
from loadkit.capacity.boards import published
from loadkit.capacity.boards.published import Band, Board, Row
from loadkit.capacity.errors import CardError

NEAR = 0.10  # a published rate within this share of a figure may be what was measured
GB = 1e9


@dataclass(frozen=True, slots=True)
class Bench:
    """What is known of a board and a model; rates in tokens/s, bandwidth in bytes/s. `*_from` say who says so.

    `decode` and `prefill` are this model's rates where they were measured or published.
    """

    bytes_per_token: float | None = None
    bytes_from: str = ""
    bandwidth: float | None = None
    bandwidth_from: str = ""
    board: Board | None = None
    model: str | None = None
    quant: str | None = None
    decode: float | None = None
    prefill: float | None = None
    other: Row | None = None  # the published row that decode and prefill were taken from

    def __post_init__(self) -> None:
        for name in ("bytes_per_token", "bandwidth", "decode", "prefill"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise CardError(f"{name} must be above 0, it is {value!r}")

    @property
    def bound(self) -> float | None:
        """Tokens per second that one sequence cannot exceed, where bandwidth and bytes are known."""
        if self.bandwidth is None or self.bytes_per_token is None:
            return None
        return roofline.decode_bound(self.bandwidth, self.bytes_per_token)


@dataclass(frozen=True, slots=True)
class Cause:
    """One of the four causes of a rate above the bound. `holds` where the number it asks for is one that exists."""

    name: str  # bandwidth, bytes, model, not_decode
    holds: bool
    text: str


@dataclass(frozen=True, slots=True)
class Check:
    """`share` of the bound, what it says (`roofline.reading`), the band, implied bytes/s, causes of an excess."""

    tokens_per_s: float
    bound: float
    share: float
    reading: str
    band: Band
    implied_bandwidth: float
    causes: tuple[Cause, ...]
    sentence: str


def check(tokens_per_s: float, bench: Bench) -> Check:
    """The verdict on one decode rate. CardError when bandwidth or bytes are not known, or the rate is not positive."""
    if bench.bound is None or bench.bandwidth is None or bench.bytes_per_token is None:
        raise CardError("a bound needs the bandwidth of the memory and the bytes read per token")
    if not tokens_per_s > 0:
        raise CardError(f"a decode rate must be above 0 tokens/s, it is {tokens_per_s!r}")
    share = tokens_per_s / bench.bound
    reading = roofline.reading(share)
    band = published.band(bench.board, bench.quant)
    causes = four_causes(tokens_per_s, bench) if reading == "invalid" else ()
    implied = tokens_per_s * bench.bytes_per_token
    return Check(
        tokens_per_s, bench.bound, share, reading, band, implied, causes, _sentence(share, reading, band, causes)
    )


def four_causes(tokens_per_s: float, bench: Bench) -> tuple[Cause, ...]:
    """The causes of a rate above the bound, those that explain it first."""
    assert bench.bandwidth is not None
    assert bench.bytes_per_token is not None
    found = (
        _bandwidth(tokens_per_s, bench, bench.bandwidth, bench.bytes_per_token),
        _bytes(tokens_per_s, bench, bench.bandwidth, bench.bytes_per_token),
        _model(tokens_per_s, bench),
        _not_decode(tokens_per_s, bench),
    )
    return tuple(sorted(found, key=lambda cause: not cause.holds))


def nearest_row(tokens_per_s: float, bench: Bench) -> Row | None:
    """The published row nearest to a rate, of another model on the board, or of any where the board is not known."""
    rows = bench.board.rows if bench.board else published.rows()
    other = [
        row for row in rows if row.model != bench.model and (bench.other is None or row.bytes != bench.other.bytes)
    ]
    return min(other, key=lambda row: abs(row.tokens_per_s / tokens_per_s - 1), default=None)


def _bandwidth(rate: float, bench: Bench, bandwidth: float, size: float) -> Cause:
    """The board's own figure holds where it is larger; twice the figure where no board is known."""
    band = published.band(bench.board, bench.quant)
    tried = {2 * bandwidth: "twice it (double data rate, or the other half of the bus)"}
    if bench.board:
        own = bench.board.bandwidth
        tried = {own: f"the {own / GB:.1f} GB/s of {bench.board.name}"} if own > 1.05 * bandwidth else {}
    need = rate * size / GB
    for value, what in tried.items():
        share = rate * size / value
        if share <= max(band.high, roofline.SUSPICIOUS):
            text = f"the bandwidth is too low: {what} leaves an efficiency of {share:.2f}"
            return Cause("bandwidth", True, text)
    return Cause("bandwidth", False, f"the bandwidth would have to be above {need:.1f} GB/s, not {bandwidth / GB:.1f}")


def _bytes(rate: float, bench: Bench, bandwidth: float, size: float) -> Cause:
    """A narrower quantisation holds where the platform has one."""
    most = bandwidth / rate
    text = (
        f"fewer bytes are read: at most {most / GB:.2f} GB per token, {most / size:.2f} of the {size / GB:.2f} assumed"
    )
    narrow = bench.board.min_bits if bench.board else None
    holds = most / size >= 0.5 and not (narrow is not None and narrow >= 8)
    if narrow is not None and narrow >= 8:
        text += f"; {bench.board.key if bench.board else ''} has no weights below {narrow:g} bits"
    return Cause("bytes", holds, text)


def _model(rate: float, bench: Bench) -> Cause:
    row = nearest_row(rate, bench)
    if row is None or abs(row.tokens_per_s / rate - 1) > NEAR:
        return Cause("model", False, "no other published model makes this rate")
    text = f"another model: {row.model} {row.quant} makes {row.tokens_per_s:g} tokens/s on {row.board}"
    return Cause("model", bench.board is not None, text)


def _not_decode(rate: float, bench: Bench) -> Cause:
    if bench.prefill is not None and bench.prefill <= rate:
        text = f"not a decode rate: but even prompt tokens only make {bench.prefill:g} tokens/s"
        return Cause("not_decode", False, text)
    return Cause("not_decode", True, "not a decode rate: prompt tokens counted, or a buffered burst timed")


def _sentence(share: float, reading: str, band: Band, causes: tuple[Cause, ...]) -> str:
    of = f"{band.of} make {band.low:.2f} to {band.high:.2f}" + (f" ({band.rows} rows)" if band.rows else "")
    if reading == "invalid":
        return f"{100 * share:.0f}% of the bound, which is impossible: {causes[0].text}."
    if reading == "swapping":
        return f"{100 * share:.1f}% of the bound: the model does not fit and is read from disk."
    place = "within" if band.holds(share) else "above" if share > band.high else "below"
    note = " Look at the byte count again." if reading == "suspicious" else ""
    return f"{100 * share:.0f}% of the bound, {place} the published band: {of}.{note}"
