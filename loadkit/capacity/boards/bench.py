"""The bench of a claim from what a person gives: model, quantisation, board, and figures that go before all of them."""

from loadkit.capacity.boards.bound_check import Bench
from loadkit.capacity.boards.published import Board, Row
from loadkit.capacity.card import ModelCard
from loadkit.capacity.errors import CardError
from loadkit.capacity.quant import bits
from loadkit.capacity.roofline import weights_per_step

SAME = 0.01  # models that read the same bytes per token decode alike, whatever their names


def bench(
    card: ModelCard | None = None,
    quant: str | None = None,
    board: Board | None = None,
    *,
    bytes_per_token: float | None = None,
    bandwidth: float | None = None,
    bandwidth_from: str = "given",
    decode: float | None = None,
    prefill: float | None = None,
) -> Bench:
    """What stands behind a claim, each figure with who says it.

    Bytes come from the card and the bits of `quant`, not from the size of a file, which holds an input embedding that
    a step does not read. CardError for a quantisation the board does not have, or a model without one.
    """
    size, size_from = bytes_per_token, "given"
    if size is None and card is not None:
        size, size_from = _bytes(card, quant, board)
    if bandwidth is None and board is not None:
        bandwidth, bandwidth_from = board.bandwidth, f"theoretical, {board.name}"
    row = published_row(card, quant, board, size) if board else None
    return Bench(
        bytes_per_token=size,
        bytes_from=size_from if size else "",
        bandwidth=bandwidth,
        bandwidth_from=bandwidth_from if bandwidth else "",
        board=board,
        model=row.model if row else card.name if card else None,
        quant=quant,
        decode=decode or (row.tokens_per_s if row else None),
        prefill=prefill or (row.prefill if row else None),
        other=row,
    )


def published_row(card: ModelCard | None, quant: str | None, board: Board, size: float | None) -> Row | None:
    """The board's row of this model and quantisation: by name, else the first that reads as many bytes per token."""
    fitting = [row for row in board.rows if quant and row.quant.casefold() == quant.casefold()]
    named = [row for row in fitting if card and row.model.casefold() == card.name.casefold()]
    alike = [row for row in fitting if size and abs(row.bytes / size - 1) <= SAME]
    return next(iter(named or alike), None)


def _bytes(card: ModelCard, quant: str | None, board: Board | None) -> tuple[float, str]:
    width = bits(quant) if quant else card.bits
    if width is None:
        raise CardError(f"{card.name}: give its quantisation, the bytes read per token depend on it")
    if board and board.min_bits and quant and quant.casefold().startswith("w") and width < board.min_bits:
        raise CardError(f"{board.key} computes with no weights below {board.min_bits:g} bits, so not with {quant}")
    return weights_per_step(card, 1, width), f"{card.name} at {width:g} bits"
