"""The options of a run, the same for `loadkit run` and for a Locust command line.

Values stay text in the parser, so that a bad one is our one-line error on every command line, and so that Locust can
send them to its workers. Every dest begins with `loadkit_`, which no option of Locust's does.
"""

from argparse import SUPPRESS
from collections.abc import Collection
from typing import Any, Protocol

from loadkit.plan.endpoint import PROTOCOL_NAMES

TARGETS = ("endpoint", "engine", "sim", "board")
PREFIX = "loadkit_"


class Parser(Protocol):
    """What argparse's and configargparse's parsers and groups have in common."""

    def add_argument(self, *args: Any, **kwargs: Any) -> Any:
        """Declare one option."""


_VALUES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("--url",), "URL", "base URL of a server, such as http://127.0.0.1:8000"),
    (("--target",), "KIND", f"what to load: {', '.join(TARGETS)}; without a URL or an endpoint: engine"),
    (("--board",), "NAME", "edge board that the URL's server runs on, such as rk3588; `loadkit board --help` has more"),
    (("--board-host",), "HOST", "where the board's clocks and temperatures are read: local, or a host for ssh"),
    (("--sysfs-root",), "DIR", "folder the board's sys and proc are in; default /"),
    (("--quant",), "NAME", "how the weights are stored, a must for boards: w8a8, w4a16_g128, q4_k_m …"),
    (("--bandwidth",), "SIZE", "memory bandwidth of the board, such as 25.8GB, or `measure`; default: theoretical"),
    (("--card",), "CARD", "model card for bytes per token: a name, a config.json, a model folder or a GGUF file"),
    (("--endpoint",), "NAME", "endpoint of endpoints.toml"),
    (("--endpoints",), "FILE", "endpoints file; default ./endpoints.toml, then ~/.config/loadkit/endpoints.toml"),
    (("--model",), "NAME", "model to ask for; default: the endpoint's, or the only one the server lists"),
    (("--protocol",), "NAME", f"{', '.join(PROTOCOL_NAMES)}; default: the endpoint's, or openai-chat"),
    (("--plan",), "NAME", "named plan: long (4K to 1M) or edge (128, 512, 1024); instead of tiers and concurrency"),
    (("--tiers", "--lengths"), "LIST", "prompt lengths in server-counted tokens, such as 4K,32K"),
    (("--concurrency",), "LIST", "streams in flight, such as 1,2,4"),
    (("--rounds",), "N", "measured requests per stream and cell; default 3"),
    (("--refine",), "N", "add up to N tiers at concurrency 1 where they narrow the knee most; default 0"),
    (("--warmup",), "N", "warm-up requests per cell, at least one per stream; default 1, on boards 3"),
    (("--max-tokens",), "N", "output tokens asked for; default 128, on the embedded engine 16"),
    (("--temperature",), "T", "sampling temperature; default 0"),
    (("--tokenizer",), "PATH", "tokenizer.json, *.tiktoken or sentencepiece *.model to count prompts with"),
    (("--filler",), "NAME", "language of the prompts: en or zh; default en"),
    (("--shared-prefix",), "F", "fraction of each prompt that all have in common, to measure prefix caches; default 0"),
    (("--prompts",), "FILE", "public prompts to send instead, JSON or JSONL; needs --prompts-are-public"),
    (("--seed",), "N", "same seed, same prompt bytes; default: a fresh one, kept in the manifest"),
    (("--rate",), "LIST", "open loop: requests arrive so many a second, such as 2.5 or 1,2,4; default: closed loop"),
    (("--arrivals",), "KIND", "how they arrive: poisson or constant; default poisson"),
    (("--max-in-flight",), "N", "most streams of an open loop; arrivals beyond are dropped and counted; default 128"),
    (("--duration",), "TIME", "measure each cell for so long, such as 20m, instead of --rounds"),
    (("--stages",), "LIST", "load in stages TIME:STREAMS or TIME:RATErps; 60s:1,9s:8,60s:1 is a spike, 60s:1-8 a ramp"),
    (("--think",), "TIME", "pause between two requests of a stream, such as 500ms, or drawn from 0.2s..1s; default 0"),
    (("--budget-tokens",), "N", "stop before prompt and output tokens of the run exceed N"),
    (("--budget-cost",), "X", "stop before its cost by the endpoint's prices exceeds X"),
    (("--max-duration",), "TIME", "stop after so long, such as 10m; --resume goes on"),
    (("--resume",), "RUN", "go on with the run of this folder: its finished visits are kept, others repeated"),
    (("--slo",), "TEXT", "objectives such as ttft=2s,itl=50ms,error_rate=1%%"),
    (("--out",), "DIR", "folder that run folders go into; default runs"),
    (("--connect-timeout",), "S", "seconds to connect; default 10"),
    (("--ttft-timeout",), "S", "seconds to the first token; default 600, more for tiers above 128K"),
    (("--read-timeout",), "S", "seconds of silence after that; default 600"),
    (("--extra-body",), "JSON", "further fields of the request body, as a JSON object"),
    (("--weights",), "PATH", "weights of the embedded engine"),
    (("--metrics-port",), "PORT", "of the live metrics, or ADDRESS:PORT; default 127.0.0.1:9646, then the next free"),
)
_SWITCHES: tuple[tuple[str, str], ...] = (
    ("--token-ids", "send prompts as token ids (needs --tokenizer and --protocol openai-completions)"),
    ("--perf", "count what the board's cores and memory controller do meanwhile, with its `perf stat`"),
    ("--ignore-eos", "generate max-tokens tokens where the server can be told to"),
    ("--rate-search", "add rates until the highest one that holds (objectives of --slo too) is known to 5 %%"),
    ("--full-grid", "measure every cell, also beyond the knee over concurrency and above a rate limit"),
    ("--quiet", "print only the verdict, the run folder and errors"),
    ("--dry-run", "print the plan and stop"),
    ("--yes", "do not ask before a plan of more than 1M tokens"),
    ("--no-check", "do not check the endpoint before the run"),
    ("--no-retry", "send every request once"),
    ("--no-metrics", "serve no live metrics"),
    ("--no-proxy", "ignore HTTP_PROXY, HTTPS_PROXY and ALL_PROXY"),
    ("--prompts-are-public", "the texts of --prompts hold nothing private: they are sent to the endpoint"),
)


# What bears on the one exchange that `loadkit check` and `loadkit curl` are about.
EXCHANGE = (
    *("url", "endpoint", "endpoints", "model", "protocol", "tokenizer", "extra-body", "header"),
    *("connect-timeout", "no-proxy"),
)


def add_options(parser: Parser, *, positional_url: bool = False, shown: Collection[str] | None = None) -> None:
    """Add the options of a run. `positional_url` takes the URL as a bare argument too; Locust has no room for one.

    shown: the names of those that the help lists; the others are taken all the same, so that a line for `run` serves.
    """

    def told(flag: str, text: str) -> str:
        return text if shown is None or flag.lstrip("-") in shown else SUPPRESS

    if positional_url:
        parser.add_argument("loadkit_url_argument", metavar="URL", nargs="?", help="base URL of a server")
    for flags, metavar, text in _VALUES:
        parser.add_argument(*flags, dest=_dest(flags[0]), metavar=metavar, help=told(flags[0], text))
    header = told("--header", "further request header; repeatable")
    parser.add_argument("--header", dest=_dest("--header"), metavar="K=V", action="append", help=header)
    for flag, text in _SWITCHES:
        parser.add_argument(flag, dest=_dest(flag), action="store_true", help=told(flag, text))


def option_names() -> tuple[str, ...]:
    """Every option by its name, without the dashes."""
    return tuple(flag.lstrip("-") for flag in (*(flags[0] for flags, *_ in _VALUES), *dict(_SWITCHES), "--header"))


def _dest(flag: str) -> str:
    return PREFIX + flag.lstrip("-").replace("-", "_")
