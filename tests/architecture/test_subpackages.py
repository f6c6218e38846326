"""Imports between the subpackages of one package run downward only; see ARCHITECTURE.md."""

from __future__ import annotations

import pytest

from tests.architecture.sources import SDK, SERVER, files
from tests.architecture.test_imports import imports, module_of

# The subpackages of each divided package, bottom first. A subpackage imports only from earlier rows;
# subpackages of one row do not import each other. "." stands for the modules directly in the package.
ROWS: dict[str, list[set[str]]] = {
    "core": [
        {"access"},
        {"."},
        {"schema", "content", "tenancy"},
        {"history", "memory", "request_formats"},
        {"expressions"},
        {"definitions"},
        {"actor"},
        {"task"},
        {"coordinator", "conversation"},
    ],
    "core.coordinator": [{"model"}, {"planning"}, {"output"}, {"."}],
    "core.conversation": [{"model"}, {"context"}, {"planning"}, {"output"}, {"."}],
    "actors": [
        {"runtime"},
        {"streaming"},
        {"."},
        {"usage", "archive"},
        {"dispatch"},
        {"conversation", "runs"},
    ],
    "services": [
        {"."},
        {"workers", "catalog", "memory", "history", "tenancy"},
        {"content"},
        {"actions"},
        {"tasks"},
    ],
    "services.actions": [
        {"contract"},
        {"basic", "external", "artifact", "history", "memory"},
        {"repo"},
        {"."},
    ],
    "rpc": [
        {"shared"},
        {"server"},
        {"backup", "conversation", "coordinator", "executor", "file", "identity", "library", "memory"},
    ],
    "adapters.sqlite": [{"."}, {"memory", "catalog"}, {"shard"}],
    "adapters.models": [{"common"}, {"formats"}, {"native", "offline", "litellm"}, {"."}],
    "adapters.git": [{"storage"}, {"worktree"}, {"hosts"}, {"."}],
}


def unit(package: str, module: str) -> str | None:
    """Return the subpackage of `package` that holds `module`: "." if none does, None outside `package`."""
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
    for path in files(SERVER / package.replace(".", "/")):
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


SDK_ROWS: list[set[str]] = [
    {"_proto"},
    {"errors", "environment", "json_types"},
    {"transport"},
    {"values"},
    {"conversation", "definitions", "drawing"},
    {"methods"},
    {"client"},
    {"worker", "sync"},
    {"cli"},
    {"__main__"},
]
"""Packages and top-level modules of the SDK, bottom first, with the same rule."""


def test_the_sdk_imports_only_what_lies_below() -> None:
    level = {name: index for index, row in enumerate(SDK_ROWS) for name in row}
    wrong = []
    for path in files(SDK):
        own = path.relative_to(SDK).with_suffix("").parts[0]
        if own in ("__init__", "_proto"):
            continue
        for name in imports(path):
            target = name.split(".")[1] if name.startswith("wonder_sdk.") else ""
            if target in level and target != own and level[target] >= level[own]:
                wrong.append(f"{path.relative_to(SDK)} imports {name}")
        assert own in level, own
    assert not wrong, "\n".join(wrong)


FLAT = {"core/definitions", "ports"}
MAX_MODULES = 16


def test_folders_stay_small_enough_to_read() -> None:
    crowded = {}
    for folder in {path.parent for path in (*files(SERVER), *files(SDK))}:
        count = len([path for path in folder.glob("*.py") if path.name != "__init__.py"])
        if count > MAX_MODULES and not str(folder).endswith(tuple(FLAT)):
            crowded[str(folder)] = count
    assert not crowded
