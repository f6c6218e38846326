"""What metadata says, as rows that a filter can find: a mark for each value at its place.

``{"topic": "tea", "who": {"name": "Anna"}}`` has the marks of ``topic = "tea"``, ``who`` (an object) and
``who.name = "Anna"``. A list is one value. A mark is a hash of agent, place and value, so that nothing of a
filter is ever part of a statement, and no agent's marks are another's. The marks of a row follow from its
metadata; they are not kept twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Final

FORMAT: Final = 1
"""Grows when marks are made in another way: they are made anew for all memories then."""

_PUT: Final = "INSERT OR IGNORE INTO fields (mark, memory_key) VALUES (?, ?)"
_TAKE: Final = "DELETE FROM fields WHERE mark = ? AND memory_key = ?"


def add_terms(connection: sqlite3.Connection, key: int, agent_id: str, metadata: Mapping[str, Any]) -> None:
    """Make a memory known by what its metadata says."""
    if metadata:
        connection.executemany(_PUT, [(mark, key) for mark in metadata_terms(agent_id, metadata)])


def remove_terms(
    connection: sqlite3.Connection, key: int, agent_id: str, metadata: Mapping[str, Any]
) -> None:
    """Undo `put`."""
    if metadata:
        connection.executemany(_TAKE, [(mark, key) for mark in metadata_terms(agent_id, metadata)])


def remove_all_terms(connection: sqlite3.Connection, key: int) -> None:
    """Undo `put` for a memory whose metadata are not known. Looks at all marks."""
    connection.execute("DELETE FROM fields WHERE memory_key = ?", (key,))


def rebuild(connection: sqlite3.Connection) -> None:
    """Make all marks anew."""
    connection.execute("DELETE FROM fields")
    rows = connection.execute(
        "SELECT key, agent_id, metadata FROM memories WHERE metadata != '{}'"
    ).fetchall()
    for key, agent_id, metadata in rows:
        with contextlib.suppress(ValueError):  # Damaged.
            add_terms(connection, key, agent_id, json.loads(metadata))


def metadata_terms(agent_id: str, metadata: Mapping[str, Any]) -> list[int]:
    """One mark for each value, each different; a memory that has all marks of a filter fits it."""
    return list({_term(agent_id, place, value) for place, value in _paths_and_values((), metadata)})


def _paths_and_values(
    place: tuple[str, ...], value: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, child in value.items():
        here = (*place, name)
        if isinstance(child, Mapping):
            yield here, {}
            yield from _paths_and_values(here, child)
        else:
            yield here, child


def _term(agent_id: str, place: tuple[str, ...], value: Any) -> int:
    said = json.dumps([agent_id, place, _normalized(value)], sort_keys=True, ensure_ascii=True)
    return int.from_bytes(hashlib.blake2b(said.encode(), digest_size=8).digest(), "big", signed=True)


def _normalized(value: Any) -> Any:
    """1 and 1.0 are the same number, true is none."""
    if isinstance(value, Mapping):
        return {name: _normalized(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [_normalized(child) for child in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return value
