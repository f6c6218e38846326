"""Check of the memory store: seals, metadata terms, vectors."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import reduce
from operator import xor
from pathlib import Path

from wonder_server.adapters.sqlite.connection import UNREADABLE, Row
from wonder_server.adapters.sqlite.memory import metadata_index
from wonder_server.adapters.sqlite.memory.blocks import BLOCK_FIELDS, CHANGE_FIELDS, block_of, change_of
from wonder_server.adapters.sqlite.memory.rows import FIELDS, STORE, memory_of
from wonder_server.adapters.sqlite.store_check import CheckResult, check_store, columns_of, reading, rows_of
from wonder_server.codec.seals import Seals
from wonder_server.core.errors import WonderError


def check_memory(path: Path) -> CheckResult:
    """Check ``memory.db``."""
    return check_store(path, path.name, _check_records)


def _check_records(connection: sqlite3.Connection, seals: Seals, found: CheckResult) -> None:
    if columns_of(connection, "deleted_agents"):
        deleted = connection.execute("SELECT agent_id FROM deleted_agents WHERE is_sure").fetchall()
        found.known_agents.update(str(agent) for (agent,) in deleted)
    if "seal" not in columns_of(connection, "memories"):
        count = connection.execute("SELECT count(*) FROM memories").fetchone()[0]
        found.records += count
        found.unchecked += count
        return
    _check_terms(connection, found, _check_memories(connection, found))
    _check_vectors(connection, seals, found)
    if columns_of(connection, "memory_blocks"):
        _check_blocks(connection, found)


def _check_blocks(connection: sqlite3.Connection, found: CheckResult) -> None:
    tables: tuple[tuple[str, str, Callable[[Row], object]], ...] = (
        ("memory_blocks", BLOCK_FIELDS, block_of),
        ("memory_block_changes", CHANGE_FIELDS, change_of),
    )
    for table, fields, read in tables:
        with reading(found, STORE, f"table {table}"):
            for row in connection.execute(f"SELECT {fields} FROM {table}"):
                found.records += 1
                try:
                    read(row)
                except WonderError as problem:
                    found.add_problem(problem)


def _check_memories(connection: sqlite3.Connection, found: CheckResult) -> dict[int, int]:
    """Check the seals of all memories. Return the combined metadata terms of each intact memory by its
    key."""
    combined: dict[int, int] = {}
    try:
        for row in connection.execute(f"SELECT {_fields_of(connection)} FROM memories"):
            found.records += 1
            found.unchecked += row[-3] is None
            try:
                memory = memory_of(row)
            except WonderError as problem:
                found.add_problem(problem)
            else:
                terms = metadata_index.metadata_terms(memory.agent_id, memory.metadata)
                combined[row[-2]] = reduce(xor, terms, 0)
                if memory.content_ref:
                    found.objects[memory.content_ref] = f"memory {memory.id}"
    except UNREADABLE as failure:
        found.add_problem(f"{STORE}: table memories cannot be read to its end: {failure}")
    return combined


def _fields_of(connection: sqlite3.Connection) -> str:
    """Return `FIELDS` for this file. A file that no current server has opened lacks the newest columns."""
    columns, fields = columns_of(connection, "memories"), FIELDS
    if "said_ms" not in columns:
        fields = fields.replace("said_ms, speaker_role", "NULL, ''")
    if "subject" not in columns:
        fields = fields.replace("subject, message_id, speaker_id", "'', '', ''")
    return fields


def _check_terms(connection: sqlite3.Connection, found: CheckResult, combined: dict[int, int]) -> None:
    """Add a problem for each memory whose stored metadata terms differ from those of its metadata.

    XOR of all terms, expected and stored, is 0 if both sets are equal.
    """
    for key, term in connection.execute("SELECT memory_key, mark FROM fields"):
        if key in combined:
            combined[key] ^= term
    for key in (key for key, rest in combined.items() if rest):
        found.add_problem(f"{STORE}: the metadata terms of row {key} of memories are damaged")


def _check_vectors(connection: sqlite3.Connection, seals: Seals, found: CheckResult) -> None:
    for key, row in rows_of(connection, found, STORE, "embeddings", "key"):
        owner = row["memory_key"], row["agent_id"], row["embedder"], row["passage"]
        try:
            # In an older store no vector has a seal, and table ``unsealed`` has no limit for vectors.
            if row["seal"] is not None or "indexed" in columns_of(connection, "memories"):
                seals.check("embeddings", owner, row["vector"], row["seal"], key)
        except WonderError as problem:
            found.add_problem(problem)
