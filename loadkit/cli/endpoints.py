"""List the endpoints there are, and take over those of other tools: `loadkit endpoints import FILE`.

A key is never printed. What an import finds written in a file has to be exported under the variable it names.
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from loadkit.cli.streams import say
from loadkit.plan import endpoints_file
from loadkit.plan.endpoint import Endpoint
from loadkit.plan.errors import ConfigError
from loadkit.plan.imports import Imported, convert
from loadkit.plan.shown import shown
from loadkit.plan.tiers import tier_name
from loadkit.record.names import ExitCode

HEADINGS = ("name", "host", "model", "protocol", "window", "key", "set", "note")
MAX_FILE_BYTES = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No word lists; `import FILE` converts."""
    parser.add_argument("--endpoints", metavar="FILE", help="endpoints file; default as for `loadkit run`")
    actions = parser.add_subparsers(dest="action", metavar="import")
    importing = actions.add_parser("import", help="print another tool's file as text for endpoints.toml")
    importing.add_argument(
        "file", help="a Codex config.toml, a Claude settings.json, JSON with a base URL, key and model, [provider] TOML"
    )
    importing.add_argument("--name", help="name of the endpoint; default: the one in the file")
    importing.add_argument("--write", action="store_true", help="append it to the endpoints file instead of printing")


def main(args: argparse.Namespace) -> int:
    """Print the table or the converted text."""
    if args.action == "import":
        _import(args)
    else:
        _list(args.endpoints)
    return ExitCode.COMPLETE


def _list(named: str | None) -> None:
    path = endpoints_file.find(named, Path.cwd(), os.environ)
    found = list(endpoints_file.load(path).values()) if path else []
    by_variables = endpoints_file.from_environ(os.environ)
    listed = [*found, by_variables] if by_variables else found
    if not listed:
        print("There is no endpoint: write endpoints.toml, set LOADKIT_BASE_URL, or `loadkit endpoints import FILE`.")
        return
    print("\n".join(table(listed, os.environ)))
    if path:
        print(f"\nFrom {path}{f'; {by_variables.name} from variables' if by_variables else ''}.")
    else:
        print("\nFrom variables; there is no endpoints.toml.")
    for endpoint in listed:
        for line in _faults(endpoint, os.environ):
            print(shown(f"{endpoint.name}: {line}"))


def table(endpoints: list[Endpoint], environ: Mapping[str, str]) -> list[str]:
    """One line for each endpoint under a line of headings. `set` says whether the key is there, never what it is."""
    rows = [HEADINGS, *(_row(endpoint, environ) for endpoint in endpoints)]
    clean = [tuple("".join(c if c.isprintable() else " " for c in text) for text in row) for row in rows]
    widths = [max(len(row[i]) for row in clean) for i in range(len(HEADINGS))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in clean]


def _row(endpoint: Endpoint, environ: Mapping[str, str]) -> tuple[str, ...]:
    if endpoint.key_file:
        key, there = endpoint.key_file, os.path.isfile(endpoint.key_file)
    else:
        key, there = endpoint.key_env or "-", bool(endpoint.key_env and environ.get(endpoint.key_env))
    return (
        endpoint.name,
        endpoint.host,
        endpoint.model or "-",
        endpoint.protocol,
        tier_name(endpoint.window) if endpoint.window else "-",
        key,
        "-" if not endpoint.has_key else "yes" if there else "no",
        endpoint.note,
    )


def _faults(endpoint: Endpoint, environ: Mapping[str, str]) -> list[str]:
    """What would stop a run before anything is sent; a key that is only missing stands in the table already."""
    faults = list(endpoint.warnings())
    try:
        if endpoint.key_file or (endpoint.key_env and environ.get(endpoint.key_env)):
            endpoint.key(environ)
    except ConfigError as error:
        faults.append(error.message)
    return faults


def _import(args: argparse.Namespace) -> None:
    imported = convert(_read(Path(args.file)), args.file, args.name)
    if args.write:
        _append(imported, args.endpoints)
    else:
        print(imported.text, end="")
    for note in imported.notes:
        say(f"note: {note}")
    for variable, field in imported.moved:
        say(f"the key under {field} of {args.file} was left out: export it as {variable}")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: is larger than 1 MB, which no such file is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None


def _append(imported: Imported, named: str | None) -> None:
    """Add the text to the file in force, or to a new ./endpoints.toml; nothing is written when a name is taken."""
    if named is not None:
        path = Path.cwd() / named
    else:
        path = endpoints_file.find(None, Path.cwd(), os.environ) or Path.cwd() / endpoints_file.FILE_NAME
    known = endpoints_file.load(path) if path.exists() else {}
    added = endpoints_file.parse(imported.text, str(path))
    taken = [name for name in added if name in known]
    if taken:
        raise ConfigError(f"{path}: has an endpoint {taken[0]!r} already: choose another with --name")
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n{imported.text}" if file.tell() else imported.text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None
    print(shown(f"{path}: added {', '.join(added)}"))
