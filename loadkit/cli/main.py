"""The command line: one thin verb per module of this room."""

import argparse
import importlib
import sys
from typing import Any, NoReturn

from loadkit import __version__
from loadkit.cli import streams
from loadkit.plan.errors import ConfigError, TargetError
from loadkit.plan.shown import shown
from loadkit.record.errors import FolderError
from loadkit.record.names import ExitCode

# verb -> one line of help; its module, named with _ for -, has add_arguments(parser) and main(args) -> exit code. What
# a verb raises of ConfigError, FolderError and TargetError becomes one line and an exit code here.
VERBS = {
    "run": "run a ladder of context lengths and concurrencies against a target",
    "check": "find out whether a target answers, before loading it",
    "curl": "print the curl command of a request, without its key",
    "endpoints": "list the endpoints there are, or import other tools' files",
    "watch": "show the live page of a run that goes on in a browser",
    "backfill": "bring a finished run into Prometheus, so that Grafana shows it",
    "merge": "complete a run whose master died from the spools of its workers",
    "knee": "find where TTFT bends over length and over concurrency, in a run or in a CSV file",
    "report": "print and write the report of a run folder again",
    "analyze": "recompute every number from a records file, ours or another tool's, and explain it",
    "diff": "compare two runs that differ in one thing",
    "compare-definitions": "print a run as eight other tools would, and why they differ",
    "card": "print what a model's dimensions say: size, cache, what fits, growth, bounds",
    "capacity": "turn measured curves and objectives into goodput, replicas, queues and cost",
    "estimate": "tell tokens, time and money of a plan, or the wait of one prompt, before a run",
    "advise": "say what to tune first, with the calculation, the command and what is missing",
    "callsites": "find what a prompt log spends: calls by template, shared prefixes, their wait",
    "whatif": "compare a whole document with retrieval, or two models, from a unit price",
    "reconcile": "settle claims about a board: hold tokens/s against its memory, rank what each can be",
    "explain": "print the causes of an outcome or a flag, in checking order",
    "engine": "serve the NumPy engine, time it (bench), or run six context lengths on it (ladder)",
    "selftest": "find out how wrong the client itself is at a load",
    "board": "look at an edge board, hold its clocks still, let them go",
    "sim": "serve a simulated endpoint whose latency law is known",
}


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line, as all of ours are."""

    def error(self, message: str) -> NoReturn:
        """Raise the error instead of printing the usage and leaving."""
        raise ConfigError(f"{message}; `{self.prog} --help` lists the options")

    def print_help(self, file: Any = None) -> None:
        """Print the help; unlike argparse's own, this does not pass over a stream that takes nothing."""
        print(self.format_help(), end="", file=file)


def parser_of(verb: str) -> argparse.ArgumentParser:
    """The parser of one verb."""
    module = _module(verb)
    parser = Parser(prog=f"loadkit {verb}", description=module.__doc__)
    module.add_arguments(parser)
    return parser


def _module(verb: str) -> Any:
    return importlib.import_module(f"loadkit.cli.{verb.replace('-', '_')}")


def _overview() -> str:
    width = max(map(len, VERBS)) + 2
    rows = "\n".join(f"  {verb:<{width}}{text}" for verb, text in VERBS.items())
    return f"usage: loadkit VERB [options]\n\n{rows}\n\n`loadkit VERB --help` lists the options of a verb.\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the verb named first. Returns an exit code of loadkit.record.names.ExitCode."""
    streams.reopen()
    words = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            return _answer(words)
        finally:  # argparse leaves by SystemExit after its help
            sys.stdout.flush()
    except (ConfigError, FolderError) as error:
        return _failed(str(error), ExitCode.USAGE)
    except TargetError as error:
        return _failed(str(error), ExitCode.TARGET)
    except KeyboardInterrupt:  # before a run has begun, or in a verb that measures nothing
        return _failed("stopped", ExitCode.STOPPED)
    except BrokenPipeError:
        # The reader of our output left (`loadkit report | head`); point stdout elsewhere so that exit stays quiet.
        streams.silence()
        return ExitCode.COMPLETE
    except OSError as error:
        # Files have names and sockets are looked after where they are used; what is left is what we print to.
        streams.silence()
        return _failed(f"{error.filename or 'cannot write to standard output'}: {error.strerror}", ExitCode.USAGE)


def _answer(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return ExitCode.COMPLETE if words else ExitCode.USAGE
    if words[0] == "--version":
        print(f"loadkit {__version__}")
        return ExitCode.COMPLETE
    return _verb(words[0], words[1:])


def _verb(name: str, words: list[str]) -> int:
    if name not in VERBS:
        raise ConfigError(f"no verb {name[:40]!r}; there are: {', '.join(VERBS)}")
    arguments = parser_of(name).parse_args(words)
    return _module(name).main(arguments)


def _failed(message: str, code: int) -> int:
    streams.say(f"loadkit: {shown(message)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
