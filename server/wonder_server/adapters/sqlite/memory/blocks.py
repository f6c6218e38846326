"""Memory blocks in memory.db. Implements the port `MemoryBlocks`."""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from wonder_server.adapters.sqlite.connection import Row
from wonder_server.adapters.sqlite.database import Database
from wonder_server.adapters.sqlite.memory import writes
from wonder_server.adapters.sqlite.memory.rows import STORE
from wonder_server.codec.seals import damaged_record, seal
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.memory.blocks import (
    MAX_BLOCKS,
    MAX_CHANGES,
    Author,
    BlockChange,
    BlockKey,
    ChangeKind,
    MemoryBlock,
    block_not_found,
)

_MAX_KNOWN: Final = 20_000
"""Maximum number of pairs of agent and subject whose blocks are in memory; most have none."""

BLOCK_FIELDS: Final = (
    "agent_id, subject, label, description, max_characters, read_only, version, created_ms, updated_ms,"
    " content, seal"
)
CHANGE_FIELDS: Final = (
    "agent_id, subject, label, version, kind, principal, user_id, conversation_id, turn_id, move_id,"
    " changed_ms, content, seal"
)
_KEY: Final = "agent_id = ? AND subject = ? AND label = ?"
_OF: Final = f"SELECT {BLOCK_FIELDS} FROM memory_blocks WHERE agent_id = ? AND subject = ? ORDER BY label"
_PAGE: Final = (
    f"SELECT {BLOCK_FIELDS} FROM memory_blocks WHERE agent_id = ? AND (subject, label) > (?, ?)"
    " ORDER BY subject, label LIMIT ?"
)
_PUT: Final = (
    f"INSERT OR REPLACE INTO memory_blocks ({BLOCK_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_RECORD: Final = (
    f"INSERT INTO memory_block_changes ({CHANGE_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_DROP_OLD: Final = f"DELETE FROM memory_block_changes WHERE {_KEY} AND version <= ?"
_CHANGES: Final = (
    f"SELECT {CHANGE_FIELDS} FROM memory_block_changes WHERE {_KEY} ORDER BY version DESC LIMIT ?"
)


class SqliteMemoryBlocks:
    """The blocks of one `Database`, whose only writer this process is: it knows what it has read."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[tuple[str, str], list[MemoryBlock]] = OrderedDict()
        self._write_count = 0
        """Increases with every change, before it is queued."""

    def known(self, agent_id: str, subjects: Sequence[str]) -> list[MemoryBlock] | None:
        found: list[MemoryBlock] = []
        for subject in subjects:
            blocks = self._known.get((agent_id, subject))
            if blocks is None:
                return None
            found += blocks
        return found

    async def of(self, agent_id: str, subjects: Sequence[str]) -> list[MemoryBlock]:
        def work(connection: sqlite3.Connection) -> list[list[MemoryBlock]]:
            return [[block_of(row) for row in connection.execute(_OF, (agent_id, each))] for each in subjects]

        count_before = self._write_count
        found = await self._database.read(work)
        # The read saw all changes queued before it.
        if count_before == self._write_count:
            for subject, blocks in zip(subjects, found, strict=True):
                self._known[agent_id, subject] = blocks
                self._known.move_to_end((agent_id, subject))
            while len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
        return [block for blocks in found for block in blocks]

    async def page(self, agent_id: str, after: tuple[str, str], limit: int) -> list[MemoryBlock]:
        return await self._database.read(
            lambda connection: [block_of(row) for row in connection.execute(_PAGE, (agent_id, *after, limit))]
        )

    async def change(
        self,
        key: BlockKey,
        edit: Callable[[MemoryBlock | None], MemoryBlock],
        expected_version: int | None,
        change: tuple[ChangeKind, Author],
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> MemoryBlock:
        def work(connection: sqlite3.Connection) -> MemoryBlock:
            writes.check_agent_not_deleted(connection, key.agent_id)
            current = _current(connection, key)
            if writes.find_request(connection, key.agent_id, request) is not None:
                if current is None:
                    raise block_not_found(key)
                return current
            _check_version(key, 0 if current is None else current.version, expected_version)
            if current is None:
                _check_count(connection, key)
            block = edit(current)
            version = _last_version(connection, key) + 1
            created_ms = now_ms if current is None else current.created_ms
            stored = replace(block, version=version, created_ms=created_ms, updated_ms=now_ms)
            connection.execute(_PUT, _block_row(stored))
            _record(
                connection,
                key,
                BlockChange(
                    version=version,
                    kind=change[0],
                    content=stored.content,
                    author=change[1],
                    changed_ms=now_ms,
                ),
            )
            writes.record_request(connection, key.agent_id, request, "", now_ms)
            return stored

        self._forget(key)
        return await self._database.write(work)

    async def remove(
        self,
        key: BlockKey,
        expected_version: int | None,
        author: Author,
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> None:
        def work(connection: sqlite3.Connection) -> None:
            if writes.find_request(connection, key.agent_id, request) is not None:
                return
            values = key.agent_id, key.subject, key.label
            # A damaged block can be deleted too.
            found = connection.execute(f"SELECT version FROM memory_blocks WHERE {_KEY}", values).fetchone()
            if found is None:
                raise block_not_found(key)
            _check_version(key, found[0], expected_version)
            version = _last_version(connection, key) + 1
            kept = _intact_changes(connection, key)
            connection.execute(f"DELETE FROM memory_blocks WHERE {_KEY}", values)
            connection.execute(f"DELETE FROM memory_block_changes WHERE {_KEY}", values)
            for each in reversed(kept):
                _record(connection, key, replace(each, content=""))
            _record(
                connection,
                key,
                BlockChange(version=version, kind="delete", content="", author=author, changed_ms=now_ms),
            )
            writes.record_request(connection, key.agent_id, request, "", now_ms)

        self._forget(key)
        await self._database.write(work, frees_space=True)

    async def changes(self, key: BlockKey, limit: int) -> list[BlockChange]:
        return await self._database.read(lambda connection: _read_changes(connection, key, limit))

    def _forget(self, key: BlockKey) -> None:
        self._write_count += 1
        self._known.pop((key.agent_id, key.subject), None)


def delete_blocks(connection: sqlite3.Connection, agent_id: str) -> None:
    """Delete all blocks of an agent, with the record of their changes."""
    connection.execute("DELETE FROM memory_blocks WHERE agent_id = ?", (agent_id,))
    connection.execute("DELETE FROM memory_block_changes WHERE agent_id = ?", (agent_id,))


def block_of(row: Row) -> MemoryBlock:
    """Return the block of a row of `BLOCK_FIELDS`. Raises STORAGE_UNAVAILABLE if the row is damaged."""
    _check_seal("memory_blocks", row, str(row[2]))
    return MemoryBlock(
        key=BlockKey(agent_id=row[0], subject=row[1], label=row[2]),
        description=row[3],
        max_characters=row[4],
        read_only=bool(row[5]),
        version=row[6],
        created_ms=row[7],
        updated_ms=row[8],
        content=row[9],
    )


def change_of(row: Row) -> BlockChange:
    """Return the change of a row of `CHANGE_FIELDS`. Raises STORAGE_UNAVAILABLE if the row is damaged."""
    _check_seal("memory_block_changes", row, f"{row[2]} {row[3]}")
    return BlockChange(
        version=row[3],
        kind=row[4],
        author=Author(
            principal=row[5], user_id=row[6], conversation_id=row[7], turn_id=row[8], move_id=row[9]
        ),
        changed_ms=row[10],
        content=row[11],
    )


def _check_seal(table: str, row: Row, name: str) -> None:
    if row[-1] != _row_seal(table, row[:-1]):
        raise damaged_record(STORE, table, name)


def _row_seal(table: str, row: Sequence[object]) -> int:
    # As JSON, so that no text can move from one column into the next.
    return seal((table,), json.dumps(row, default=repr).encode())


def _block_row(block: MemoryBlock) -> tuple[object, ...]:
    key = block.key
    row = (
        *(key.agent_id, key.subject, key.label, block.description, block.max_characters),
        *(int(block.read_only), block.version, block.created_ms, block.updated_ms, block.content),
    )
    return *row, _row_seal("memory_blocks", row)


def _record(connection: sqlite3.Connection, key: BlockKey, change: BlockChange) -> None:
    """Record a change, and drop the oldest one above `MAX_CHANGES`."""
    author = change.author
    row = (
        *(key.agent_id, key.subject, key.label, change.version, change.kind),
        *(author.principal, author.user_id, author.conversation_id, author.turn_id, author.move_id),
        *(change.changed_ms, change.content),
    )
    connection.execute(_RECORD, (*row, _row_seal("memory_block_changes", row)))
    connection.execute(_DROP_OLD, (key.agent_id, key.subject, key.label, change.version - MAX_CHANGES))


def _read_changes(connection: sqlite3.Connection, key: BlockKey, limit: int) -> list[BlockChange]:
    rows = connection.execute(_CHANGES, (key.agent_id, key.subject, key.label, limit))
    return [change_of(row) for row in rows]


def _intact_changes(connection: sqlite3.Connection, key: BlockKey) -> list[BlockChange]:
    """Return the changes of a block whose records are not damaged."""
    found: list[BlockChange] = []
    for row in connection.execute(_CHANGES, (key.agent_id, key.subject, key.label, MAX_CHANGES)).fetchall():
        with suppress(WonderError):
            found.append(change_of(row))
    return found


def _current(connection: sqlite3.Connection, key: BlockKey) -> MemoryBlock | None:
    sql = f"SELECT {BLOCK_FIELDS} FROM memory_blocks WHERE {_KEY}"
    row = connection.execute(sql, (key.agent_id, key.subject, key.label)).fetchone()
    return None if row is None else block_of(row)


def _last_version(connection: sqlite3.Connection, key: BlockKey) -> int:
    """Return the version of the newest change, also of a deleted block."""
    sql = f"SELECT coalesce(max(version), 0) FROM memory_block_changes WHERE {_KEY}"
    return int(connection.execute(sql, (key.agent_id, key.subject, key.label)).fetchone()[0])


def _check_version(key: BlockKey, version: int, expected: int | None) -> None:
    if expected is not None and version != expected:
        raise error(
            Reason.ETAG_MISMATCH,
            f"Memory block {key.label} has changed meanwhile. Read it again and repeat the change.",
            field="etag",
        )


def _check_count(connection: sqlite3.Connection, key: BlockKey) -> None:
    sql = "SELECT count(*) FROM memory_blocks WHERE agent_id = ? AND subject = ?"
    [count] = connection.execute(sql, (key.agent_id, key.subject)).fetchone()
    if count >= MAX_BLOCKS:
        whose = f"about the user '{key.subject}'" if key.subject else "of its own"
        raise error(
            Reason.LIMIT_EXCEEDED,
            f"The agent has {count} memory blocks {whose}; the maximum is {MAX_BLOCKS}. Delete one first.",
            field="label",
            limit=str(MAX_BLOCKS),
        )
