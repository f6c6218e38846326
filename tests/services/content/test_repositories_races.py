"""Concurrent merges, deletions and writes: no acknowledged change is lost, no deleted branch returns (F3,
F6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.services.catalog.library_kit import reason
from tests.services.content.repositories_kit import (
    FixedProjects,
    RepositoryStack,
    UsersRepository,
    merge,
    need_git,
    scope,
)
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.services.content import worktree_locks

need_git()

ONE, BRANCH, KEY = scope("conv_1"), "wonder/conv-1", "proj_web-conv_1"
ONCE = IdempotencyKey("", "r1", "aa")


@pytest.fixture
def origin(tmp_path: Path) -> UsersRepository:
    return UsersRepository(tmp_path / "users" / "code")


@pytest_asyncio.fixture
async def stack(tmp_path: Path, origin: UsersRepository) -> AsyncIterator[RepositoryStack]:
    made = RepositoryStack(tmp_path / "data", FixedProjects(web={"code": str(origin.folder)}))
    yield made
    await made.close()


def before(owner: Any, name: str, act: Callable[[], Awaitable[object]]) -> None:
    """Call ``act`` before the first call of ``owner``'s method ``name``."""
    real, times = getattr(owner, name), [act]

    async def instead(*arguments: Any, **options: Any) -> Any:
        if times:
            await times.pop()()
        return await real(*arguments, **options)

    setattr(owner, name, instead)


def after(owner: Any, name: str, act: Callable[[], None]) -> None:
    """Call ``act`` after each call of ``owner``'s method ``name``."""
    real = getattr(owner, name)

    async def instead(*arguments: Any, **options: Any) -> Any:
        result = await real(*arguments, **options)
        act()
        return result

    setattr(owner, name, instead)


async def files(stack: RepositoryStack) -> list[str]:
    return [file.path for file in (await stack.repos.files.tree(ONE)).files]


async def head(stack: RepositoryStack) -> str:
    found = await stack.repositories.of("proj_web.code").commit(BRANCH)
    return found.id if found is not None else ""


# --- merges that remove -------------------------------------------------------------------------------


async def test_a_repeated_merge_does_not_remove_newer_work(
    stack: RepositoryStack, origin: UsersRepository
) -> None:
    repos = stack.repos
    await repos.files.write(ONE, "a", b"1\n")
    first = await merge(repos, ONE, remove_branch=True, idempotency_key=ONCE)
    again = await merge(repos, ONE, remove_branch=True, idempotency_key=ONCE)
    assert again.commit == first.commit and not first.is_kept and not again.is_kept
    await repos.files.write(ONE, "b", b"new\n")
    at = await head(stack)
    again = await merge(repos, ONE, remove_branch=True, idempotency_key=ONCE)
    assert again.commit == first.commit and again.is_kept
    assert await head(stack) == at and (await repos.files.read(ONE, "b")).content == b"new\n"
    assert origin.git("ls-tree", "--name-only", "main").split() == ["a", "readme", "src"]


@pytest.mark.parametrize("looked_at", [False, True])
@pytest.mark.parametrize("committed", [False, True])
async def test_a_write_during_a_merge_is_kept(
    stack: RepositoryStack, origin: UsersRepository, looked_at: bool, committed: bool
) -> None:
    repos = stack.repos

    async def work() -> None:
        await repos.files.write(ONE, "late", b"1\n")
        if committed:
            await repos.files.commit(ONE, "agt", "late")

    await repos.files.write(ONE, "a", b"1\n")
    seen = (await repos.files.diff(ONE)).head
    assert seen is not None
    before(stack.origins, "publish", work)
    merged = await merge(repos, ONE, remove_branch=True, expected_head=seen.id if looked_at else "")
    assert merged.commit is not None and merged.is_kept
    assert origin.git("ls-tree", "--name-only", "main").split() == ["a", "readme", "src"]
    assert [file.path for file in (await repos.files.diff(ONE)).diff.files] == ["late"]
    merged = await merge(repos, ONE, remove_branch=True)
    assert not merged.is_kept and not await head(stack)
    assert origin.show("late") == "1"


async def test_a_worktree_with_unreadable_files_is_kept(
    stack: RepositoryStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack.repos.files.write(ONE, "a", b"1\n")

    async def grow() -> None:
        monkeypatch.setattr("wonder_server.adapters.git.worktree.safe_files.MAX_FILES", 1)

    before(stack.origins, "publish", grow)
    assert (await merge(stack.repos, ONE, remove_branch=True)).is_kept
    assert (stack.folder / "worktrees" / KEY / "code" / "a").read_text() == "1\n"


async def test_a_running_command_keeps_its_files(stack: RepositoryStack) -> None:
    repos = stack.repos
    await repos.files.write(ONE, "a", b"1\n")
    worktree = await repos.worktrees.open(ONE)
    assert (await merge(repos, ONE, remove_branch=True)).is_kept
    (worktree.folder / "code" / "late").write_text("by the command\n")
    repos.worktrees.command_finished(worktree.key)
    assert [file.path for file in (await repos.files.diff(ONE)).diff.files] == ["late"]
    assert not (await merge(repos, ONE, remove_branch=True)).is_kept
    assert not (worktree.folder / "code").exists() and stack.released == []


async def test_a_command_that_cannot_begin_keeps_nothing(
    stack: RepositoryStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack.repos.files.write(ONE, "a", b"1\n")

    async def gone() -> None:
        raise asyncio.CancelledError

    before(stack.workspaces, "begin", gone)
    with pytest.raises(asyncio.CancelledError):
        await stack.repos.worktrees.open(ONE)
    assert not (await merge(stack.repos, ONE, remove_branch=True)).is_kept


async def test_writes_and_merges_that_remove_at_once_lose_nothing(
    stack: RepositoryStack, origin: UsersRepository
) -> None:
    names = [f"n{number:02}" for number in range(24)]
    writing = asyncio.ensure_future(_write_all(stack, names))
    while not writing.done():
        assert not (await merge(stack.repos, ONE, remove_branch=True)).conflicts
    await writing
    await merge(stack.repos, ONE, remove_branch=True)
    assert origin.git("ls-tree", "--name-only", "main").split() == [*names, "readme", "src"]
    assert not await head(stack)


async def _write_all(stack: RepositoryStack, names: list[str]) -> None:
    for name in names:
        await stack.repos.files.write(ONE, name, b"1\n")


async def test_a_write_after_the_removal_of_its_branch_creates_it_again(stack: RepositoryStack) -> None:
    """The write starts after the decision to remove the branch, and waits for the lock."""
    repos, writing = stack.repos, list[asyncio.Future[str]]()

    async def write() -> None:
        writing.append(asyncio.ensure_future(repos.files.write(ONE, "b", b"1\n")))
        await asyncio.sleep(0)

    await repos.files.write(ONE, "a", b"1\n")
    before(stack.workspaces, "retire", write)
    await merge(repos, ONE, remove_branch=True)
    await writing[0]
    assert await files(stack) == ["a", "b", "readme", "src"]
    assert [file.path for file in (await repos.files.diff(ONE)).diff.files] == ["b"]


def _set(event: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def act() -> None:
        event.set()

    return act


# --- conversations that are deleted -------------------------------------------------------------------


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("at", ["begin", "put"])
async def test_a_pending_write_creates_nothing_after_the_deletion(
    stack: RepositoryStack, begun: bool, at: str
) -> None:
    """The deletion comes just before the creation of branch and files, or between creation and write."""
    repos, deleting = stack.repos, list[asyncio.Future[None]]()
    if begun:
        await repos.files.write(ONE, "a", b"1\n")

    async def delete() -> None:
        deleting.append(asyncio.ensure_future(repos.worktrees.delete_conversation_work("conv_1")))
        await asyncio.sleep(0)

    before(stack.workspaces, at, delete)
    assert await repos.files.write(ONE, "b", b"1\n")
    await deleting[0]
    await _nothing_is_left(stack)


@pytest.mark.parametrize("begun", [False, True])
async def test_a_write_after_the_deletion_is_rejected(stack: RepositoryStack, begun: bool) -> None:
    """For example, a step that has read its conversation before the deletion."""
    if begun:
        await stack.repos.files.write(ONE, "a", b"1\n")
    before(stack.origins, "fetch", lambda: stack.repos.worktrees.delete_conversation_work("conv_1"))
    if begun:
        await stack.repos.worktrees.delete_conversation_work("conv_1")
    assert await reason(stack.repos.files.write(ONE, "b", b"1\n")) is Reason.CONVERSATION_NOT_FOUND
    assert await reason(stack.repos.worktrees.open(ONE)) is Reason.CONVERSATION_NOT_FOUND
    assert await reason(stack.repos.files.update(ONE, "agt")) is Reason.CONVERSATION_NOT_FOUND
    assert await stack.repos.files.commit(ONE, "agt", "m") is None
    await _nothing_is_left(stack)


async def test_concurrent_deletions_leave_nothing(stack: RepositoryStack) -> None:
    repos = stack.repos
    for number in range(8):
        own = scope(f"conv_{number}")
        await repos.files.write(own, "base", b"1\n")
        await asyncio.gather(
            repos.files.write(own, "a", b"1\n"),
            repos.worktrees.open(own),
            merge(repos, own, remove_branch=True),
            repos.worktrees.delete_conversation_work(f"conv_{number}"),
            return_exceptions=True,
        )
        await asyncio.gather(repos.worktrees.open(own), return_exceptions=True)
    assert await stack.workspaces.keys() == [] and repos.worktrees.conversations() == {}
    branches = stack.repositories.of("proj_web.code")
    assert [await branches.commit(f"wonder/conv-{number}") for number in range(8)] == [None] * 8


async def test_a_cancelled_deletion_is_completed(stack: RepositoryStack) -> None:
    await stack.repos.files.write(ONE, "a", b"1\n")
    released, removed = asyncio.Event(), asyncio.Event()
    after(stack.workspaces, "remove", removed.set)
    before(stack.workspaces, "remove", _set(released))
    deleting = asyncio.ensure_future(stack.repos.worktrees.delete_conversation_work("conv_1"))
    await released.wait()
    deleting.cancel()
    await asyncio.gather(deleting, return_exceptions=True)
    await removed.wait()
    await _nothing_is_left(stack)


async def test_work_of_a_deleted_project_is_not_made_again(stack: RepositoryStack) -> None:
    await stack.repos.files.write(ONE, "a", b"1\n")
    await stack.repos.worktrees.delete_project("proj_web")
    assert await reason(stack.repos.files.write(ONE, "b", b"1\n")) is Reason.PROJECT_NOT_FOUND
    assert await stack.workspaces.keys() == []


async def test_a_deletion_between_branch_and_folder_is_ended_by_the_next_start(
    stack: RepositoryStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is removed last: its name identifies the owner."""
    await stack.repos.files.write(ONE, "a", b"1\n")

    def die(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(type(stack.workspaces), "_remove_files", die)
        with pytest.raises(RuntimeError):
            await stack.repos.worktrees.delete_conversation_work("conv_1")
    after = stack.restarted()
    await after.repos.worktrees.start()
    assert after.repos.worktrees.conversations() == {KEY: "conv_1"}
    await after.repos.worktrees.delete_conversation_work("conv_1")
    await _nothing_is_left(after)
    await after.close()


def test_the_latest_deleted_owners_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktree_locks, "MAX_DELETED_OWNERS", 2)
    kept = worktree_locks.WorktreeLocks()
    for number in range(3):
        kept.mark_deleted(f"conv_{number}")
    kept.check_not_deleted("proj_a-conv_0")
    for number in (1, 2):
        with pytest.raises(WonderError, match=f"no conversation 'conv_{number}': it was deleted, with its"):
            kept.check_not_deleted(f"proj_a-conv_{number}")
    kept.mark_deleted("proj_a")
    with pytest.raises(WonderError, match="There is no project 'proj_a': it was deleted"):
        kept.check_not_deleted("proj_a-conv_9")


async def _nothing_is_left(stack: RepositoryStack) -> None:
    assert await stack.workspaces.keys() == [] and not await head(stack)
    assert stack.repos.worktrees.conversations() == {}
