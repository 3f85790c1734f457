"""What a worker is told before it may measure, and the session it makes of it. Keys are never part of it."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from loadkit import __version__
from loadkit.call.choose import without_proxies
from loadkit.plan.endpoint import Endpoint
from loadkit.plan.errors import ConfigError
from loadkit.plan.ladder import Plan
from loadkit.record.errors import FolderError, reason
from loadkit.record.folder import RunFolder
from loadkit.record.spool import Spool
from loadkit.swarm.channel import Data, Outbox
from loadkit.swarm.limits import check_limits
from loadkit.swarm.session import Session
from loadkit.swarm.shipped import Ref, Shelf, Text
from loadkit.swarm.spooling import Spooling
from loadkit.target.table import Target


def brief_of(session: Session, shelf: Shelf) -> Data:
    """Everything about the run as builtins; prompts by where they are and by their hashes."""
    return {
        "version": __version__,
        "plan": session.plan.to_json(),
        "ladder": session.ladder,
        "mark": session.mark,
        "endpoint": session.target.endpoint.to_json(),
        "target": session.target.kind,
        "bos_tokens": session.bos_tokens,
        "overhead_tokens": session.overhead_tokens,
        "texts": shelf.refs(),
        "spools": str(session.folder.spools_path),
    }


def session_of(
    brief: Data,
    text: Callable[[int, Ref], Text],
    outbox: Outbox,
    *,
    name: str,
    mark: str,
    environ: Mapping[str, str] = os.environ,
) -> tuple[Session, Spool]:
    """The session of the worker `name`, and its spool. `text(length, ref)` gets prompts, the key is in `environ`.

    mark: goes into the ids of its requests. ConfigError where a key is missing, this machine cannot take the plan or
    the master is of another version; FolderError where there is no room for a spool.
    """
    if (version := brief.get("version")) != __version__:
        raise ConfigError(f"it has loadkit {__version__} and its master {str(version)[:40]}: install the same one")
    plan, endpoint = Plan.from_json(brief["plan"]), Endpoint.from_json(brief["endpoint"])
    check_limits(plan)
    environ = environ if plan.proxy else without_proxies(environ)
    key = endpoint.key(environ)
    texts = {int(length): text(int(length), ref) for length, ref in brief["texts"].items()}
    spool = Spool(_spools(Path(brief["spools"])), brief["run"], name)
    keeper = Spooling(spool, outbox)
    session = Session(
        run_id=brief["run"],
        plan=plan,
        target=Target(brief["target"], endpoint),
        key=key,
        texts=texts,
        bos_tokens=brief["bos_tokens"],
        overhead_tokens=brief["overhead_tokens"],
        folder=RunFolder(spool.path.parent),
        manifest=None,
        environ=environ,
        worker=name,
        mark=brief["mark"] + mark,
        keeper=keeper,
    )
    if not brief["ladder"]:
        session.without_ladder()
    keeper.on_full = session.fail
    return session, spool


def _spools(of_master: Path) -> Path:
    """The master's own folder where it is on this machine, else ./spools."""
    if of_master.is_dir():
        return of_master
    folder = Path("spools")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise FolderError(f"cannot make the folder spools for the records of this worker: {reason(error)}") from error
    return folder
