"""Audit entries of a catalog's commits: stored with the changes, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.adapters.sqlite.catalog.check import check_catalog
from wonder_server.adapters.sqlite.catalog.store import SqliteCatalog
from wonder_server.adapters.sqlite.catalog.tenancy import SqliteTenancy
from wonder_server.core.definitions.resources import Project
from wonder_server.core.errors import WonderError
from wonder_server.core.tenancy.audit import AuditEntry, AuditQuery
from wonder_server.ports.catalog import Catalog, Drop, Put

A = Project(id="proj_1", name="a")
ENTRY = AuditEntry(id="aud_1", at_ms=5, tenant_id="", principal="user:ann", method="CreateProject")
Stores = tuple[Catalog, Callable[[], Awaitable[list[AuditEntry]]]]


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    if request.param == "memory":
        catalog = MemoryCatalog()

        async def kept() -> list[AuditEntry]:
            return catalog.audit

        yield catalog, kept
        return
    store = await SqliteCatalog.open(tmp_path / "catalog.db")
    tenancy = SqliteTenancy(store)
    yield store, lambda: tenancy.entries(AuditQuery(limit=10))
    await store.close()
    assert not check_catalog(tmp_path / "catalog.db").problems


async def test_an_entry_is_stored_with_its_change(stores: Stores) -> None:
    catalog, entries = stores
    await catalog.commit([Put(A)], None, [ENTRY])
    assert await entries() == [ENTRY]


async def test_a_commit_that_fails_leaves_no_entry(stores: Stores) -> None:
    catalog, entries = stores
    with pytest.raises(WonderError):
        await catalog.commit([Put(A), Drop(replace(A, version=7))], None, [ENTRY])
    assert await entries() == [] and await catalog.project(A.id) is None
