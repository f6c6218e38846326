"""Whole records out of a shard, row by row as they lie there, and back."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Any, Final

from wonder_server.adapters.sqlite.seals import Seals
from wonder_server.adapters.sqlite.shard.row_seals import WITH_ROW_ID, check, with_seal
from wonder_server.adapters.sqlite.shard.schema import MIGRATIONS, ROW_TABLES
from wonder_server.adapters.sqlite.shard.shard import SqliteShard
from wonder_server.adapters.sqlite.shard.shards import SqliteShards
from wonder_server.ports.archives import ArchivedRow

PAGE: Final = 200
"""Rows read at once, so that others' writes need not wait long."""

_KEYS: Final = {
    **dict.fromkeys(ROW_TABLES, ("actor", "id")),
    "entries": ("actor", "sequence"),
    "events": ("actor", "sequence"),
    "requests_answered": ("actor", ""),
    "parts": ("root", "hash"),
    "actors": ("id", "id"),
}
"""By table: the column that says whose a row is, and the one by which its rows are read page by page; empty:
all at once."""


class SqliteArchives:
    """Implements the port ``Archives``."""

    version: Final = len(MIGRATIONS)

    def __init__(self, shards: SqliteShards) -> None:
        self._shards = shards

    async def export(self, actor_id: str, children: Sequence[str]) -> AsyncIterator[list[ArchivedRow]]:
        shard = self._shards.of(actor_id)
        for table in _KEYS:
            # Parts are shared by all that have the same root.
            for owner in (actor_id,) if table == "parts" else (actor_id, *children):
                async for page in _pages(shard, table, owner):
                    yield page

    async def restore(self, actor_id: str, lines: Iterable[ArchivedRow]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            known = {table: _columns(connection, table) for table in _KEYS}
            for table, row in lines:
                row = with_seal(table, row)
                columns = [column for column in row if column in known[table]]
                connection.execute(
                    f"INSERT OR IGNORE INTO {table} ({', '.join(columns)})"
                    f" VALUES ({', '.join('?' * len(columns))})",
                    [row[column] for column in columns],
                )

        await self._shards.of(actor_id).database.write(write)


async def _pages(shard: SqliteShard, table: str, owner: str) -> AsyncIterator[list[ArchivedRow]]:
    after: Any = ""
    while True:
        page = await shard.database.read(partial(_page, shard.seals, table=table, owner=owner, after=after))
        if page:
            yield page
        order = _KEYS[table][1]
        if len(page) < PAGE or not order:
            return
        after = page[-1][1][order]


def _page(
    seals: Seals, connection: sqlite3.Connection, *, table: str, owner: str, after: Any
) -> list[ArchivedRow]:
    """Some rows, none of them damaged: what lies in the archive must be whole. STORAGE_UNAVAILABLE."""
    whose, order = _KEYS[table]
    place = "rowid" if table in WITH_ROW_ID else "0"
    sql, values = f"SELECT {place}, * FROM {table} WHERE {whose} = ?", [owner]
    if order and after != "":
        sql, values = f"{sql} AND {order} > ?", [owner, after]
    if order:
        sql += f" ORDER BY {order} LIMIT {PAGE}"
    found = connection.execute(sql, values)
    names = [column[0] for column in found.description[1:]]
    lines: list[ArchivedRow] = []
    for place, *values in found.fetchall():
        row = dict(zip(names, values, strict=True))
        check(seals, table, row, place)
        lines.append((table, row))
    return lines


def _columns(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    return frozenset(row[1] for row in connection.execute(f"PRAGMA table_info({table})").fetchall())
