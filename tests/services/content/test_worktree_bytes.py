"""Size limits of worktrees: checked before a read or write, without loading everything into memory."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

from tests.services.catalog.library_kit import refusal
from tests.services.content.repositories_kit import (
    FixedProjects,
    RepositoryStack,
    UsersRepository,
    need_git,
    scope,
)
from wonder_server.core.errors import Reason

need_git()

ONE = scope("conv_1")
MIB = 1 << 20


def _inside(folder: Path, origin: UsersRepository, most: int) -> RepositoryStack:
    return RepositoryStack(folder / "data", FixedProjects(web={"code": str(origin.folder)}), most=most)


async def test_files_with_holes_count_as_long_as_they_look(tmp_path: Path) -> None:
    stack = _inside(tmp_path, UsersRepository(tmp_path / "code"), 8 * MIB)
    worktree = await stack.repos.worktrees.open(ONE)
    for name, size in (("a", 5), ("largest", 6)):
        (worktree.folder / "code" / name).touch()
        os.truncate(worktree.folder / "code" / name, size * MIB)
    stack.repos.worktrees.command_finished(worktree.key)
    refused = await refusal(stack.repos.files.tree(ONE))
    assert refused.reason is Reason.LIMIT_EXCEEDED and f"'largest' ({6 * MIB}), 'a'" in refused.message
    (worktree.folder / "code" / "largest").unlink()
    stack.repos.worktrees.command_finished(worktree.key)
    assert "a" in {file.path for file in (await stack.repos.files.tree(ONE)).files}
    await stack.close()


async def test_a_checkout_of_too_much_writes_nothing(tmp_path: Path) -> None:
    origin = UsersRepository(tmp_path / "code")
    origin.change("zeros", "0" * (9 * MIB))
    stack = _inside(tmp_path, origin, 8 * MIB)
    refused = await refusal(stack.repos.files.write(ONE, "new", b"1"))
    assert refused.reason is Reason.LIMIT_EXCEEDED and "'zeros'" in refused.message
    assert not list((tmp_path / "data" / "worktrees").rglob("zeros"))
    assert (await stack.repos.files.read(ONE, "readme")).content == b"hello\n"
    await stack.close()


async def test_a_checkout_takes_little_memory(tmp_path: Path) -> None:
    origin = UsersRepository(tmp_path / "code")
    for name, size in (("a", 70), ("b", 20), ("c", 20), ("d", 20)):
        with (origin.folder / name).open("wb") as file:
            file.write(name.encode())
            file.truncate(size * MIB)
    origin.change("last", "1")
    stack = _inside(tmp_path, origin, 1 << 30)
    await stack.repos.files.tree(ONE)
    tracemalloc.start()
    worktree = await stack.repos.worktrees.open(ONE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 * MIB
    for name, size in (("a", 70), ("d", 20)):
        content = (worktree.folder / "code" / name).read_bytes()
        assert len(content) == size * MIB and content.startswith(name.encode())
    await stack.close()
