"""Print the curl command that sends what `loadkit run` would send; it sends nothing itself.

The key stands in it as its variable. A short sample text replaces the prompt; `--data-file` writes the whole body.
"""

import argparse
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from loadkit.call.ask import request_headers
from loadkit.call.choose import proxies_set, proxy_variable, without_proxies
from loadkit.cli.streams import say
from loadkit.plan.endpoint import Endpoint, url_for
from loadkit.plan.errors import ConfigError
from loadkit.plan.flags import EXCHANGE
from loadkit.plan.keys import AUTH_HEADERS
from loadkit.plan.ladder import Plan
from loadkit.plan.options import add_options, resolve
from loadkit.prompt.counters import EstimateCounter
from loadkit.prompt.prompt import Piece, Prompt, PromptKey, escape
from loadkit.protocol import PROTOCOLS
from loadkit.record.names import ExitCode, Phase
from loadkit.target.counting import GUESSED_OVERHEAD, GUESSED_TOKENS_PER_WORD, Counting
from loadkit.target.texts import build_texts
from loadkit.target.tokenizer_file import by_file

SAMPLE = "Reply with one short sentence: is this line working?"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run that are in a request, and where the whole body goes; the rest of them is taken too."""
    more = ("tiers", "max-tokens", "temperature", "ignore-eos", "filler", "shared-prefix", "seed")
    add_options(parser, positional_url=True, shown={*EXCHANGE, *more})
    parser.add_argument("--data-file", metavar="FILE", help="write the body with a prompt of the first tier to FILE")


def main(args: argparse.Namespace) -> int:
    """Print the command on standard output and what it leaves out on standard error."""
    args.loadkit_dry_run = True  # nothing is sent, so a key that is not set is only said
    request = resolve(args, os.environ, Path.cwd())
    for warning in request.warnings:
        say(f"warning: {warning}")
    endpoint, plan = request.endpoint, request.plan
    if endpoint is None:
        raise ConfigError("curl needs a URL or --endpoint NAME: other targets have none before they are started")
    if endpoint.model is None:
        raise ConfigError("name the model with --model: nothing is sent, so the server cannot be asked for it")
    environ = os.environ if plan.proxy else without_proxies(os.environ)
    if args.data_file is None:
        data = "--data-raw " + shlex.quote(b"".join(body(endpoint, plan, (escape(SAMPLE),))).decode())
        say("note: a short sample text stands for the prompt; --data-file FILE writes a whole one")
    else:
        data = "--data-binary " + shlex.quote(f"@{args.data_file}")
        _write(Path(args.data_file), endpoint, plan)
    print(command(endpoint, data, environ, proxies_ignored=not plan.proxy))
    return ExitCode.COMPLETE


def command(endpoint: Endpoint, data: str, environ: Mapping[str, str], *, proxies_ignored: bool = False) -> str:
    """The command for a POSIX shell, an option a line. `environ` decides on the proxy, as it does for a run."""
    url = url_for(endpoint, PROTOCOLS[endpoint.protocol].path)
    lines = [f"curl -sS -N --connect-timeout {endpoint.timeouts.connect:g} {shlex.quote(url)}"]
    proxy = proxy_variable(url, environ)
    if proxy is not None:
        lines.append(f'--proxy "${proxy}"')
    elif proxies_ignored or proxies_set(environ):
        lines.append("--noproxy '*'")
    for name, value in request_headers(endpoint, _key_reference(endpoint)).items():
        text = f"{name}: {value}"
        lines.append(f'-H "{text}"' if name.lower() in AUTH_HEADERS else f"-H {shlex.quote(text)}")
    return " \\\n  ".join([*lines, data])


def _key_reference(endpoint: Endpoint) -> str | None:
    """What the shell puts the key in for, inside double quotes."""
    if endpoint.key_file:
        return f"$(cat {shlex.quote(endpoint.key_file)})"
    return f"${endpoint.key_env}" if endpoint.key_env else None


def body(endpoint: Endpoint, plan: Plan, content: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The pieces of the request body around an escaped prompt."""
    head, tail = PROTOCOLS[endpoint.protocol].body(
        endpoint.model or "",
        max_tokens=plan.max_tokens,
        temperature=plan.temperature,
        extra=endpoint.extra_body,
        ignore_eos=plan.ignore_eos,
        max_tokens_field=endpoint.max_tokens_field,
    )
    return head, *content, tail


def _write(path: Path, endpoint: Endpoint, plan: Plan) -> None:
    prompt = _first_prompt(plan)
    try:
        path.write_bytes(b"".join(body(endpoint, plan, prompt.content)))
    except OSError as error:
        raise ConfigError(f"--data-file {path}: cannot be written ({error.strerror})") from None
    tokens = f"{prompt.tokens:,} tokens" if prompt.tokens is not None else "unknown length"
    say(f"note: {path} holds a prompt of about {tokens}, not counted by the server")


def _first_prompt(plan: Plan) -> Prompt:
    """The first measured prompt of the first cell, counted without asking the server."""
    if plan.tokenizer is not None:
        counting = by_file(Path(plan.tokenizer), [])
    else:
        counting = Counting(EstimateCounter(GUESSED_TOKENS_PER_WORD), GUESSED_OVERHEAD, None, "guessed", proven=False)
    cell = plan.cells[0]
    key = PromptKey(plan.seed, cell.id, 1, 0, Phase.MEASURE.value)
    return build_texts(plan, counting)[cell.target_tokens].prompt(key)
