"""Files in catalogs: one suite for the ports ``Files`` and, for their objects, ``UnreferencedObjects``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio

from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.adapters.sqlite.catalog.check import check_catalog
from wonder_server.adapters.sqlite.catalog.files import SqliteFileObjects
from wonder_server.adapters.sqlite.catalog.store import SqliteCatalog
from wonder_server.core.definitions.resources import File, Project
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.blobs import UnreferencedObjects
from wonder_server.ports.catalog import Catalog, Drop, Put

A, B = Project(id="proj_1", name="a"), Project(id="proj_2", name="b")


@dataclass
class Stores:
    catalog: Catalog
    objects: UnreferencedObjects

    async def loose(self) -> list[str]:
        return [each.key for each in await self.objects.unreferenced()]


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    if request.param == "memory":
        catalog = MemoryCatalog()
        await catalog.commit([Put(A), Put(B)])
        yield Stores(catalog, catalog)
        return
    store = await SqliteCatalog.open(tmp_path / "catalog.db")
    await store.commit([Put(A), Put(B)])
    yield Stores(store, SqliteFileObjects(store.database))
    await store.close()


def file(number: int, *objects: str, project: Project = A) -> File:
    return File(
        id=f"file_{number}",
        project_id=project.id,
        name="same.png",
        media_type="image/png",
        size_bytes=number,
        sha256="ab" * 32,
        objects=objects,
        created_ms=number,
        created_by="token:ann",
    )


async def test_a_file_is_read_and_listed_newest_first(stores: Stores) -> None:
    files = [file(1, "k1"), file(2, "k1", "k2"), file(3, "k3", project=B)]
    await stores.catalog.commit([Put(each) for each in files])
    assert await stores.catalog.file("file_2") == files[1]
    assert await stores.catalog.file("file_9") is None
    assert await stores.catalog.files("", "", 9) == files[::-1]
    assert await stores.catalog.files(A.id, "", 1) == [files[1]]
    assert await stores.catalog.files(A.id, "file_2", 9) == [files[0]]
    assert await stores.catalog.files("", "", 9, frozenset({B.id})) == [files[2]]


async def test_a_file_of_a_missing_project_is_refused_with_the_whole_commit(stores: Stores) -> None:
    with pytest.raises(WonderError) as refused:
        await stores.catalog.commit([Put(file(1, "k1")), Put(replace(file(2), project_id="proj_9"))])
    assert refused.value.fault.reason is Reason.PROJECT_NOT_FOUND
    assert await stores.catalog.files("", "", 9) == []


async def test_an_object_is_unreferenced_until_a_file_has_it_and_after_the_last_one_is_gone(
    stores: Stores,
) -> None:
    await stores.objects.add_unreferenced(A.id, ["k1", "k2"])
    assert await stores.loose() == ["k1", "k2"]
    await stores.catalog.commit([Put(file(1, "k1"))])
    assert await stores.loose() == ["k2"]
    # A second upload of the content lists the object again; the first file has it.
    await stores.objects.add_unreferenced(A.id, ["k1"])
    assert await stores.loose() == ["k2"]
    await stores.catalog.commit([Put(file(2, "k1", "k2"))])
    await stores.catalog.commit([Drop(file(1, "k1"))])
    assert await stores.loose() == []
    await stores.catalog.commit([Drop(file(2, "k1", "k2"))])
    assert await stores.loose() == ["k1", "k2"]
    await stores.objects.remove_unreferenced(["k1"])
    assert await stores.loose() == ["k2"]


async def test_unreferenced_objects_name_their_project_and_come_by_key(stores: Stores) -> None:
    await stores.objects.add_unreferenced(B.id, ["k2", "k1"])
    found = await stores.objects.unreferenced("k1")
    assert [(each.key, each.owner_id) for each in found] == [("k2", B.id)]


async def test_the_deletion_of_a_project_deletes_its_files(stores: Stores) -> None:
    await stores.catalog.commit([Put(file(1, "k1")), Put(file(2, "k2", project=B))])
    await stores.catalog.commit([Drop(A)])
    assert [each.id for each in await stores.catalog.files("", "", 9)] == ["file_2"]
    assert await stores.loose() == ["k1"]


async def test_a_deleted_file_cannot_be_deleted_again(stores: Stores) -> None:
    await stores.catalog.commit([Put(file(1))])
    await stores.catalog.commit([Drop(file(1))])
    with pytest.raises(WonderError) as refused:
        await stores.catalog.commit([Drop(file(1))])
    assert refused.value.fault.reason is Reason.ETAG_MISMATCH


async def test_a_damaged_file_is_an_error_and_the_check_finds_it(tmp_path: Path) -> None:
    store = await SqliteCatalog.open(tmp_path / "catalog.db")
    await store.commit([Put(A), Put(file(1, "k1")), Put(file(2, "k2"))])

    def damage(connection: object) -> None:
        connection.execute(  # type: ignore[attr-defined]
            "UPDATE files SET body = replace(body, 'png', 'gif') WHERE id = 'file_1'"
        )
        connection.execute("DELETE FROM file_objects WHERE key = 'k2'")  # type: ignore[attr-defined]

    await store.database.write(damage)
    with pytest.raises(WonderError, match="file_1 in table files"):
        await store.file("file_1")
    await store.close()
    found = check_catalog(tmp_path / "catalog.db")
    assert [problem.split(": ")[-1] for problem in found.problems] == [
        "The record file_1 in table files of catalog.db is damaged",
        "the object k2 of file file_2 is not listed",
    ]
    assert found.objects == {"k1": "file file_1", "k2": "file file_2"}
