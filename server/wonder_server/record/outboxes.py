"""Outboxes of unfinished actors, a page of actors in few statements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wonder_server.codec.fields import StoredValue
from wonder_server.codec.seals import Seals
from wonder_server.core.actor.planner import Planner
from wonder_server.core.errors import WonderError
from wonder_server.ports.journal import PendingOperation, Unfinished
from wonder_server.ports.record_store import Reads, StoredRow
from wonder_server.record.decoding import PartReader, row_value

_MAX_IDS: Final = 500
"""Maximum number of ids in one statement."""


def unfinished(reads: Reads, planner: Planner, after: str, limit: int, seals: Seals) -> list[Unfinished]:
    """Return the next actors with operations in their outbox, by id."""
    found, at_ms = reads.outbox(f"{planner.prefix}_", after, limit)
    by_actor: dict[str, list[StoredRow]] = {}
    for row in found:
        by_actor.setdefault(row[0], []).append(row)
    values = {actor: _values(reads, actor, rows, planner, seals) for actor, rows in by_actor.items()}
    operations = [operation for own in values.values() for operation in own]
    children = _with_outbox(reads, map(planner.child_run, operations))
    return [
        Unfinished(
            actor,
            at_ms.get(actor, 0),
            tuple(
                PendingOperation(row[1], value, row[3], planner.child_run(value) in children)
                for row, value in zip(rows, values[actor], strict=False)
            ),
        )
        for actor, rows in by_actor.items()
    ]


def _values(
    reads: Reads, actor: str, rows: list[StoredRow], planner: Planner, seals: Seals
) -> list[StoredValue]:
    """Return the values of an actor's operations. Return an empty list if one is damaged."""
    parts = PartReader(reads, actor, seals)
    try:
        return [row_value("operations", row, parts, planner.row_types["operations"]) for row in rows]
    except WonderError:
        return []


def _with_outbox(reads: Reads, actors: Iterable[str]) -> set[str]:
    """Return those of ``actors`` that have operations in their outbox."""
    wanted, found = [actor for actor in actors if actor], set[str]()
    for start in range(0, len(wanted), _MAX_IDS):
        found.update(reads.with_outbox(wanted[start : start + _MAX_IDS]))
    return found
