"""Export of whole records from a shard, as stored rows, and their restoration."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Final

from wonder_server.adapters.sqlite.shard import archive_objects
from wonder_server.adapters.sqlite.shard.row_seals import WITH_ROW_ID, check, packed, unpacked, with_seal
from wonder_server.adapters.sqlite.shard.schema import MIGRATIONS
from wonder_server.adapters.sqlite.shard.shard import SqliteShard
from wonder_server.adapters.sqlite.shard.shards import SqliteShards
from wonder_server.codec.seals import Seals
from wonder_server.codec.tables import ROW_TABLES
from wonder_server.ports.archives import ArchivedRow, RegisteredObject

PAGE: Final = 200
"""Rows per read, so that writes of other actors do not wait long."""

_KEYS: Final = {
    "actors": ("id", "id"),
    **dict.fromkeys(ROW_TABLES, ("actor", "id")),
    "entries": ("actor", "sequence"),
    "events": ("actor", "sequence"),
    "requests_answered": ("actor", ""),
    "parts": ("root", "hash"),
}
"""By table: the column that names the owner of a row, and the column for paging; empty reads all rows at
once."""


class SqliteArchives:
    """Implements the port ``Archives``."""

    version: Final = len(MIGRATIONS)

    def __init__(self, shards: SqliteShards) -> None:
        self._shards = shards

    async def export(self, actor_id: str, children: Sequence[str]) -> AsyncIterator[list[ArchivedRow]]:
        shard = self._shards.of(actor_id)
        for table in _KEYS:
            # All actors with the same root share its parts.
            for owner in (actor_id,) if table == "parts" else (actor_id, *children):
                async for page in _pages(shard, table, owner):
                    yield page

    async def restore(self, actor_id: str, lines: Iterable[ArchivedRow], epoch: int) -> None:
        shard = self._shards.of(actor_id)

        def write(connection: sqlite3.Connection) -> None:
            shard.check_epoch(actor_id, epoch)
            known = {table: _columns(connection, table) for table in _KEYS}
            for table, row in lines:
                row = with_seal(table, packed(table, row))
                columns = [column for column in row if column in known[table]]
                # The archived answer of a request is the first one. It replaces the copy that belonged to the
                # conversation meanwhile, and a second answer, which earlier versions stored after archiving.
                conflict = "REPLACE" if table == "requests_answered" else "IGNORE"
                connection.execute(
                    f"INSERT OR {conflict} INTO {table} ({', '.join(columns)})"
                    f" VALUES ({', '.join('?' * len(columns))})",
                    [row[column] for column in columns],
                )

        await shard.database.write(write)

    async def register(self, registered: RegisteredObject) -> None:
        shard = self._shards.of(registered.conversation_id)

        def write(connection: sqlite3.Connection) -> None:
            shard.check_epoch(registered.conversation_id, registered.epoch)
            archive_objects.insert(connection, registered)

        # Archiving frees space on a full disk.
        await shard.database.write(write, frees_space=True)

    async def registered(self, conversation_id: str = "") -> list[RegisteredObject]:
        shards = [self._shards.of(conversation_id)] if conversation_id else self._shards.files
        found = await asyncio.gather(*(_registered(shard, conversation_id) for shard in shards))
        return [each for registrations in found for each in registrations]

    async def unregister(self, registered: RegisteredObject) -> None:
        shard = self._shards.of(registered.conversation_id)
        await shard.database.write(partial(archive_objects.delete, registered=registered), frees_space=True)


async def _registered(shard: SqliteShard, conversation_id: str) -> list[RegisteredObject]:
    seals = Seals(shard.name, shard.unsealed)
    return await shard.database.read(
        lambda connection: archive_objects.intact(connection, seals, conversation_id)
    )


async def _pages(shard: SqliteShard, table: str, owner: str) -> AsyncIterator[list[ArchivedRow]]:
    after: str | int = ""
    seals = Seals(shard.name, shard.unsealed)
    while True:
        page = await shard.database.read(partial(_page, seals, table=table, owner=owner, after=after))
        if page:
            yield page
        order = _KEYS[table][1]
        if len(page) < PAGE or not order:
            return
        after = page[-1][1][order]


def _page(
    seals: Seals, connection: sqlite3.Connection, *, table: str, owner: str, after: str | int
) -> list[ArchivedRow]:
    """Return one page of rows. STORAGE_UNAVAILABLE if one is damaged: an archive contains only intact
    rows."""
    owner_column, order = _KEYS[table]
    rowid = "rowid" if table in WITH_ROW_ID else "0"
    values: list[str | int] = [owner]
    sql = f"SELECT {rowid}, * FROM {table} WHERE {owner_column} = ?"
    if order and after != "":
        sql, values = f"{sql} AND {order} > ?", [owner, after]
    if order:
        sql += f" ORDER BY {order} LIMIT {PAGE}"
    found = connection.execute(sql, values)
    names = [column[0] for column in found.description[1:]]
    lines: list[ArchivedRow] = []
    for place, *columns in found.fetchall():
        row = dict(zip(names, columns, strict=True))
        check(seals, table, row, place)
        lines.append((table, unpacked(table, row)))
    return lines


def _columns(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    return frozenset(row[1] for row in connection.execute(f"PRAGMA table_info({table})").fetchall())
