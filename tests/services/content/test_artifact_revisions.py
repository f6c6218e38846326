"""The revision of each document in a list: the newest commit that made what the document is (F1)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.services.content.repositories_kit import need_git
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import Git, ThreadPool
from wonder_server.core.errors import WonderError
from wonder_server.ports.repositories import Change
from wonder_server.services.content.artifacts import Artifacts
from wonder_server.services.paging import PageRequest

need_git()

PROJECT = "proj_1"


@pytest_asyncio.fixture
async def artifacts(tmp_path: Path) -> AsyncIterator[Artifacts]:
    async def project_id(key: str) -> str:
        return key

    pool = ThreadPool(2, "git")
    yield Artifacts(GitRepositories(Git(os.environ), pool, tmp_path), project_id)
    await pool.close()


async def write(artifacts: Artifacts, path: str, text: str, branch: str = "main") -> str:
    made = await artifacts.write(PROJECT, path, text.encode(), branch=branch)
    return made.revision.id


async def merge(artifacts: Artifacts, **resolutions: str) -> str:
    changes = [Change(path=path, content=text.encode()) for path, text in resolutions.items()]
    merged = await artifacts.merge(PROJECT, "draft", resolutions=changes)
    assert merged.commit is not None, merged.conflicts
    return merged.commit.id


async def revisions(artifacts: Artifacts) -> dict[str, str]:
    """Return the revision of each document, which reading it must give too."""
    page = await artifacts.list(PROJECT, PageRequest())
    listed = {each.path: each.revision.id for each in page.items}
    assert listed == {path: (await artifacts.read(PROJECT, path)).revision.id for path in listed}
    return listed


@pytest.mark.parametrize("last", ["main", "draft"])
async def test_a_merge_that_takes_documents_from_both_sides_names_no_discarded_revision(
    artifacts: Artifacts, last: str
) -> None:
    for path in ("a", "b", "c", "d"):
        await write(artifacts, path, "begun\n")
    kept = await write(artifacts, "d", "on main before\n")
    await write(artifacts, "a", "draft\n", "draft")
    taken: dict[str, str] = {}
    for branch in ("draft", "main") if last == "main" else ("main", "draft"):
        for path in ("a", "b", "c"):
            taken[f"{branch}/{path}"] = await write(artifacts, path, f"{branch}\n", branch)
    merged = await merge(artifacts, a="main\n", b="draft\n", c="both\n")
    assert await revisions(artifacts) == {
        "a": taken["main/a"],
        "b": taken["draft/b"],
        "c": merged,
        "d": kept,
    }


async def test_a_merge_that_has_nothing_to_do_rejects_resolutions(artifacts: Artifacts) -> None:
    await write(artifacts, "a", "begun\n")
    await write(artifacts, "a", "draft\n", "draft")
    await merge(artifacts)
    await merge(artifacts)
    with pytest.raises(WonderError, match="'nowhere' is not in conflict"):
        await merge(artifacts, nowhere="text\n")


async def test_merges_below_a_merge_are_followed_too(artifacts: Artifacts) -> None:
    await write(artifacts, "a", "begun\n")
    await write(artifacts, "b", "begun\n")
    first: dict[str, str] = {}
    for number in range(3):
        for branch in ("draft", "main"):
            for path in ("a", "b"):
                text = f"{branch} {number}\n"
                first[f"{branch}/{path}/{number}"] = await write(artifacts, path, text, branch)
        await merge(artifacts, a=f"main {number}\n", b=f"draft {number}\n")
    assert await revisions(artifacts) == {"a": first["main/a/2"], "b": first["draft/b/2"]}
    newest = await write(artifacts, "c", "new\n")
    assert await revisions(artifacts) == {
        "a": first["main/a/2"],
        "b": first["draft/b/2"],
        "c": newest,
    }
