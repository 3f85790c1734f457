"""What the whole run sent and received, to hold against a bill: every phase, failed and retried attempts included."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from loadkit.analysis.reading import attempts, number
from loadkit.analysis.strata import UNKNOWN, outcome_of
from loadkit.record.names import Outcome

MESSAGE_CHARS = 800


class Totals:
    """Add every record of the run, then `summary()` and `errors()`."""

    def __init__(self) -> None:
        self.requests = self.attempts = self.retried = 0
        self.phases: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.tokens: dict[str, Counter[str]] = {"prompt": Counter(), "cached": Counter(), "output": Counter()}
        self.unanswered = 0.0
        self._errors: dict[tuple[str, str], dict[str, Any]] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Take one request."""
        tries = max(len(attempts(record)), 1)
        outcome = outcome_of(record)
        self.requests += 1
        self.attempts += tries
        self.retried += tries > 1
        self.phases[str(record.get("phase") or UNKNOWN)] += 1
        self.outcomes[outcome] += 1
        self._add_tokens(record, tries)
        if outcome != Outcome.OK:
            self._add_error(record, outcome)

    def _add_tokens(self, record: Mapping[str, Any], tries: int) -> None:
        prompt = number(record, "prompt_tokens")
        if prompt is None:
            planned = number(record, "target_tokens") or number(record, "tier_tokens") or 0
            self.unanswered += planned * tries
        else:
            self.unanswered += prompt * (tries - 1)
        self._count("prompt", prompt, record.get("prompt_tokens_source"))
        self._count("cached", number(record, "cached_tokens"), "usage")
        self._count("output", number(record, "output_tokens"), record.get("output_tokens_source"))

    def _count(self, kind: str, tokens: float | None, source: Any) -> None:
        if tokens:
            self.tokens[kind][str(source or UNKNOWN)] += int(tokens)

    def _add_error(self, record: Mapping[str, Any], outcome: str) -> None:
        """Count it, and keep the first words of the server for each outcome of each cell."""
        key = (str(record.get("cell") or ""), outcome)
        found = self._errors.setdefault(
            key, {"cell": key[0] or None, "outcome": outcome, "n": 0, "http_status": None, "message": None}
        )
        found["n"] += 1
        found["http_status"] = found["http_status"] or number(record, "http_status")
        if found["message"] is None and isinstance(record.get("error_message"), str):
            found["message"] = record["error_message"][:MESSAGE_CHARS]

    def summary(self) -> dict[str, Any]:
        """Counts of requests, and tokens by where their count comes from.

        `unanswered_prompt_tokens` are those of attempts that were given no count (failed requests, and every attempt
        before a retry): an upper bound of what a bill may hold on top.
        """
        return {
            "requests": self.requests,
            "ok": self.outcomes[Outcome.OK.value],
            "attempts": self.attempts,
            "retried": self.retried,
            "phases": dict(sorted(self.phases.items())),
            "outcomes": dict(sorted(self.outcomes.items())),
            **{f"{kind}_tokens": dict(sorted(sources.items())) for kind, sources in self.tokens.items()},
            "unanswered_prompt_tokens": int(self.unanswered),
        }

    def errors(self) -> list[dict[str, Any]]:
        """Every (cell, outcome) that failed in any phase, as seen: n, HTTP status, first message of the server."""
        return list(self._errors.values())
