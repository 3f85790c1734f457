"""docs/metrics.md, made from the table; `python -m loadkit.live` writes it."""

from loadkit.live.families import number
from loadkit.live.labels import CLOSED, MAX_CELLS, MAX_SERIES, RUN
from loadkit.live.table import METRICS, Metric

INTRO = f"""# Live metrics

Made by `python -m loadkit.live` from `loadkit/live/table.py`; change that, not this page.

A run serves them at `http://127.0.0.1:9646/metrics`, or at the next free port if that one is taken; it says where.
`--metrics-port [ADDRESS:]PORT` chooses, `--no-metrics` serves none. In a fleet only the master serves, for all workers.
After the run the page stays until two more scrapes have seen the final numbers, for a minute at most and not at all
where nobody scraped. A scrape interval of 5 s or less suits; `loadkit backfill RUN` brings a run that nobody scraped.

- At `/` the same port has a page for browsers; `loadkit watch` finds and opens it. It asks for `/metrics` every two
  seconds and counts as a scraper.
- Every series also carries `{RUN}`, the id of the run.
- `tier` is the planned prompt length in tokens, `concurrency` the planned streams, or the rate of an open
  loop, such as `2.5rps`; as the second of `--stages` `8#2`.
- Label values come from closed sets or the plan and are at zero from the start. What is in no set counts as `other`;
  the first {MAX_CELLS} cells have series of their own, further ones share one: {MAX_SERIES:,} series are the most.
- Into histograms go successful requests of phase `measure` only; warm-up and drain are counted, by `phase`.
- Buckets are the Renard series R10 (ratio at most 1.28), the same for every tier, so they may be summed.
- The OpenMetrics page has exemplars on the buckets of TTFT: `request_id` is that of the record.
- Counters equal the records of the run folder, also of visits that were repeated; the exact stage quantiles follow
  the report and leave those out.
- A target that serves `/metrics` itself (vLLM, SGLang, llama.cpp, TGI, the embedded engine) is sampled every 5 s and at
  the end: `loadkit_server_*` here, rows of kind `server` in telemetry.jsonl. It is asked without the key.
- A record has `server_queue_ms`, `server_prefill_ms` and `server_decode_ms` where the answer itself tells them
  (`timings` of llama.cpp and of the embedded engine, usage of Groq, Cerebras and Ollama). Else they come from the
  histograms of the target's `/metrics` (vLLM; SGLang and TGI count the queue alone), and only where a window held
  exactly one request: at concurrency 1 the page is read once more after an answer, before the next request, as long
  as at most 2 % of the time goes into that, and the server must have counted exactly the one that ended. Everywhere
  else they stay null, and what the server says is the means above. Where records have them the report splits TTFT into
  queue, prefill and the rest, which is network, HTTP and tokenising.
- Totals of a run are `last_over_time(NAME[1d])`: `increase()` extrapolates, and an instant query after the run finds
  nothing, because its series ended with it.
- With the Prometheus Operator set `honorLabels: true`: its own `endpoint` label would take the place of ours.
"""
BOUNDS_SHOWN = 2


def markdown() -> str:
    """The page."""
    rows = [_row(metric) for metric in METRICS]
    head = ["| name | type | unit | labels | meaning | from |", "|---|---|---|---|---|---|"]
    sets = [f"- `{label}`: {', '.join(f'`{value}`' for value in values)}" for label, values in CLOSED.items()]
    parts = (INTRO.rstrip(), "## Table", "\n".join([*head, *rows]), "## Closed label sets", "\n".join(sets))
    return "\n\n".join(parts) + "\n"


def _row(metric: Metric) -> str:
    kind = metric.kind
    if metric.bounds:
        first, last = number(metric.bounds[0]), number(metric.bounds[-1])
        kind = f"histogram, {len(metric.bounds)} bounds {first} to {last}"
    shown = ", ".join(f"`{label}`" for label in metric.labels)
    cells = (f"`{metric.name}`", kind, metric.unit, shown, metric.help, metric.source)
    return "| " + " | ".join(cells) + " |"
