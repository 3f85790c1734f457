"""The command line: one thin verb per module of this room."""

import argparse
import importlib
import os
import sys

from loadkit import __version__
from loadkit.record.names import ExitCode

# verb -> one line of help; its module has add_arguments(parser) and main(args) -> exit code.
VERBS = {
    "run": "run a ladder of context lengths and concurrencies against a target",
    "check": "find out whether a target answers, before loading it",
    "report": "print and write the report of a run folder again",
    "explain": "print the causes of an outcome or a flag, in checking order",
    "engine": "serve the NumPy engine",
    "selftest": "find out how wrong the client itself is at a load",
    "sim": "serve a simulated endpoint whose latency law is known",
}


def parser_of(verb: str) -> argparse.ArgumentParser:
    """The parser of one verb."""
    module = importlib.import_module(f"loadkit.cli.{verb}")
    parser = argparse.ArgumentParser(prog=f"loadkit {verb}", description=module.__doc__)
    module.add_arguments(parser)
    return parser


def _overview() -> str:
    rows = "\n".join(f"  {verb:<10}{text}" for verb, text in VERBS.items())
    return f"usage: loadkit VERB [options]\n\n{rows}\n\n`loadkit VERB --help` lists the options of a verb.\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the verb named first. Returns an exit code of loadkit.record.names.ExitCode."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return ExitCode.COMPLETE if words else ExitCode.USAGE
    if words[0] == "--version":
        print(f"loadkit {__version__}")
        return ExitCode.COMPLETE
    if words[0] not in VERBS:
        print(f"loadkit: no verb '{words[0]}'; there are: {', '.join(VERBS)}", file=sys.stderr)
        return ExitCode.USAGE
    module = importlib.import_module(f"loadkit.cli.{words[0]}")
    try:
        return module.main(parser_of(words[0]).parse_args(words[1:]))
    except BrokenPipeError:
        # The reader of our output left (`loadkit report | head`); point stdout elsewhere so that exit stays quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.COMPLETE


if __name__ == "__main__":
    sys.exit(main())
