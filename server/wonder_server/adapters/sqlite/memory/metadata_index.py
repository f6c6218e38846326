"""Index of metadata: one term for each value of a memory's metadata, for filters.

``{"topic": "tea", "owner": {"name": "Anna"}}`` has the terms of ``topic = "tea"``, ``owner`` (an object) and
``owner.name = "Anna"``. A list is one value. A term is a hash of agent, path and value, so no part of a
filter becomes part of a statement, and agents do not share terms. The terms of a memory follow from its
metadata and are stored nowhere else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Final

from wonder_server.core.json_types import JsonObject, JsonValue

FORMAT: Final = 1
"""Version of the term format. After an increase, the next start rebuilds all terms."""

_ADD: Final = "INSERT OR IGNORE INTO fields (mark, memory_key) VALUES (?, ?)"
_REMOVE: Final = "DELETE FROM fields WHERE mark = ? AND memory_key = ?"


def add_terms(connection: sqlite3.Connection, key: int, agent_id: str, metadata: JsonObject) -> None:
    """Store the metadata terms of a memory."""
    if metadata:
        connection.executemany(_ADD, [(term, key) for term in metadata_terms(agent_id, metadata)])


def remove_terms(connection: sqlite3.Connection, key: int, agent_id: str, metadata: JsonObject) -> None:
    """Remove the metadata terms of a memory."""
    if metadata:
        connection.executemany(_REMOVE, [(term, key) for term in metadata_terms(agent_id, metadata)])


def remove_all_terms(connection: sqlite3.Connection, key: int) -> None:
    """Remove the terms of a memory with unknown metadata. Scans the whole table."""
    connection.execute("DELETE FROM fields WHERE memory_key = ?", (key,))


def rebuild(connection: sqlite3.Connection) -> None:
    """Rebuild the terms of all memories."""
    connection.execute("DELETE FROM fields")
    rows = connection.execute(
        "SELECT key, agent_id, metadata FROM memories WHERE metadata != '{}'"
    ).fetchall()
    for key, agent_id, metadata in rows:
        with contextlib.suppress(ValueError):  # Damaged metadata have no terms.
            add_terms(connection, key, agent_id, json.loads(metadata))


def metadata_terms(agent_id: str, metadata: JsonObject) -> list[int]:
    """Return one distinct term for each value. A memory matches a filter if it has all terms of the
    filter."""
    return list({_term(agent_id, path, value) for path, value in _paths_and_values((), metadata)})


def _paths_and_values(
    path: tuple[str, ...], value: JsonObject
) -> Iterator[tuple[tuple[str, ...], JsonValue]]:
    for name, child in value.items():
        child_path = (*path, name)
        if isinstance(child, Mapping):
            yield child_path, {}
            yield from _paths_and_values(child_path, child)
        else:
            yield child_path, child


def _term(agent_id: str, path: tuple[str, ...], value: JsonValue) -> int:
    text = json.dumps([agent_id, path, _normalized(value)], sort_keys=True, ensure_ascii=True)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def _normalized(value: JsonValue) -> JsonValue:
    """Convert numbers to floats, so that 1 equals 1.0. Booleans stay."""
    if isinstance(value, Mapping):
        return {name: _normalized(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [_normalized(child) for child in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return value
