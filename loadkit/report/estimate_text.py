"""What `loadkit estimate` prints."""

from collections.abc import Iterable, Mapping
from typing import Any

from loadkit.plan.text import duration as seconds_said
from loadkit.report.escape import plain
from loadkit.report.numbers import count, duration, number, percent


def lines(found: Mapping[str, Any]) -> Iterable[str]:
    """The estimate of a plan or of one prompt, line by line."""
    return _plan(found) if found["kind"] == "plan" else _prompt(found)


def _prompt(found: Mapping[str, Any]) -> Iterable[str]:
    for group in found["groups"]:
        yield plain(f"{group['source']}: {found['tokens']} prompt tokens alone; in brackets 90 % of the median")
        yield f"  TTFT                {_span(group['ttft_ms'])}; {group['ttft_ms']['how']}"
        yield f"  by the unit price   {_span(group['by_price_ms'])}; {group['by_price_ms']['how']}"
        if group["by_fit_ms"]:
            yield f"  by the fit          {duration(group['by_fit_ms']['value'])}; {group['by_fit_ms']['how']}"
        if group["total_ms"]:
            yield f"  with {group['output_tokens']} output tokens {_span(group['total_ms'])}"
            yield f"  share of prefill    {percent(group['prefill_share'])}"
        if group["cost"] is not None:
            yield f"  cost                {number(group['cost'])} by the prices given"


def _span(span: Mapping[str, Any]) -> str:
    """'12.3 s (11 s to 14 s)', or only the ends where there is no value between them; one number where they are one."""
    if span["low"] == span["high"]:
        return duration(span["low"])
    ends = f"{duration(span['low'])} to {duration(span['high'])}"
    return f"between {ends}" if span["value"] is None else f"{duration(span['value'])} ({ends})"


def _plan(found: Mapping[str, Any]) -> Iterable[str]:
    requests, span = found["requests"], found["seconds"]
    yield plain(f"Plan {found['plan']}; speed {found['speed']}")
    for cell in found["cells"]:
        yield plain(f"  {cell['cell']:<16} {_seconds(cell)}{'; ' + cell['how'] if cell['how'] else ''}")
    yield f"Requests: {requests['measured']:,} measured, {requests['warmup']:,} warm-up, {requests['drain']:,} drain"
    yield f"Tokens:   {count(found['prompt_tokens'])} in, at most {count(found['output_tokens'])} out"
    yield f"Time:     {_seconds(span)}"
    if found["cost"] is not None:
        yield f"Cost:     at most {found['cost']:,.4f} {plain(found['currency'])}"
    elif found["local"]:
        yield "Cost:     none, it runs here"
    else:
        yield "Cost:     unknown; give --price-input and --price-output (per million tokens)"


def _seconds(span: Mapping[str, Any]) -> str:
    ends = f"{_short(span['low'])} to {_short(span['high'])}"
    return f"between {ends}" if span["value"] is None else f"about {_short(span['value'])} ({ends})"


def _short(seconds: float) -> str:
    return seconds_said(seconds) if seconds >= 10 else f"{number(seconds)} s"
