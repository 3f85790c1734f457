"""Unit prices by prompt length, from what a person gives or from a run."""

from pathlib import Path

from loadkit.capacity.whatif import Price, Prices
from loadkit.plan.errors import ConfigError
from loadkit.plan.tiers import parse_tier
from loadkit.report.finish import summary_of


def prices_given(text: str | None, run: Path | None) -> Prices | None:
    """ms per token by the prompt tokens measured at: of `71.3` or `71.3@1527`, or of a run folder; None of neither.

    ConfigError for what is no price, FolderError for what is no run.
    """
    if text is not None and run is not None:
        raise ConfigError("--unit-price and --run are both given: keep one")
    if run is not None:
        return of_run(run)
    if text is None:
        return None
    ms, _, at = text.partition("@")
    try:
        price = Price(float(ms))
    except ValueError as error:
        raise ConfigError(f"--unit-price {text[:40]!r}: ms per token such as 71.3, or 71.3@1527 ({error})") from None
    return {parse_tier(at) if at else None: price.ms}


def of_run(folder: Path) -> Prices:
    """ms per token by prompt tokens of a run's tiers at concurrency 1. ConfigError where it measured none."""
    tiers = summary_of(folder)["price"]["tiers"]
    if not tiers:
        raise ConfigError(f"{folder} has no unit price: a tier at concurrency 1 with prompt tokens is needed")
    return {round(tier["tokens"]): tier["price_ms"] for tier in tiers}
