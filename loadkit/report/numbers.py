"""How numbers are printed. Values stay exact in every file; digits are dropped here and nowhere else."""

ABSENT = "-"


def number(value: float | str | None) -> str:
    """A quantity with three digits that mean something: 1234, 123, 12.3, 1.23, 0.0123; '-' for None.

    Whole numbers above 999 keep every digit, because a token count or a long TTFT is compared digit by digit.
    A string passes through: it is the name of a value that is not a number.
    """
    if value is None:
        return ABSENT
    if isinstance(value, str):
        return value
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    return f"{value:.3g}" if size >= 1e-4 else f"{value:.2e}"


def count(value: int | float | None) -> str:
    """A count of things, all digits, no separators (it can be pasted into a spreadsheet); '-' for None."""
    return ABSENT if value is None else f"{value:.0f}"


def percent(share: float | None) -> str:
    """A share of one as a percentage: 0.934 -> '93.4%'; '-' for None."""
    return ABSENT if share is None else f"{100 * share:.1f}%"


def tier(tokens: int | None) -> str:
    """A tier as people write it on the command line: 4096 -> '4K', 1048576 -> '1M', 1000 -> '1000'."""
    if tokens is None:
        return ABSENT
    if tokens and tokens % 1048576 == 0:
        return f"{tokens // 1048576}M"
    if tokens and tokens % 1024 == 0:
        return f"{tokens // 1024}K"
    return str(tokens)


def duration(ms: float | None) -> str:
    """A time for a sentence: '850 ms', '12.3 s', '4 min 10 s'; '-' for None."""
    if ms is None:
        return ABSENT
    if ms < 1000:
        return f"{number(ms)} ms"
    if ms < 120_000:
        return f"{number(ms / 1000)} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    return f"{minutes} min {seconds} s"
