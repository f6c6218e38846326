"""Filters of rows and events in memory, and the places of the columns of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.codec.interning import decode
from wonder_server.codec.tables import READ_ROW, WRITTEN_COLUMNS
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.record_store import RowSelection, StoredRow
from wonder_server.ports.records import EventQuery, Query

READ_DATA: Final = READ_ROW.index("data")
ID, PARENT, ORDINAL, STATUS, ALIAS, LIVE, CREATED, DATA, SEAL = range(1, 10)
"""Indexes of the columns of a row after ``actor``."""


def row_matches(row: StoredRow, selection: RowSelection) -> bool:
    """Return True if a row meets the filters of the selection, except its actor and its projects."""
    query = selection.query
    filters = ((query.id, ID), (query.parent, PARENT), (query.alias, ALIAS))
    return (
        all(wanted in ("", row[at]) for wanted, at in filters)
        and (not query.actors or row[0] in query.actors)
        and (not query.statuses or row[STATUS] in query.statuses)
        and query.start_ms <= row[CREATED]
        and (not query.end_ms or row[CREATED] < query.end_ms)
        and all(_column_matches(query, row, column, wanted) for column, wanted in selection.columns)
        and _content_matches(row, selection)
    )


def _column_matches(query: Query, row: StoredRow, column: str, wanted: str | tuple[str, ...]) -> bool:
    value = row[WRITTEN_COLUMNS[query.table].index(column)]
    if isinstance(wanted, tuple):
        return value in wanted if wanted else value != ""
    return bool(value == wanted)


def _content_matches(row: StoredRow, selection: RowSelection) -> bool:
    if not (selection.members or selection.allowed):
        return True
    content = decode(row[DATA])
    return all(
        any(member.get("id") == wanted for member in _list_at(content, path))
        for path, wanted in selection.members
    ) and all(wanted in (_list_at(content, path) or (wanted,)) for path, wanted in selection.allowed)


def _list_at(content: object, path: str) -> list[JsonDict]:
    for name in path.split("."):
        content = content.get(name) if isinstance(content, dict) else None
    return content if isinstance(content, list) else []


def event_matches(row: StoredRow, query: EventQuery, names: Sequence[str]) -> bool:
    """Return True if an event meets the filters of the query, except its actor and its projects."""
    return (
        row[1] > query.after_sequence
        and (not names or row[3] in names)
        and query.turn_id in ("", row[5])
        and query.start_ms <= row[2]
        and (not query.end_ms or row[2] < query.end_ms)
    )
