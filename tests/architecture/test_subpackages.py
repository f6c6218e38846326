"""Imports between the subpackages of one package run downward only; see ARCHITECTURE.md."""

from __future__ import annotations

import pytest

from tests.architecture.test_imports import SERVER, imports, module_of, sources

# For each divided package: its subpackages, bottom first. A subpackage imports only what stands in a row above its own,
# in other words what lies below it. Subpackages of one row do not import each other. "." are modules directly in the package.
ROWS: dict[str, list[set[str]]] = {
    "core": [
        {"."},
        {"schema"},
        {"expressions", "memory", "request_formats"},
        {"definitions"},
        {"actor"},
        {"task"},
        {"coordinator", "conversation"},
    ],
    "core.conversation": [{"model"}, {"context"}, {"planning"}, {"output"}, {"."}],
    "actors": [
        {"runtime"},
        {"streaming"},
        {"usage", "archive"},
        {"dispatch"},
        {"conversation", "runs"},
    ],
    "services": [{"."}, {"workers", "catalog", "memory"}, {"content"}, {"actions"}, {"tasks"}],
    "services.actions": [{"contract"}, {"basic", "external", "artifact", "memory"}, {"repo"}, {"."}],
    "rpc": [{"shared"}, {"server"}, {"conversation", "coordinator", "executor", "library", "memory"}],
    "adapters.sqlite": [{"."}, {"shard", "memory", "catalog"}],
    "adapters.models": [{"common"}, {"formats"}, {"native", "offline", "litellm"}, {"."}],
    "adapters.git": [{"storage"}, {"worktree"}, {"hosts"}, {"."}],
}


def unit(package: str, module: str) -> str | None:
    """Return the subpackage of `package` that holds the dotted name, "." for a module directly in it, or None."""
    prefix = f"wonder_server.{package}."
    if not module.startswith(prefix):
        return None
    first = module.removeprefix(prefix).split(".")[0]
    folder = SERVER / package.replace(".", "/") / first
    return first if folder.is_dir() else "."


@pytest.mark.parametrize("package", ROWS)
def test_subpackages_import_only_what_lies_below(package: str) -> None:
    rows = ROWS[package]
    level = {name: index for index, row in enumerate(rows) for name in row}
    wrong = []
    for path in sources(SERVER / package.replace(".", "/")):
        own = unit(package, module_of(path))
        if own is None:  # The package's own face.
            continue
        for name in imports(path):
            target = unit(package, name)
            if target in (None, own):
                continue
            if level.get(target, 99) >= level.get(own, -1):
                wrong.append(f"{module_of(path)} ({own}) imports {name} ({target})")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", ROWS)
def test_each_subpackage_has_a_place_in_the_table(package: str) -> None:
    folder = SERVER / package.replace(".", "/")
    found = {path.name for path in folder.iterdir() if (path / "__init__.py").exists()}
    assert found == {name for row in ROWS[package] for name in row} - {"."}


FLAT = {"core/coordinator", "core/definitions", "ports"}
MAX_MODULES = 15


def test_folders_stay_small_enough_to_read() -> None:
    crowded = {}
    for folder in {path.parent for path in sources(SERVER)}:
        count = len([path for path in folder.glob("*.py") if path.name != "__init__.py"])
        if count > MAX_MODULES and str(folder.relative_to(SERVER)) not in FLAT:
            crowded[str(folder.relative_to(SERVER))] = count
    assert not crowded
