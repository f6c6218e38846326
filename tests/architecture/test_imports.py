"""Imports run downward only; see ARCHITECTURE.md. Read from the source, so nothing is imported."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.architecture.sources import SDK, SERVER, files, outline, text

# The packages that each package may import besides itself. A package here is a folder or file directly in
# wonder_server; `wonder` is the generated code.
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "std": set(),
    "ports": {"core"},
    "codec": {"core"},
    "record": {"codec", "ports", "core", "logs"},
    "settings": {"core"},
    "logs": set(),
    "data_folder": {"logs", "ports"},
    "health": {"settings"},
    "actors": {"ports", "core", "logs"},
    "services": {"ports", "core", "logs"},
    "adapters": {"record", "codec", "ports", "core", "logs"},
    "rpc": {"actors", "services", "ports", "core", "settings", "logs", "wonder"},
    "compose": {
        *("rpc", "adapters", "actors", "services", "record", "ports", "core", "std", "settings", "logs"),
    },
    "lifecycle": {"core", "rpc", "services", "settings", "logs", "data_folder"},
    "check": {"compose", "data_folder"},
    "restore": {"compose"},
    "serve": {"compose", "lifecycle", "rpc", "core", "settings", "logs", "data_folder"},
}
# Libraries that core may import in addition to the standard library.
CORE_MAY_USE = {"jsonschema_rs", "re2", "wonder_server", "msgspec"}


def imports(path: Path, *, at_start: bool = False) -> list[str]:
    """Return the full names of imported modules.

    ``at_start`` omits imports inside functions and imports for types only.
    """
    found = outline(path).imports
    assert not [each for each in found if each.name.startswith(".")], f"{path}: imports are absolute here"
    return [each.name for each in found if each.at_start or not at_start]


def package(module: str) -> str | None:
    """Return the package of a dotted name; None for a name outside of the project."""
    parts = module.split(".")
    if parts[0] == "wonder":
        return "wonder"
    if parts[0] != "wonder_server":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in ALLOWED else ""


def module_of(path: Path) -> str:
    parts = list(path.relative_to(SERVER.parent).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_a_module_imports_only_what_lies_below_it() -> None:
    for path in files(SERVER):
        own = package(module_of(path))
        if own == "" and path.parent == SERVER and path.name == "__init__.py":
            assert not [name for name in imports(path) if package(name)]
            continue
        assert own in ALLOWED, f"{path.name} is not in the table of this test. Add it."
        found = {package(name) for name in imports(path)} - {None, "", own}
        assert found <= ALLOWED[own], f"{path} may not import {sorted(map(str, found - ALLOWED[own]))}"


def test_core_uses_the_standard_library_and_few_bounded_ones() -> None:
    for path in files(SERVER / "core"):
        for name in imports(path):
            top = name.split(".")[0]
            assert top in CORE_MAY_USE or top in sys.stdlib_module_names, f"{path}: {name}"
            assert top not in ("asyncio", "socket", "sqlite3", "subprocess", "threading", "random"), name


def test_the_sdk_never_imports_the_server() -> None:
    for path in files(SDK):
        if "_proto" in path.parts:  # generated, with relative imports
            continue
        assert not [name for name in imports(path) if name.split(".")[0] == "wonder_server"], path


def test_only_compose_names_adapters() -> None:
    for path in files(SERVER):
        if package(module_of(path)) not in ("compose", "adapters"):
            assert "adapters" not in {package(name) for name in imports(path)}, path


def test_only_settings_reads_the_environment() -> None:
    for path in files(SERVER):
        read = text(path)
        # `dial.py` is a separate program, which receives its input from git and ssh in the environment.
        if path.name != "dial.py" and package(module_of(path)) != "settings":
            assert "os.environ" not in read and "getenv" not in read, (
                f"{path} reads the environment. Use the settings."
            )


def test_there_are_no_import_cycles() -> None:
    modules = {module_of(path): path for path in files(SERVER)}
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
    """Return the project's modules that ``path`` imports when it is itself imported."""
    found = set()
    for name in imports(path, at_start=True):
        target = name if name in modules else name.rpartition(".")[0]
        if target in modules and target != own and not own.startswith(target + "."):
            found.add(target)
    return found
