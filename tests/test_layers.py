"""The house rule: a room imports only rooms above it in the table of the README; engine and sim import none."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "loadkit"
ORDER = (
    "record", "measure", "capacity", "plan", "prompt", "protocol", "call", "live", "board", "target", "swarm",
    "analysis", "report", "cli",
)  # fmt: skip
ALONE = ("engine", "sim")
MODULES = sorted(PACKAGE.glob("*/**/*.py"))


def imports(path: Path) -> set[str]:
    """Every absolute module name that the file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def rooms_of(path: Path) -> set[str]:
    """The rooms that the file imports from, its own left out."""
    own = path.relative_to(PACKAGE).parts[0]
    names = [name.split(".") for name in imports(path)]
    return {parts[1] for parts in names if parts[0] == "loadkit" and len(parts) > 1} - {own, "__version__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_room_imports_only_rooms_above_it(path):
    """The order of the table is the order of knowledge: nothing knows what comes after it."""
    room = path.relative_to(PACKAGE).parts[0]
    allowed = set() if room in ALONE else set(ORDER if room == "cli" else ORDER[: ORDER.index(room)])
    assert rooms_of(path) <= allowed


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_swarm_imports_locust(path):
    """Importing locust patches the standard library, so one room does it, and that room only."""
    if path.relative_to(PACKAGE).parts[0] != "swarm":
        assert not {name for name in imports(path) if name.split(".")[0] == "locust"}


def test_swarm_imports_locust_first():
    """What is imported before locust would be patched too late."""
    tree = ast.parse((PACKAGE / "swarm" / "__init__.py").read_text())
    first = next(node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)))
    assert ast.unparse(first).startswith(("import locust", "from locust"))


@pytest.mark.parametrize("room", [name for name in (*ORDER, *ALONE) if name != "swarm"])
def test_importing_a_room_has_no_effect(room):
    """No thread, no patching and no locust after the import of every module of a room but swarm and the CLI's run."""
    if not (PACKAGE / room).is_dir():
        return
    modules = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in sorted((PACKAGE / room).rglob("*.py"))
        if path.name not in ("__main__.py", "__init__.py")
    ]
    code = (
        "import importlib, socket, sys, threading\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert socket.socket.__module__ == 'socket', 'patched'\n"
        "assert 'locust' not in sys.modules, 'locust imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_can_be_read_in_one_sitting(path):
    """Modules stay under 400 lines."""
    assert len(path.read_text().splitlines()) <= 400
