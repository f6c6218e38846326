"""Descriptions of files. Their contents are in `services/content/files.py`."""

from __future__ import annotations

from dataclasses import replace

from wonder_server.core.definitions.resources import File
from wonder_server.core.errors import Reason, not_found
from wonder_server.core.idempotency import SERVER_ORIGIN, Origin
from wonder_server.core.ids import random_id
from wonder_server.ports.catalog import Drop, Put
from wonder_server.ports.scoped import ScopedCatalog
from wonder_server.services.catalog.transactions import (
    CatalogTransactions,
    EmptyResult,
    PlannedChange,
    Stamp,
)
from wonder_server.services.paging import Page, PageRequest, page


class Files:
    """The use cases of descriptions of files."""

    def __init__(self, catalog: ScopedCatalog, transactions: CatalogTransactions) -> None:
        self._catalog = catalog
        self._transactions = transactions

    async def add(self, file: File, *, origin: Origin = SERVER_ORIGIN) -> File:
        """Store a description, whose objects are written, with a new id. Raises PROJECT_NOT_FOUND."""

        async def plan(stamp: Stamp) -> PlannedChange[File]:
            file_id = random_id("file", stamp.at_ms)
            made = replace(file, id=file_id, created_ms=stamp.at_ms, created_by=stamp.by)
            return PlannedChange(made, [Put(made)])

        return await self._transactions.execute(File, plan, origin=origin)

    async def knows(self, origin: Origin) -> bool:
        """Return True if a request with this id was executed, whatever its content."""
        return await self._transactions.knows(origin)

    async def added_before(self, origin: Origin) -> File | None:
        """Return the file that an earlier request with this origin added, also if it was deleted since, or
        None. Raises REQUEST_ID_REUSED."""
        return await self._transactions.answered(File, origin)

    async def file(self, file_id: str, *, field: str = "file_id") -> File:
        """Return a description. Raises FILE_NOT_FOUND."""
        found = await self.find(file_id)
        if found is None:
            raise not_found(Reason.FILE_NOT_FOUND, file_id, field=field)
        return found

    async def find(self, file_id: str) -> File | None:
        """Return a description, or None."""
        return await self._catalog.file(file_id) if file_id else None

    async def files(self, request: PageRequest, *, project_id: str = "") -> Page[File]:
        """Return the files of a project (its id; empty: of all projects), newest first."""
        scope = ["files", project_id]
        before, limit = request.cursor(scope, ""), request.limit()
        found = await self._catalog.files(project_id, before, limit + 1)
        return page(found, limit, scope, lambda file: file.id)

    async def delete(self, file_id: str, *, origin: Origin = SERVER_ORIGIN) -> None:
        """Delete a description. Garbage collection removes its objects. Raises FILE_NOT_FOUND."""

        async def plan(stamp: Stamp) -> PlannedChange[EmptyResult]:
            return PlannedChange(EmptyResult(), [Drop(await self.file(file_id))])

        await self._transactions.execute(EmptyResult, plan, origin=origin)
