"""Notes about deleted projects: one suite for the port ``RemovedProjects``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.adapters.sqlite.catalog.removed_projects import SqliteRemovedProjects
from wonder_server.adapters.sqlite.catalog.store import SqliteCatalog
from wonder_server.core.definitions.resources import Project
from wonder_server.core.errors import WonderError
from wonder_server.ports.catalog import Catalog, Drop, Put, RemovedProjects

A, B = Project(id="proj_1", name="a"), Project(id="proj_2", name="b")
Stores = tuple[Catalog, RemovedProjects]


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    if request.param == "memory":
        catalog = MemoryCatalog()
        yield catalog, catalog.removed_projects()
        return
    store = await SqliteCatalog.open(tmp_path / "catalog.db")
    yield store, SqliteRemovedProjects(store.database)
    await store.close()


async def test_the_commit_that_deletes_a_project_notes_it(stores: Stores) -> None:
    catalog, removed = stores
    await catalog.commit([Put(A), Put(B)])
    assert await removed.removed_projects() == []
    await catalog.commit([Drop(A)])
    assert await removed.removed_projects() == [A.id]
    await catalog.commit([Drop(B)])
    assert await removed.removed_projects() == [A.id, B.id]
    await removed.forget_removed(A.id)
    await removed.forget_removed(A.id)
    assert await removed.removed_projects() == [B.id]


async def test_a_deletion_that_fails_notes_nothing(stores: Stores) -> None:
    catalog, removed = stores
    await catalog.commit([Put(A), Put(B)])
    with pytest.raises(WonderError):
        await catalog.commit([Drop(A), Drop(replace(B, version=7))])
    assert await removed.removed_projects() == [] and await catalog.project(A.id) is not None
