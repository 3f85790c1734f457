"""What it costs: by hardware per hour and what it completes, and by a provider's price list, side by side."""

from collections.abc import Callable, Iterable, Sequence
from math import fsum

from loadkit.analysis.sizing.core import Core, Served
from loadkit.analysis.sizing.figures import MEASURED, Figure, said
from loadkit.analysis.sizing.judged import Row
from loadkit.analysis.sizing.question import Question
from loadkit.capacity.cost import listed_request, per_million, per_request, tokens_per_s_for
from loadkit.plan.tiers import tier_name

HOURS_PER_MONTH = 730.0


Ends = tuple[float | None, float | None]


def of_entry(entry: Served, question: Question, goodput: Ends) -> list[Figure]:
    """Prices of one entry of the mix; a figure without its inputs is left out. `goodput` is its 90 % interval."""
    return [*_prefill(entry), *_rented(entry, question, goodput), *_listed(entry, question)]


def _prefill(entry: Served) -> Iterable[Figure]:
    """The time of 1,000 prompt tokens: what a price list does not show."""
    row = _alone(entry)
    price = row.cell.get("prefill_ms_per_1k")
    if price is not None:
        yield Figure(
            f"{entry.share.name}.prefill_ms_per_1k",
            "prefill time of 1,000 prompt tokens",
            price,
            "ms",
            "TTFT / prompt tokens x 1000, the median of the requests",
            {"load": said(row.point.load, row.kind), "TTFT": said(1000 * row.ttft_s, "ms (mean)")},
            note=MEASURED,
        )


def _alone(entry: Served) -> Row:
    """The lowest load of the tier."""
    return min(entry.rows, key=lambda row: row.point.load)


def _rented(entry: Served, question: Question, goodput: Ends) -> Iterable[Figure]:
    """Cost on hardware that is used to its goodput; the less it completes the dearer it is."""
    hour, rate = question.replica_hour, entry.rate
    if hour is None or rate is None:
        return
    name, unit = entry.share.name, question.prices.currency
    prompt, output = entry.share.tier_tokens, entry.output_tokens
    price = {"price of a replica": said(hour, f"{unit} per hour"), "goodput": said(rate, "/s")}
    tokens = {**price, "output tokens": said(output), "prompt tokens": said(prompt)}
    formula = "price per hour / (tokens/s x 3600) x 1,000,000; tokens/s = goodput x"
    kinds: tuple[tuple[str, str, Callable[[float], float], str, dict[str, str]], ...] = (
        (
            "cost_output",
            "cost of a million output tokens, at goodput",
            lambda rate: per_million(hour, rate * output),
            f"{formula} output tokens",
            tokens,
        ),
        (
            "cost_total",
            "cost of a million tokens of prompt and output, at goodput",
            lambda rate: per_million(hour, rate * (prompt + output)),
            f"{formula} (prompt + output tokens)",
            tokens,
        ),
        (
            "cost_request",
            "cost of a request, at goodput",
            lambda rate: per_request(hour, rate),
            "price per hour / (goodput x 3600)",
            price,
        ),
    )
    for key, label, cost, text, inputs in kinds:
        low, high = (cost(end) if end else None for end in reversed(goodput))
        yield Figure(f"{name}.{key}", label, cost(rate), unit, text, inputs, low, high)


def _listed(entry: Served, question: Question) -> Iterable[Figure]:
    """The provider's price of a million prompt tokens, and of a request."""
    prices = question.prices
    if prices.input is None or prices.output is None:
        return
    name, unit = entry.share.name, prices.currency
    yield Figure(
        f"{name}.price_per_million", "listed price of a million prompt tokens", prices.input, unit, "price list"
    )
    prompt, output = float(entry.share.tier_tokens), entry.output_tokens
    yield Figure(
        f"{name}.listed_request",
        "cost of a request by the price list, nothing cached",
        listed_request(prompt, output, prices.input, prices.output),
        unit,
        "(prompt tokens x input price + output tokens x output price) / 1,000,000",
        {
            "prompt tokens": said(prompt),
            "output tokens": said(output),
            "input price": said(prices.input, f"{unit} per million"),
            "output price": said(prices.output, f"{unit} per million"),
        },
    )
    if prices.cached is not None:
        yield Figure(
            f"{name}.listed_request_cached",
            "the same with the whole prompt cached",
            listed_request(
                prompt, output, prices.input, prices.output, cached_tokens=prompt, price_cached=prices.cached
            ),
            unit,
            "(prompt tokens x cached price + output tokens x output price) / 1,000,000",
            {"cached price": said(prices.cached, f"{unit} per million")},
        )


def of_fleet(core: Core, question: Question, counts: Ends) -> list[Figure]:
    """What the replicas cost, and each request and token of the load they carry. `counts` is the 90 % interval of their
    number."""
    hour = question.replica_hour
    if core.fleet is None or hour is None or question.rate is None:
        return []
    count, unit, rate = core.fleet.recommended, question.prices.currency, question.rate
    output = mean_output(core.served)
    inputs = {"replicas": said(count), "price of a replica": said(hour, f"{unit} per hour")}
    kinds: tuple[tuple[str, str, float, str, dict[str, str]], ...] = (
        ("hour", "cost of all replicas per hour", hour, "replicas x price of one", {}),
        (
            "month",
            "the same per month",
            hour * HOURS_PER_MONTH,
            f"replicas x price of one x {HOURS_PER_MONTH:g} hours",
            {},
        ),
        (
            "request",
            "cost of a request as deployed, spare replicas paid for",
            per_request(hour, rate),
            "replicas x price of one / (requests/s x 3600)",
            {"requests/s": said(rate)},
        ),
        (
            "output",
            "cost of a million output tokens as deployed",
            per_million(hour, rate * output),
            "replicas x price of one / (requests/s x mean output tokens x 3600) x 1,000,000",
            {"requests/s": said(rate), "mean output tokens": said(output)},
        ),
    )
    found = []
    for key, label, each, formula, more in kinds:
        low, high = (None if end is None else end * each for end in counts)
        found.append(Figure(f"cost.{key}", label, count * each, unit, formula, {**inputs, **more}, low, high))
    return found


def mean_output(served: Sequence[Served]) -> float:
    """Output tokens of a request of the mix."""
    return fsum(entry.share.share * entry.output_tokens for entry in served)


def of_target(core: Core, question: Question) -> list[Figure]:
    """What a replica must make for the target cost, and what its hardware may cost with what it makes."""
    hour, target = question.replica_hour, question.target_cost
    if hour is None or target is None:
        return []
    unit = question.prices.currency
    needed = tokens_per_s_for(hour, target)
    inputs = {"price of a replica": said(hour, f"{unit} per hour"), "target": said(target, f"{unit} per million")}
    found = [
        Figure(
            "target.tokens_per_s",
            "output tokens/s a replica must make for the target cost",
            needed,
            "tokens/s",
            "price per hour / (target x 3600) x 1,000,000",
            inputs,
        )
    ]
    if (made := output_rate(core.served)) is not None:
        found.append(
            Figure(
                "target.gpu_hour",
                "price of a GPU per hour that meets the target at the goodput",
                target * made * 3600 / 1e6 / question.gpus,
                unit,
                "target x output tokens/s at goodput x 3600 / 1,000,000 / GPUs",
                {"output tokens/s at goodput": said(made), "target": inputs["target"], "GPUs": said(question.gpus)},
            )
        )
    return found


def output_rate(served: Sequence[Served]) -> float | None:
    """Output tokens/s of a replica that is full of the mix; None where an entry has no goodput."""
    if any(entry.rate is None for entry in served):
        return None
    return mean_output(served) / fsum(entry.share.share / (entry.rate or 1.0) for entry in served)


def target_sentences(core: Core, question: Question) -> list[str]:
    """Which measured loads meet the target cost, and whether they hold the objectives."""
    hour, target = question.replica_hour, question.target_cost
    if hour is None or target is None:
        return []
    needed, lines = tokens_per_s_for(hour, target), []
    for entry in core.served:
        cheap = [p for p in entry.points if p.requests_per_s * entry.output_tokens >= needed]
        name = tier_name(entry.share.tier_tokens)
        if not cheap:
            top = max(point.requests_per_s for point in entry.points) * entry.output_tokens
            lines.append(
                f"{name}: no measured load is cheap enough: {top:.4g} of {needed:.4g} output tokens/s at most."
            )
            continue
        good = [point for point in cheap if point.holds]
        loads = ", ".join(f"{point.load:g}" for point in cheap)
        if good:
            lines.append(f"{name}: the target cost is met, objectives held, at load {good[0].load:g}.")
        else:
            lines.append(f"{name}: the target cost is met at load {loads}, where the objectives do not hold.")
    return lines
