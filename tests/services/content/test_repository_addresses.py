"""Repositories whose address a project changes: the server's copy follows at once (F5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.services.content.repositories_kit import FixedProjects, RepositoryStack, UsersRepository, need_git
from wonder_server.ports.workspaces import Remote

need_git()

NAME = "proj_web.code"


@pytest_asyncio.fixture
async def stack(tmp_path: Path) -> AsyncIterator[RepositoryStack]:
    made = RepositoryStack(tmp_path / "data", FixedProjects(web={}))
    yield made
    await made.close()


@pytest.fixture
def addresses(tmp_path: Path) -> list[UsersRepository]:
    """Two repositories with different files."""
    return [UsersRepository(tmp_path / "users" / name, file=name) for name in ("before", "after")]


def remote(repository: UsersRepository) -> Remote:
    return Remote(name=NAME, url=str(repository.folder), project="proj_web")


async def copied(stack: RepositoryStack) -> str:
    commit = await stack.repositories.of(NAME).commit("origin/main")
    assert commit is not None
    return commit.id


async def test_the_copy_follows_an_address_that_changed_just_now(
    stack: RepositoryStack, addresses: list[UsersRepository]
) -> None:
    for repository in (*addresses, *addresses):
        await stack.origins.fetch(remote(repository))
        assert await copied(stack) == repository.git("rev-parse", "main")


async def test_a_running_copy_of_the_former_address_does_not_answer_for_the_new_one(
    stack: RepositoryStack, addresses: list[UsersRepository]
) -> None:
    before, after = addresses
    former = asyncio.ensure_future(stack.origins.fetch(remote(before)))
    # The copy that begins last decides, and each fetch begins with a check in a thread.
    while not stack.origins._copy_tasks:  # noqa: ASYNC110 (no event tells it)
        await asyncio.sleep(0)
    await asyncio.gather(former, stack.origins.fetch(remote(after)))
    assert await copied(stack) == after.git("rev-parse", "main")
    await stack.origins.fetch(remote(after))
    assert await copied(stack) == after.git("rev-parse", "main")
