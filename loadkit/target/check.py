"""Find out in order whether a run can succeed: base URL, key, model, window; stop at the first failure.

Two short requests settle it: a ping of at most 32 tokens, then one of about 1K, so that an error of configuration and a
limit of length are told apart. Their usage also says what the chat template costs and whether a tokenizer is right.
"""

import random
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from loadkit.call.ask import Ask
from loadkit.call.choose import open_transport
from loadkit.call.request import Call, Caller
from loadkit.call.retry import NO_RETRY, RetryBudget
from loadkit.plan.endpoint import Endpoint, url_for
from loadkit.plan.errors import ConfigError, TargetError
from loadkit.prompt.calibrate import first_words
from loadkit.prompt.filler import filler
from loadkit.prompt.prompt import Prompt, escape, text_sha256
from loadkit.prompt.token_ids import PROTOCOL as TAKES_IDS
from loadkit.prompt.token_ids import TokenIds
from loadkit.protocol import PROTOCOLS
from loadkit.record.names import Outcome
from loadkit.record.record import Record
from loadkit.record.redact import Redactor
from loadkit.target.bounded import AnswerUnfinished
from loadkit.target.control import ModelFacts, list_models, one_line
from loadkit.target.counting import Counting, Ping, choose_counter
from loadkit.target.route import blamed, route
from loadkit.target.tokenizer_file import by_file

PING = "Reply with one short sentence: is this line working?"
PING_OUTPUT = 16
LONG_PING_WORDS = 700  # about 1K tokens in the vocabularies in use
WRONG_METHOD = (405, 501)  # a server that takes no POST here is not the API
# Outcomes that say something of the place or the key, and nothing of the model.
NOT_OF_THE_MODEL = frozenset({Outcome.AUTH, Outcome.FORBIDDEN, Outcome.NOT_FOUND, Outcome.BAD_RESPONSE_SHAPE})
ADVICE: dict[Outcome, str] = {
    Outcome.FORBIDDEN: "check what the key may use",
    Outcome.NOT_FOUND: "check the base URL and the protocol",
    Outcome.BAD_RESPONSE_SHAPE: "check the base URL and the protocol: this is not the answer of such an API",
}


@dataclass(slots=True)
class Check:
    """What a check found. `endpoint` has its model filled in; `counting` is how prompts for it are counted.

    `listed` is for showing: names in it hold no key, even where the server put ours there.
    """

    endpoint: Endpoint
    counting: Counting
    listed: list[ModelFacts] = field(default_factory=list)
    pings: list[Record] = field(default_factory=list)
    stated: int | None = None  # the window the server lists for the model, in tokens

    @property
    def window(self) -> int | None:
        """The window in tokens: declared, else what the server lists, else what a refusal named."""
        known = self.endpoint.window or self.stated
        return known or next((ping.limit_tokens for ping in self.pings if ping.limit_tokens), None)


def check(
    client: httpx.Client,
    endpoint: Endpoint,
    key: str | None,
    environ: Mapping[str, str],
    *,
    ping: bool = True,
    tokenizer: str | None = None,
    token_ids: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Check:
    """Check an endpoint with its control client. `ping` False sends nothing that generates: it finds model and counter.
    `tokenizer` is the path of the file to count with, if one is named; `token_ids`: prompts go as its ids.

    Raises ConfigError where options must change (several models, none named), TargetError where the target fails.
    """
    redactor = Redactor([key] if key else [])

    def tell(line: str) -> None:
        say(redactor.text(line))

    tell(f"base URL: {url_for(endpoint, PROTOCOLS[endpoint.protocol].path)} ({route(endpoint, environ)})")
    try:
        ids = _ids(endpoint, tokenizer) if token_ids else None
        found = _check(client, endpoint, key, environ, ping, tokenizer, ids, tell)
    except TargetError as error:
        error = blamed(error, endpoint, environ)
        raise TargetError(redactor.text(error.message), error.outcome) from None
    except ConfigError as error:
        raise ConfigError(redactor.text(error.message)) from None
    shown = [replace(facts, id=redactor.text(one_line(facts.id))) for facts in found.listed]
    return replace(found, listed=shown)


def _check(
    client: httpx.Client,
    endpoint: Endpoint,
    key: str | None,
    environ: Mapping[str, str],
    ping: bool,
    tokenizer: str | None,
    ids: TokenIds | None,
    say: Callable[[str], None],
) -> Check:
    listed = _listed(client, endpoint, say) if ping or endpoint.model is None else None
    if not endpoint.model and not listed and ping:
        _judge_unnamed(endpoint, send(endpoint, key, environ, PING))
    endpoint = replace(endpoint, model=_model(endpoint, listed or []))
    say(f"model: {one_line(endpoint.model or '')} {_standing(endpoint.model, listed)}")
    known = next((facts for facts in listed or [] if facts.id == endpoint.model), None)
    texts = [PING, long_ping(endpoint.window or (known.window if known else None))] if ping else []
    records = []
    for text in texts:
        records.append(send(endpoint, key, environ, text, ids))
        _judge(endpoint, records[-1], listed or [], short=len(records) == 1)
        if ids is not None:
            _judge_ids(records[-1], len(ids.ids(text)))
    if counts_words(texts, records):
        say("usage: the server counts words, not tokens: it is not used")
        endpoint = replace(endpoint, word_usage=True)
        for record in records:
            record.prompt_tokens = record.prompt_tokens_source = None
            record.output_tokens = record.output_tokens_source = None
    counting = _counting(client, endpoint, texts, records, known, tokenizer)
    say(f"prompt tokens: {counting.note}; template and BOS take {counting.overhead_tokens}")
    return Check(endpoint, counting, listed or [], records, known.window if known else None)


def _ids(endpoint: Endpoint, tokenizer: str | None) -> TokenIds:
    """The encoder of a run that sends token ids. ConfigError where its protocol takes text only."""
    if endpoint.protocol != TAKES_IDS:
        raise ConfigError(f"--token-ids needs --protocol {TAKES_IDS}: {endpoint.protocol} takes text")
    return TokenIds(tokenizer or "")


def _judge_ids(record: Record, sent: int) -> None:
    """ConfigError where the server read another number of tokens than ids were sent: it took them for text."""
    read = record.prompt_tokens
    if record.outcome == Outcome.OK and record.prompt_tokens_source == "usage" and read != sent:
        raise ConfigError(f"--token-ids: {sent:,} ids were sent and the server read {read:,} tokens: leave it out")


def counts_words(texts: list[str], records: list[Record]) -> bool:
    """Whether the usage of two answers is the number of words sent, as RKLLM's demo counts: no tokenizer does that."""
    stated = [record.prompt_tokens for record in records if record.prompt_tokens_source == "usage"]
    return len(stated) > 1 and stated == [len(text.split()) for text in texts]


def _listed(client: httpx.Client, endpoint: Endpoint, say: Callable[[str], None]) -> list[ModelFacts] | None:
    """What the server lists. A list without an end is left, and matters only where no model is named."""
    try:
        return list_models(client, endpoint)
    except AnswerUnfinished as error:
        if endpoint.model is None:
            message = f"{endpoint.host} was asked for its models and {error}: name one with --model"
            raise TargetError(message, Outcome.READ_TIMEOUT) from None
        say(f"models: {endpoint.host} was asked for its list and {error}")
        return None


def _model(endpoint: Endpoint, listed: list[ModelFacts]) -> str:
    """The model asked for, else the only one listed."""
    if endpoint.model:
        return endpoint.model
    if len(listed) == 1:
        return listed[0].id
    if listed:
        raise ConfigError(f"{endpoint.host} lists {len(listed)} models, name one with --model: {_names(listed)}")
    raise ConfigError(f"{endpoint.host} lists no models: name one with --model")


def _standing(model: str | None, listed: list[ModelFacts] | None) -> str:
    """Where a model stands in the server's list; one that is not in it may still be an alias."""
    if not listed:
        return "(the server lists none)"
    found = any(facts.id == model for facts in listed)
    return f"(the server lists {len(listed)})" if found else f"(not among the {len(listed)} the server lists)"


def _names(listed: list[ModelFacts]) -> str:
    return ", ".join(one_line(facts.id, 100) for facts in listed[:20]) + (" …" if len(listed) > 20 else "")


def long_ping(window: int | None) -> str:
    """A fresh text of about 1K tokens, less where the window is known to be small."""
    words = LONG_PING_WORDS if window is None else max(20, min(LONG_PING_WORDS, window // 8))
    return f"Check {secrets.token_hex(4)}. {first_words(filler('en').text, words)}"


def send(
    endpoint: Endpoint, key: str | None, environ: Mapping[str, str], text: str, ids: TokenIds | None = None
) -> Record:
    """One request, sent once, its record kept nowhere."""
    transport = open_transport(url_for(endpoint, PROTOCOLS[endpoint.protocol].path), environ)
    prompt = Prompt((escape(text),), None, False, "estimate", chars=len(text), sha256=text_sha256(text))
    caller = Caller(
        ask=Ask(endpoint, key, max_tokens=PING_OUTPUT),
        transport=transport,
        budget=RetryBudget(),
        rng=random.Random(),
        policy=NO_RETRY,
        encode=None if ids is None else ids.encode,
    )
    try:
        return caller.run(Call(lambda: prompt, {"request_id": f"check-{secrets.token_hex(6)}"}))
    finally:
        transport.close()


def _judge(endpoint: Endpoint, record: Record, listed: list[ModelFacts], *, short: bool) -> None:
    """Raise TargetError for a failed ping. A longer one may fail on length alone: that is a finding, not a fault."""
    if record.outcome == Outcome.OK:
        return
    outcome = Outcome(record.outcome or Outcome.PROTOCOL_ERROR)
    if not short and outcome in (Outcome.CONTEXT_LENGTH_EXCEEDED, Outcome.PAYLOAD_TOO_LARGE):
        return
    which = "a short ping" if short else "a prompt of about 1K tokens (a shorter one was answered)"
    status = f" HTTP {record.http_status}" if record.http_status else ""
    said = f": {one_line(record.error_message)}" if record.error_message else ""
    url = url_for(endpoint, PROTOCOLS[endpoint.protocol].path)
    advice = _advice(endpoint, outcome, record.http_status or 0, listed)
    raise TargetError(f"{url} answered {which} with {outcome}{status}{said}; {advice}", outcome)


def _judge_unnamed(endpoint: Endpoint, record: Record) -> None:
    """A request without a model still shows whether base URL and key are right; any other complaint is about that."""
    status = record.http_status or 0  # 0: no answer at all
    if record.outcome in NOT_OF_THE_MODEL or status in WRONG_METHOD or status < 400:
        _judge(endpoint, record, [], short=True)


def _advice(endpoint: Endpoint, outcome: Outcome, status: int, listed: list[ModelFacts]) -> str:
    """What to change about it."""
    if outcome is Outcome.MODEL_NOT_FOUND:
        return "check the model name" + (f"; it lists {_names(listed)}" if listed else "")
    if outcome is Outcome.AUTH:
        key = endpoint.key_place
        return f"check the key in {key}" if key else "set LOADKIT_API_KEY, or key_env in endpoints.toml"
    if 300 <= status < 400:
        return "the server redirects: give the base URL it redirects to (often the same with https)"
    if status in WRONG_METHOD:
        outcome = Outcome.NOT_FOUND
    return ADVICE.get(outcome, f"see `loadkit explain {outcome}`")


def _counting(
    client: httpx.Client,
    endpoint: Endpoint,
    texts: list[str],
    records: list[Record],
    known: ModelFacts | None,
    tokenizer: str | None,
) -> Counting:
    pings: list[Ping] = [
        (text, record.prompt_tokens)
        for text, record in zip(texts, records, strict=True)
        if record.outcome == Outcome.OK and record.prompt_tokens and record.prompt_tokens_source == "usage"
    ]
    counting = by_file(Path(tokenizer), pings) if tokenizer else choose_counter(client, endpoint, pings)
    if known is not None and known.bos_tokens is not None:
        counting = replace(counting, bos_tokens=known.bos_tokens)
    return counting
