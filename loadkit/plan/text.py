"""The plan in words, before anything is sent."""

from loadkit.plan.endpoint import Endpoint
from loadkit.plan.further import LIMITED_SHARE
from loadkit.plan.ladder import Estimate, Plan, shrink_notes
from loadkit.plan.shown import shown
from loadkit.plan.tiers import M, tier_name

ASK_ABOVE_TOKENS = M
# UTF-8 bytes of request body per prompt token, measured on natural text: English 5.9 MB and Chinese 3.0 MB at 1M.
# The languages are those of the fillers.
BYTES_PER_TOKEN = {"en": 5.6, "zh": 2.9}
BODY_FRAME_BYTES = 200
# Without a measurement the time is worked out for a server of this speed, and the text says so.
ASSUMED = {"engine": Estimate(prefill_ms=4.0, decode_ms=50.0)}
ASSUMED_ELSEWHERE = Estimate(prefill_ms=1.0, decode_ms=33.0)


def must_ask(plan: Plan) -> str | None:
    """The question a plan of more than 1M tokens has to be asked, None below; `--yes` answers it."""
    planned = plan.tokens().total + plan.refine_tokens()
    if plan.soak and plan.budget_tokens is None:
        given = "--stages" if plan.staged else "--duration"
        return f"with {given} a plan takes as many tokens as come in that time: add --yes, or --budget-tokens N"
    if min(planned, plan.budget_tokens or planned) <= ASK_ABOVE_TOKENS:
        return None
    refined = ", those of --refine included" if plan.refine_tokens() else ""
    return f"this plan takes about {planned:,} tokens (more than 1M{refined}): add --yes to run it"


def body_bytes(tokens: int, language: str = "en") -> int:
    """About how large a request body of so many prompt tokens is."""
    return round(tokens * BYTES_PER_TOKEN[language]) + BODY_FRAME_BYTES


def timeout_warnings(plan: Plan, estimate: Estimate) -> list[str]:
    """Tiers whose predicted first token is so late that a timeout may cut it: under twice the prediction."""
    lines = []
    for tokens in sorted({cell.target_tokens for cell in plan.cells}):
        # An open loop sends them one by one, whatever it may have in flight.
        streams = max(1 if cell.rate else cell.concurrency for cell in plan.cells if cell.target_tokens == tokens)
        predicted = streams * estimate.ttft_s(tokens)
        timeouts = plan.timeouts.for_tier(tokens)
        for name, allowed in (("ttft", timeouts.ttft), ("read", timeouts.read)):
            if allowed < 2 * predicted:
                lines.append(
                    f"--{name}-timeout {allowed:g} is under twice the {duration(predicted)} predicted "
                    f"for the first token at {tier_name(tokens)}: raise it"
                )
    return lines


def duration(seconds: float) -> str:
    """'45 s', '5 min 20 s', '2 h 05 min'."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def plan_text(plan: Plan, target: str, endpoint: Endpoint | None = None, estimate: Estimate | None = None) -> str:
    """What `--dry-run` prints: cells, requests, tokens, time, cost, body bytes. `estimate` = the server's measured
    speed; without one the time rests on an assumed speed and says which."""
    requests, tokens = plan.requests(), plan.tokens()
    where = (
        f"{shown(endpoint.name)} ({endpoint.host}, {endpoint.model or 'the model it lists'})" if endpoint else target
    )
    least = "at least " if plan.soak else ""
    counted = f"{_count(len(plan.cells), 'cell')}, {_count(len(plan.visits()), 'visit')}"
    lines = [
        f"Plan {plan.name} for {where}: {counted}, seed {plan.seed}",
        "",
        *_table(plan),
        "",
        f"Requests: {least}{requests.measured:,} measured, {requests.warmup:,} warm-up, "
        f"at least {requests.drain:,} drain",
        f"Tokens:   {least}{tokens.input:,} in, at most {tokens.output:,} out{' of these' if plan.soak else ''}",
        f"Time:     {_time(plan, target, estimate)}",
        f"Cost:     {_cost(plan, endpoint)}",
    ]
    lines += [f"Note: {note}" for note in (*_changes(plan), *shrink_notes(plan))]
    lines += [f"Note: {note}" for note in (timeout_warnings(plan, estimate) if estimate else ())]
    return "\n".join(lines) + "\n"


def _changes(plan: Plan) -> list[str]:
    """How the plan may change while it runs."""
    lines = []
    if plan.refine:
        tiers = [cell.tier_tokens for cell in plan.cells if cell.concurrency == 1]
        lines.append(
            f"up to {plan.refine} tiers between {tier_name(min(tiers))} and {tier_name(max(tiers))} may be added to "
            f"narrow the knee (--refine), at most {plan.refine_tokens():,} tokens"
        )
    if plan.staged:
        total = sum(plan.seconds_of(cell) or 0 for cell in plan.cells)
        lines.append(
            f"{len(plan.cells)} stages take {duration(total)} one after the other: requests and tokens are the least, "
            "and between two stages what is in flight ends"
        )
    elif plan.soak:
        lines.append(f"each cell is measured for {duration(plan.duration_s or 0)}: requests and tokens are the least")
    if any(plan.think_s):
        low, high = plan.think_s
        lines.append(f"every stream pauses {low:g}{f' to {high:g}' if high > low else ''} s between its requests")
    if limits := _limits(plan):
        lines.append(f"the run stops, and may be resumed, before it takes more than {', '.join(limits)}")
    if plan.rate_search:
        lines.append("rates may be added, each as long and as many requests as it takes (--rate-search)")
    levels = {cell.concurrency for cell in plan.cells}
    if max(levels) > 1 and not plan.open_loop and not plan.staged:
        lines.append(
            f"where more than {LIMITED_SHARE:.0%} of a cell's requests are answered 429 it ends, "
            "and half its concurrency may be added"
        )
        beyond = "nothing is left out beyond a knee or a rate limit (--full-grid)"
        left_out = "concurrency more than one step beyond a tier's knee, or above a rate limit, may be left out"
        lines.append(beyond if plan.full_grid else f"{left_out} (--full-grid to keep it)")
    return lines


def _limits(plan: Plan) -> list[str]:
    """The budgets."""
    tokens = [f"{plan.budget_tokens:,} tokens"] if plan.budget_tokens is not None else []
    cost = [f"{plan.budget_cost:g} in cost"] if plan.budget_cost is not None else []
    time = [duration(plan.max_duration_s)] if plan.max_duration_s is not None else []
    return tokens + cost + time


def _table(plan: Plan) -> list[str]:
    rows = [("tier", "prompt tokens", f"body ({plan.filler})", "concurrency", "measured", "warm-up")]
    for cell in plan.cells:
        rows.append(
            (
                tier_name(cell.tier_tokens),
                f"{cell.target_tokens:,}",
                _size(body_bytes(cell.target_tokens, plan.filler)),
                str(cell.concurrency) if cell.rate is None else f"{cell.rate:g}/s, at most {cell.concurrency}",
                f"{plan.measured_of(cell):,}",
                f"{plan.warmup_requests(cell):,} x {plan.warmup_tokens(cell):,} tokens",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows]


def _size(size: int) -> str:
    return f"~{size / 1e6:.1f} MB" if size >= 1e6 else f"~{size / 1e3:.1f} kB"


def _time(plan: Plan, target: str, estimate: Estimate | None) -> str:
    speed = estimate or ASSUMED.get(target, ASSUMED_ELSEWHERE)
    reads, writes = 1000 / speed.prefill_ms, 1000 / speed.decode_ms
    basis = "measured" if estimate else "assumed, not measured"
    return (
        f"about {duration(plan.seconds(speed))} at {reads:,.0f} prompt tokens/s and {writes:,.0f} output tokens/s "
        f"per stream ({basis})"
    )


def _cost(plan: Plan, endpoint: Endpoint | None) -> str:
    if endpoint is None:
        return "none, it runs here"
    cost = plan.cost(endpoint)
    if cost is None:
        return "unknown; put price_input and price_output (per million tokens) into endpoints.toml"
    if plan.soak:
        return f"{cost:,.4f} {endpoint.currency} for the least of it: more requests come as long as the time lasts"
    return f"at most {cost:,.4f} {endpoint.currency}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
