"""Check the store of memories: seals, metadata terms, vectors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from wonder_server.adapters.sqlite.connection import UNREADABLE
from wonder_server.adapters.sqlite.memory import metadata_index
from wonder_server.adapters.sqlite.memory.rows import FIELDS, STORE, memory_of
from wonder_server.adapters.sqlite.seals import Seals
from wonder_server.adapters.sqlite.store_check import CheckResult, check_store, columns_of, rows_of
from wonder_server.core.errors import WonderError


def check_memory(path: Path) -> CheckResult:
    """Check ``memory.db``."""
    return check_store(path, path.name, _memory)


def _memory(connection: sqlite3.Connection, seals: Seals, found: CheckResult) -> None:
    if columns_of(connection, "deleted_agents"):
        deleted = connection.execute("SELECT agent_id FROM deleted_agents WHERE is_sure").fetchall()
        found.known_agents.update(str(agent) for (agent,) in deleted)
    if "seal" not in columns_of(connection, "memories"):
        count = connection.execute("SELECT count(*) FROM memories").fetchone()[0]
        found.records += count
        found.unchecked += count
        return
    marks: dict[int, int] = {}
    try:
        for row in connection.execute(f"SELECT {FIELDS} FROM memories"):
            found.records += 1
            found.unchecked += row[-3] is None
            try:
                memory = memory_of(row)
            except WonderError as problem:
                found.add_problem(problem)
            else:
                marks[row[-2]] = _combined(metadata_index.metadata_terms(memory.agent_id, memory.metadata))
                if memory.content_ref:
                    found.objects[memory.content_ref] = f"memory {memory.id}"
    except UNREADABLE as failure:
        found.add_problem(f"{STORE}: table memories cannot be read to its end: {failure}")
    for key, mark in connection.execute("SELECT memory_key, mark FROM fields"):
        if key in marks:
            marks[key] ^= mark
    for key in (key for key, rest in marks.items() if rest):
        found.add_problem(f"{STORE}: what filters find of the metadata of row {key} of memories is damaged")
    _vectors(connection, seals, found)


def _combined(marks: Iterable[int]) -> int:
    """One number for some marks, in any order."""
    folded = 0
    for mark in marks:
        folded ^= mark
    return folded


def _vectors(connection: sqlite3.Connection, seals: Seals, found: CheckResult) -> None:
    for key, row in rows_of(connection, found, STORE, "embeddings", "key"):
        place = row["memory_key"], row["agent_id"], row["embedder"], row["passage"]
        try:
            # Of an older store none has a seal, and nothing says up to which that may be.
            if row["seal"] is not None or "indexed" in columns_of(connection, "memories"):
                seals.check("embeddings", place, row["vector"], row["seal"], key)
        except WonderError as problem:
            found.add_problem(problem)
