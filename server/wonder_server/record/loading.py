"""Loading of an actor: the rows that its state is restored from. Runs in the thread of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.codec.fields import StoredValue
from wonder_server.codec.seals import Seals
from wonder_server.codec.tables import MESSAGES
from wonder_server.core.actor.planner import Planner, Reload
from wonder_server.ports.journal import Loaded
from wonder_server.ports.record_store import ActorReads, StoredRow
from wonder_server.record.decoding import PartReader, row_value, verified_lines

_MAX_PARENTS: Final = 500
"""Maximum number of parents in one statement."""


def load(reads: ActorReads, actor_id: str, planner: Planner, seals: Seals) -> Loaded | None:
    """Read an actor; None if it does not exist. STORAGE_UNAVAILABLE if one of its rows is damaged."""
    actor = reads.actor(actor_id)
    if actor is None:
        return None
    entry_head, event_head, seal = actor
    seals.check("actors", (actor_id, entry_head, event_head), b"", seal, 1)
    at_ms = _time_of_last_entry(reads, actor_id, entry_head, seals)
    part = PartReader(reads, actor_id, seals)
    rows: dict[str, list[StoredValue]] = {}
    found = _working_set(reads, actor_id, planner.reload, seals)
    for table in sorted(found, key=lambda each: each != MESSAGES):  # Other rows refer to messages.
        ordered = [row for _, row in sorted(found[table].items())]
        rows[table] = [row_value(table, row, part, planner.row_types[table]) for row in ordered]
        if table == MESSAGES:
            part.add_messages(rows[table])
    bounded = planner.reload.bounded
    if bounded is not None:
        loaded = {row[2] for row in found.get(bounded.table, {}).values()}
        parents = zip(sorted(found.get(bounded.parent, {})), rows.get(bounded.parent, ()), strict=True)
        wanted = [key[1] for key, parent in parents if key[1] not in loaded and bounded.needs(parent)]
        more = _bounded_rows(reads, actor_id, planner, wanted, part) if wanted else []
        rows[bounded.table] = [*more, *rows.get(bounded.table, ())]
    return Loaded({table: rows.get(table, []) for table in planner.row_types}, entry_head, event_head, at_ms)


def _time_of_last_entry(reads: ActorReads, actor_id: str, entry_head: int, seals: Seals) -> int:
    """Return the time of the last journal entry, in milliseconds; 0 for an actor without entries.

    STORAGE_UNAVAILABLE if the entry is missing: a new one would follow the gap, with a time that may be
    earlier.
    """
    if not entry_head:
        return 0
    rows = reads.entries(actor_id, entry_head - 1, 1)
    last = verified_lines(seals, actor_id, rows[0])[-1] if rows else None
    if last is None or last.sequence != entry_head:
        seals.raise_damaged("entries", (actor_id, entry_head))
    return last.at_ms


def _working_set(
    reads: ActorReads, actor_id: str, reload: Reload, seals: Seals
) -> dict[str, dict[tuple[int, str], StoredRow]]:
    """Read the rows to load, by table, with keys that sort by ordinal, then id."""
    found: dict[str, dict[tuple[int, str], StoredRow]] = {}

    def add(table: str, rows: Sequence[StoredRow]) -> None:
        by_key = found.setdefault(table, {})
        for row in rows:
            if type(row[1]) is not str or type(row[3]) is not int:
                seals.raise_damaged(table, row[:2])
            by_key[row[3], row[1]] = row

    for table in reload.live:
        add(table, reads.live_rows(table, actor_id))
    for table, count in reload.recent:
        add(table, reads.newest_rows(table, actor_id, count))
    for table, parent in reload.children:
        column = "id" if (table, parent) == ("turns", "works") else "parent"
        parents = [row_id for _, row_id in found.get(parent, {})]
        for start in range(0, len(parents), _MAX_PARENTS):
            add(table, reads.rows_among(table, actor_id, column, parents[start : start + _MAX_PARENTS]))
    return found


_BATCH_OF_PARENTS: Final = 20
"""Number of parents whose rows are read at once, as far as rows are loaded up to a size."""


def _bounded_rows(
    reads: ActorReads, actor_id: str, planner: Planner, parents: list[str], part: PartReader
) -> list[StoredValue]:
    """Return the rows of ``reload.bounded`` of the newest of these parents, in the order of the parents."""
    bounded = planner.reload.bounded
    assert bounded is not None, "the caller has checked it"
    table, left = bounded.table, bounded.max_bytes
    found: list[list[StoredValue]] = []
    while parents and left >= 0:
        batch, parents = parents[-_BATCH_OF_PARENTS:], parents[:-_BATCH_OF_PARENTS]
        by_parent: dict[str, list[StoredRow]] = {}
        for row in reads.rows_among(table, actor_id, "parent", batch):
            by_parent.setdefault(row[2], []).append(row)
        for parent in reversed(batch):
            ordered = sorted(by_parent.get(parent, ()), key=lambda row: (row[3], row[1]))
            values = [row_value(table, row, part, planner.row_types[table]) for row in ordered]
            left -= bounded.size_bytes(values)
            if left < 0:
                break
            found.append(values)
    return [value for values in reversed(found) for value in values]
