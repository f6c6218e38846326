"""Removal of the documents and repositories of deleted projects: errors, repetitions, and what stays."""

from __future__ import annotations

import pytest

from wonder_server.adapters.in_memory.catalog import MemoryCatalog, MemoryRemovedProjects
from wonder_server.core.definitions.resources import Project
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.catalog import Drop, Put
from wonder_server.services.content.project_removals import ProjectRemovals

A, B = Project(id="proj_1", name="a"), Project(id="proj_2", name="b")


class Content:
    """Content of projects whose removal fails as often as a test says."""

    def __init__(self) -> None:
        self.left = {A.id, B.id}
        self.failures = list[Exception]()

    async def delete_project(self, project_id: str) -> None:
        if self.failures:
            raise self.failures.pop()
        self.left.discard(project_id)


async def catalog_after(*deleted: Project) -> MemoryCatalog:
    catalog = MemoryCatalog()
    await catalog.commit([Put(A), Put(B)])
    await catalog.commit([Drop(each) for each in deleted])
    return catalog


async def test_what_a_deleted_project_left_is_removed_everywhere() -> None:
    catalog, documents, repositories = await catalog_after(A), Content(), Content()
    removed = catalog.removed_projects()
    await ProjectRemovals(removed, catalog, (documents, repositories)).finish()
    assert documents.left == repositories.left == {B.id}
    assert await removed.removed_projects() == []


@pytest.mark.parametrize("failure", [error(Reason.STORAGE_UNAVAILABLE, "Full."), OSError("busy")])
async def test_an_error_is_tried_again_by_the_next_removal(failure: WonderError | OSError) -> None:
    catalog, documents, repositories = await catalog_after(A, B), Content(), Content()
    removed = catalog.removed_projects()
    removals = ProjectRemovals(removed, catalog, (documents, repositories))
    repositories.failures.append(failure)
    await removals.finish()
    assert documents.left == set() and repositories.left == {A.id}
    assert await removed.removed_projects() == [A.id]
    await removals.finish()
    assert repositories.left == set() and await removed.removed_projects() == []


async def test_a_project_that_the_catalog_has_keeps_its_content() -> None:
    """A note may be wrong, as after a restore."""
    catalog, documents = await catalog_after(), Content()
    removed = MemoryRemovedProjects({A.id})
    await ProjectRemovals(removed, catalog, (documents,)).finish()
    assert documents.left == {A.id, B.id} and await removed.removed_projects() == []
