"""The closed sets of label values, and which of them are there from the start."""

from collections.abc import Mapping
from typing import Any

from loadkit.record.names import Outcome, Phase

RUN = "run"
PLACE = ("endpoint", "tier", "concurrency")
OTHER = "other"  # of a label whose value is in no closed set: a series budget holds whatever a run does

MAX_CELLS = 100  # with series of their own; further ones share one place
MAX_SERIES = 60_000  # of a run, which follows from the closed sets and the two limits on cells and names

NO_STATUS = "none"
STATUSES = (200, 400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 502, 503, 504, 529)
CODES = (NO_STATUS, *map(str, STATUSES), "other_4xx", "other_5xx", OTHER)
OUTCOMES = tuple(outcome.value for outcome in Outcome)
PHASES = tuple(phase.value for phase in Phase)
STATES = ("idle", "visit", "linger")
DIRECTIONS = ("input", "output", "cached")
RETRIED_CODES = (NO_STATUS, "200", "429", "500", "502", "503", "529")
TIMES = ("ttft", "itl", "tpot", "e2e")
QUANTILES = {"0.5": 0.5, "0.9": 0.9, "0.95": 0.95, "0.99": 0.99}
LAG_QUANTILES = ("0.99", "1")
VALIDITIES = ("valid", "suspect", "invalid")
WORKER_STATES = ("planned", "live")
AXES = ("length", "concurrency")
REJECTING = ("ttft", "itl", "tpot", "e2e", "connect", "prefill")

# label -> its closed set; a label that is not here takes its values from the plan, the workers or the board.
CLOSED: dict[str, tuple[str, ...]] = {
    "phase": PHASES,
    "state": (*STATES, *WORKER_STATES),
    "outcome": OUTCOMES,
    "code": CODES,
    "direction": DIRECTIONS,
    "metric": REJECTING,
    "q": ("1", *QUANTILES),  # promtool keeps `quantile` for summaries
    "status": VALIDITIES,
    "axis": AXES,
}

# outcome -> the codes it usually comes with, at zero from the start: a series that appears with 1 has no increase.
USUAL_CODES: dict[Outcome, tuple[str, ...]] = {
    Outcome.OK: ("200",),
    Outcome.AUTH: ("401",),
    Outcome.FORBIDDEN: ("403",),
    Outcome.NOT_FOUND: ("404",),
    Outcome.MODEL_NOT_FOUND: ("404",),
    Outcome.BAD_REQUEST: ("400", "422"),
    Outcome.CONTEXT_LENGTH_EXCEEDED: ("400",),
    Outcome.PAYLOAD_TOO_LARGE: ("413",),
    Outcome.RATE_LIMITED: ("429",),
    Outcome.QUOTA_EXHAUSTED: ("402", "429"),
    Outcome.OVERLOADED: ("503", "529"),
    Outcome.SERVER_ERROR: ("500",),
    Outcome.BAD_GATEWAY: ("502",),
    Outcome.GATEWAY_TIMEOUT: ("504",),
    Outcome.HTTP_OTHER: ("other_4xx", "other_5xx"),
    **dict.fromkeys(
        (
            Outcome.CONNECT_ERROR,
            Outcome.DNS_ERROR,
            Outcome.TLS_ERROR,
            Outcome.PROXY_ERROR,
            Outcome.CONNECT_TIMEOUT,
            Outcome.POOL_TIMEOUT,
            Outcome.WRITE_TIMEOUT,
        ),
        (NO_STATUS,),
    ),
    **dict.fromkeys(
        (Outcome.TTFT_TIMEOUT, Outcome.TOTAL_TIMEOUT, Outcome.RESET, Outcome.PROTOCOL_ERROR, Outcome.ABORTED),
        (NO_STATUS, "200"),
    ),
    **dict.fromkeys(
        (
            Outcome.READ_TIMEOUT,
            Outcome.STREAM_TRUNCATED,
            Outcome.STREAM_ERROR,
            Outcome.EMPTY_RESPONSE,
            Outcome.BAD_RESPONSE_SHAPE,
        ),
        ("200",),
    ),
}


def code_of(status: int | None) -> str:
    """The label of an HTTP status, from the closed set."""
    if status is None:
        return NO_STATUS
    if status in STATUSES:
        return str(status)
    return {4: "other_4xx", 5: "other_5xx"}.get(status // 100, OTHER)


def load_of(cell: Mapping[str, Any]) -> str:
    """The label `concurrency` of a record or cell: its streams, or the rate of an open loop, '2.5rps', with '#2' at the
    end as second stage."""
    rate, stage = cell.get("rate"), cell.get("stage")
    load = str(cell["concurrency"]) if rate is None else f"{rate:.6g}rps"
    return load if stage is None else f"{load}#{stage}"


def place_of(cell_id: str) -> tuple[str, str]:
    """The labels `tier` and `concurrency` of a cell by its id, '4096x2' or '4096@2.5rps'."""
    tier, _, load = cell_id.replace("@", "x").partition("x")
    return tier, load
