"""Imports run downward only; see ARCHITECTURE.md. Read from the source, so nothing is imported."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "server" / "wonder_server"
SDK = ROOT / "sdk" / "python" / "wonder_sdk"

# The room of a module is the folder or file right under wonder_server. What each may import of the
# project, beside itself; `wonder` is the generated code. Whoever lists `core` may use `core` alone.
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "std": set(),
    "ports": {"core"},
    "settings": {"settings_kinds"},
    "settings_kinds": set(),
    "logs": set(),
    "data_folder": {"logs"},
    "health": {"settings", "settings_kinds"},
    "actors": {"ports", "core", "logs"},
    "services": {"ports", "core", "logs"},
    "adapters": {"ports", "core", "logs"},
    "rpc": {"actors", "services", "ports", "core", "settings", "settings_kinds", "logs", "wonder"},
    "compose": {"rpc", "adapters", "actors", "services", "ports", "core", "std", "settings", "logs"},
    "lifecycle": {"core", "rpc", "settings", "logs", "data_folder"},
    "check": {"compose", "data_folder"},
    "serve": {"compose", "lifecycle", "rpc", "core", "settings", "logs", "data_folder"},
}
# Beyond the standard library, the pure room has the schema and regular expression libraries.
CORE_MAY_USE = {"jsonschema", "re2", "wonder_server", "msgspec"}


def sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def imports(path: Path, *, at_start: bool = False) -> Iterator[str]:
    """Full names of imported modules; ``at_start`` leaves out those inside functions and for types only."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        if at_start and (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            or (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"))
        ):
            continue
        pending.extend(ast.iter_child_nodes(node))


def room(module: str) -> str | None:
    """The room that a dotted name belongs to, None for what is not the project's."""
    parts = module.split(".")
    if parts[0] == "wonder":
        return "wonder"
    if parts[0] != "wonder_server":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in ALLOWED else ""


def module_of(path: Path) -> str:
    parts = list(path.relative_to(SERVER.parent).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", sources(SERVER), ids=module_of)
def test_a_module_imports_only_what_lies_below_it(path: Path) -> None:
    own = room(module_of(path))
    if own == "" and path.parent == SERVER and path.name == "__init__.py":
        assert not [name for name in imports(path) if room(name)]
        return
    assert own in ALLOWED, f"{path.name} has no place in the table of this test: give it one"
    found = {room(name) for name in imports(path)} - {None, "", own}
    assert found <= ALLOWED[own], f"{own} may not import {sorted(map(str, found - ALLOWED[own]))}"


@pytest.mark.parametrize("path", sources(SERVER / "core"), ids=module_of)
def test_core_uses_the_standard_library_and_few_bounded_ones(path: Path) -> None:
    for name in imports(path):
        top = name.split(".")[0]
        assert top in CORE_MAY_USE or top in sys.stdlib_module_names, name
        assert top not in ("asyncio", "socket", "sqlite3", "subprocess", "threading", "random"), name


def test_the_sdk_never_imports_the_server() -> None:
    for path in sources(SDK):
        if "_proto" in path.parts:  # generated, with relative imports
            continue
        assert not [name for name in imports(path) if name.split(".")[0] == "wonder_server"], path


def test_only_compose_names_adapters() -> None:
    for path in sources(SERVER):
        if room(module_of(path)) not in ("compose", "adapters"):
            assert "adapters" not in {room(name) for name in imports(path)}, path


def test_only_settings_reads_the_environment() -> None:
    for path in sources(SERVER):
        text = path.read_text(encoding="utf-8")
        # `dial.py` is a program of its own, to which git's and ssh's environment is all that is said.
        if path.name not in ("settings.py", "dial.py"):
            assert "os.environ" not in text and "getenv" not in text, f"{path}: ask settings.py instead"


def test_there_are_no_import_cycles() -> None:
    modules = {module_of(path): path for path in sources(SERVER)}
    graph = {name: _within(modules, name, path) for name, path in modules.items()}
    finished: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name in finished:
            return
        for target in graph[name]:
            visit(target, (*trail, name))
        finished.add(name)

    for name in graph:
        visit(name, ())


def _within(modules: dict[str, Path], own: str, path: Path) -> set[str]:
    """The project's modules that ``path`` imports when it is itself imported."""
    found = set()
    for name in imports(path, at_start=True):
        target = name if name in modules else name.rpartition(".")[0]
        if target in modules and target != own and not own.startswith(target + "."):
            found.add(target)
    return found
