"""Kills during a write or merge: repositories stay valid and acknowledged changes remain (F1, F6)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest

from tests.services.content.repositories_kit import (
    FixedProjects,
    RepositoryStack,
    UsersRepository,
    merge,
    need_git,
    scope,
)
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.bare_repository import BareRepository
from wonder_server.adapters.git.storage.command import Git, ThreadPool
from wonder_server.adapters.git.worktree import checkout, safe_files
from wonder_server.core.idempotency import IdempotencyKey

need_git()

KILLS = 12
ONE, TWO = scope("conv_1"), scope("conv_2")

WRITER = """
import asyncio, os, sys
from pathlib import Path
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import Git, ThreadPool
from wonder_server.ports.repositories import Change, CommitMetadata

async def main(folder, begin):
    repository = GitRepositories(Git(os.environ), ThreadPool(4, "git"), Path(folder)).of("one")
    signed = CommitMetadata(author="a", message="m")
    async def write(worker):
        for number in range(begin, begin + 1000):
            change = Change(path=f"{worker}/{number}", content=f"{number}".encode())
            branch = f"work-{worker}"
            await repository.write(branch, [change], signed, begin="main")
            merged = await repository.merge("main", branch, signed)
            assert not merged.conflicts
            print(merged.commit.id, f"{worker}/{number}", flush=True)
    await asyncio.gather(*(write(worker) for worker in range(3)))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def test_killed_while_writing_and_merging(tmp_path: Path) -> None:
    git, pool, chance = Git(os.environ), ThreadPool(2, "git"), random.Random(5)
    answered: dict[str, str] = {}
    for kill in range(KILLS):
        writer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, str(tmp_path), str(kill * 1_000), stdout=asyncio.subprocess.PIPE
        )
        assert writer.stdout is not None
        for _ in range(chance.randrange(1, 6)):
            commit, path = (await writer.stdout.readline()).decode().split()
            answered[path] = commit
        await asyncio.sleep(chance.random() * 0.05)
        writer.send_signal(signal.SIGKILL)
        # The kill may cut the last line off.
        for line in (await writer.stdout.read()).decode().rpartition("\n")[0].splitlines():
            commit, path = line.split()
            answered[path] = commit
        await writer.wait()
        await _settled(tmp_path / "one.git")
        repository = GitRepositories(git, pool, tmp_path).of("one")
        assert await repository.commit("main") is not None  # Which unlocks it, too.
        await pool.run(lambda: git.run(tmp_path / "one.git", "fsck", "--strict", "--no-dangling"))
        there = {file.path for file in await repository.files("main")}
        assert set(answered) <= there
    history = {commit.id for commit in await repository.history("main", [], 0, 10_000)}
    assert set(answered.values()) <= history
    await pool.close()


async def _settled(folder: Path) -> None:
    """Wait for the end of the last git process of the killed server."""
    needle = f"--git-dir={folder}".encode()

    def is_running() -> bool:
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if needle in process.read_bytes():
                    return True
            except OSError:
                continue
        return False

    def wait() -> None:
        while is_running():
            time.sleep(0.01)

    await asyncio.to_thread(wait)


def die(*_: object) -> NoReturn:
    raise KILLED


KILLED = RuntimeError("killed here")


@pytest.fixture
def origin(tmp_path: Path) -> UsersRepository:
    return UsersRepository(tmp_path / "users")


@pytest.fixture
def stack(tmp_path: Path, origin: UsersRepository) -> RepositoryStack:
    return RepositoryStack(tmp_path / "data", FixedProjects(web={"code": str(origin.folder)}))


async def test_killed_between_a_branch_and_its_files(
    stack: RepositoryStack, origin: UsersRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack.repos.files.write(ONE, "mine", b"1\n")
    origin.change("src", "new\n")
    origin.change("added", "new\n")
    with monkeypatch.context() as patch:
        patch.setattr(checkout, "apply_tree_diff", die)
        with pytest.raises(RuntimeError):
            await stack.repos.files.update(ONE, "agt")
    after = stack.restarted()
    changed = await after.repos.files.diff(ONE)
    assert [file.path for file in changed.diff.files] == ["mine"], "the files followed, nothing is undone"
    assert (await after.repos.files.read(ONE, "src")).content == b"new\n"
    await after.close()
    await stack.close()


async def test_killed_before_the_branch_moves(
    stack: RepositoryStack, origin: UsersRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack.repos.files.write(ONE, "mine", b"1\n")
    await stack.repos.files.commit(ONE, "agt", "mine")
    origin.change("src", "new\n")
    with monkeypatch.context() as patch:
        patch.setattr(BareRepository, "set_branch", die)
        with pytest.raises(RuntimeError):
            await stack.repos.files.update(ONE, "agt")
    after = stack.restarted()
    assert (await after.repos.files.read(ONE, "src")).content == b"one\ntwo\nthree\n"
    await after.repos.files.update(ONE, "agt")
    assert (await after.repos.files.read(ONE, "src")).content == b"new\n"
    assert (await after.repos.files.read(ONE, "mine")).content == b"1\n"
    await after.close()
    await stack.close()


async def test_killed_between_the_merge_and_its_answer(
    stack: RepositoryStack, origin: UsersRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack.repos.files.write(ONE, "src", b"1\n")
    once = IdempotencyKey("", "r1", "aa")
    move = BareRepository.set_branch

    def moved(self: BareRepository, branch: str, new: str, old: str) -> None:
        if branch.startswith("origin/"):
            raise KILLED
        move(self, branch, new, old)

    with monkeypatch.context() as patch:
        patch.setattr(BareRepository, "set_branch", moved)
        with pytest.raises(RuntimeError):
            await merge(stack.repos, ONE, idempotency_key=once)
    pushed = origin.git("rev-parse", "main")
    after = stack.restarted()
    again = await merge(after.repos, ONE, idempotency_key=once)
    assert again.commit is not None and again.commit.id == pushed == origin.git("rev-parse", "main")
    await after.close()
    await stack.close()


async def test_killed_while_checking_out(stack: RepositoryStack, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(safe_files, "write", die)
        with pytest.raises(RuntimeError):
            await stack.repos.files.write(ONE, "a", b"")
    after = stack.restarted()
    await after.workspaces.remove_leftovers()
    assert [file.path for file in (await after.repos.files.tree(ONE)).files] == ["readme", "src"]
    await after.repos.files.write(ONE, "a", b"")
    assert [file.path for file in (await after.repos.files.diff(ONE)).diff.files] == ["a"]
    await after.close()
    await stack.close()


async def test_a_cancelled_write_is_completed(stack: RepositoryStack) -> None:
    writing = [
        asyncio.ensure_future(stack.repos.files.write(ONE, f"f{number}", b"x" * 1_000)) for number in range(8)
    ]
    await asyncio.sleep(0)
    for each in writing[::2]:
        each.cancel()
    await asyncio.gather(*writing, return_exceptions=True)
    await stack.repos.files.commit(ONE, "agt", "m")
    found = {file.path: file.size for file in (await stack.repos.files.tree(ONE)).files}
    assert {f"f{number}" for number in (1, 3, 5, 7)} <= set(found)
    assert all(size == 1_000 for path, size in found.items() if path.startswith("f"))
    await stack.close()
