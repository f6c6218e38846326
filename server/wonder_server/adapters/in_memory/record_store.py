"""A record store in memory, with the rows that a store on disk has. Implements the port ``RecordStore``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from operator import gt, itemgetter, lt
from typing import Any, Final, TypeAlias, TypeVar

from wonder_server.adapters.in_memory.row_filters import (
    ALIAS,
    CREATED,
    DATA,
    ID,
    LIVE,
    ORDINAL,
    PARENT,
    READ_DATA,
    SEAL,
    event_matches,
    row_matches,
)
from wonder_server.codec.tables import ROW_TABLES, SHARED, WRITTEN_COLUMNS
from wonder_server.core import ids
from wonder_server.core.budget import CHARGES, Account, add_accounts
from wonder_server.ports.journal import StaleEpochError, external_ref_taken
from wonder_server.ports.record_store import (
    Erasure,
    EventSelection,
    Reads,
    Reference,
    RowSelection,
    StoredRow,
    StoredValue,
    WriteBatch,
    Writes,
)
from wonder_server.ports.records import Query

T = TypeVar("T")
Item = TypeVar("Item")

Mutable: TypeAlias = dict[Any, Any]
"""A dictionary of rows, with any kind of key."""

Rows = dict[str, StoredRow]
"""Rows of an actor by id."""

_FIRST_FILTER: Final = SEAL + 1
_PROJECT_OF_RUN: Final = WRITTEN_COLUMNS["runs"].index("project_id")
_MISSING: Final = object()


class MemoryRecordStore:
    """Rows in dictionaries. Each function runs at once, in the event loop's thread."""

    name: Final = "memory"
    unsealed: Final[Mapping[str, int]] = {}

    def __init__(self, files: int = 1) -> None:
        """``files``: number of files of the store that this one stands for. External references are unique
        in each."""
        self.files = files
        self.actors: Rows = {}
        """The rows of ``actors`` by id."""
        self.tables: dict[str, dict[str, Rows]] = {table: {} for table in ROW_TABLES}
        """The rows by table, actor and id."""
        self.entries: dict[str, dict[int, StoredRow]] = {}
        """The journal rows by actor and sequence."""
        self.events: dict[str, dict[int, StoredRow]] = {}
        """The events by actor and sequence."""
        self.requests: dict[tuple[str, str], StoredRow] = {}
        """The completed requests by scope and id."""
        self.parts: dict[tuple[str, str], str | bytes] = {}
        """The parts by root and hash."""
        self.accounts: dict[str, Account] = {}
        """The usage of agents by id."""
        self.commits = 0
        self.epochs: dict[int, int] = {}
        self.rejection: Exception | None = None
        """The error of every write that needs space, as on a full disk."""
        self._undo: list[tuple[Mutable, Any, object]] = []

    async def raise_epochs(self, shards: Collection[int]) -> dict[int, int]:
        raised = {shard: self.epochs.get(shard, 0) + 1 for shard in shards}
        self.epochs |= raised
        return raised

    def submit(
        self, fn: Callable[[Writes, list[Item]], T], items: list[Item], *, frees_space: bool
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            self._check_writable(frees_space)
            future.set_result(self.run(lambda writes: fn(writes, items)))
        except Exception as failure:
            future.set_exception(failure)
        return future

    async def write(self, fn: Callable[[Writes], T], *, frees_space: bool = False) -> T:
        self._check_writable(frees_space)
        return self.run(fn)

    def _check_writable(self, frees_space: bool) -> None:
        if self.rejection is not None and not frees_space:
            raise self.rejection

    async def read(self, fn: Callable[[Reads], T], *, between_commits: bool = False) -> T:
        return fn(MemoryStatements(self))

    def run(self, fn: Callable[[Writes], T]) -> T:
        """Run a write at once. If it raises, nothing is written."""
        try:
            found = fn(MemoryStatements(self))
        except BaseException:
            for mapping, key, before in reversed(self._undo):
                if before is _MISSING:
                    del mapping[key]
                else:
                    mapping[key] = before
            raise
        finally:
            self._undo.clear()
        self.commits += 1
        return found

    def rows_of(self, actor_id: str) -> list[tuple[str, StoredRow]]:
        """Return every row of an actor with its table, for an archive."""
        found = [("actors", self.actors[actor_id])]
        for table, actors in self.tables.items():
            found += [(table, row) for row in actors.get(actor_id, {}).values()]
        found += [("entries", row) for row in self.entries.get(actor_id, {}).values()]
        found += [("events", row) for row in self.events.get(actor_id, {}).values()]
        found += [("requests_answered", row) for row in self.requests.values() if row[2] == actor_id]
        return found + [("parts", (*key, data)) for key, data in self.parts.items() if key[0] == actor_id]

    def restore(self, table: str, row: StoredRow) -> None:
        """Restore a row of an archive. What exists stays unchanged, except the answer of a request."""
        if table == "actors":
            self.actors.setdefault(row[0], row)
        elif table == "parts":
            self.parts.setdefault(row[:2], row[2])
        elif table == "requests_answered":
            self.requests[row[:2]] = row
        elif table in ("entries", "events"):
            by_actor = self.entries if table == "entries" else self.events
            by_actor.setdefault(row[0], {}).setdefault(row[1], row)
        else:
            self.tables[table].setdefault(row[0], {}).setdefault(row[ID], row)

    def put(self, mapping: Mutable, key: object, value: object) -> None:
        """Set a value. A write that raises later undoes it."""
        self._undo.append((mapping, key, mapping.get(key, _MISSING)))
        mapping[key] = value

    def remove(self, mapping: Mutable, key: object) -> None:
        """Remove a value if it is there. A write that raises later undoes it."""
        if key in mapping:
            self._undo.append((mapping, key, mapping.pop(key)))


class MemoryStatements:
    """The statements of one call. Implements ``Reads`` and ``Writes``."""

    def __init__(self, store: MemoryRecordStore) -> None:
        self._store = store

    # --- reads of actors ------------------------------------------------------------------------

    def actor(self, actor_id: str) -> StoredRow | None:
        row = self._store.actors.get(actor_id)
        return None if row is None else (row[3], row[4], row[6])

    def entries(self, actor_id: str, after: int, limit: int) -> list[StoredRow]:
        found = self._store.entries.get(actor_id, {})
        return [
            (*row[1:4], as_bytes(row[4]), as_bytes(row[5]), row[6], 1) for row in _after(found, after, limit)
        ]

    def live_rows(self, table: str, actor_id: str) -> list[StoredRow]:
        return [as_read(row) for row in self._rows(table, actor_id) if row[LIVE]]

    def newest_rows(self, table: str, actor_id: str, count: int) -> list[StoredRow]:
        found = sorted(self._rows(table, actor_id), key=itemgetter(ORDINAL), reverse=True)
        return [as_read(row) for row in found[:count]]

    def rows_among(self, table: str, actor_id: str, column: str, values: Sequence[str]) -> list[StoredRow]:
        at, wanted = ID if column == "id" else PARENT, set(values)
        return [as_read(row) for row in self._rows(table, actor_id) if row[at] in wanted]

    def _rows(self, table: str, actor_id: str) -> Iterable[StoredRow]:
        return self._store.tables[table].get(actor_id, {}).values()

    def parts(self, actor_id: str, hashes: Sequence[str]) -> list[tuple[str, bytes]]:
        row, parts = self._store.actors.get(actor_id), self._store.parts
        roots = (SHARED,) if row is None else (row[2], SHARED)
        return [
            (digest, as_bytes(parts[root, digest]))
            for digest in hashes
            for root in roots
            if (root, digest) in parts
        ]

    def message(self, actor_id: str, ordinal: int) -> StoredRow | None:
        actor = self._store.actors.get(actor_id)
        found = [] if actor is None else self._rows("messages", actor[2])
        return next((as_read(row) for row in found if row[ORDINAL] == ordinal), None)

    def events(self, actor_id: str, after: int, limit: int) -> Generator[StoredRow]:
        for row in _after(self._store.events.get(actor_id, {}), after, limit):
            yield as_event(row)

    def request(self, scope: str, request_id: str) -> StoredRow | None:
        row = self._store.requests.get((scope, request_id))
        return None if row is None else (row[2], row[3], as_bytes(row[4]), row[5])

    def requests_of(self, actor_id: str, scopes: Collection[str]) -> list[StoredRow]:
        return [
            (row[0], row[1], row[3], as_bytes(row[4]))
            for row in self._store.requests.values()
            if row[2] == actor_id and row[0] in scopes
        ]

    def compact_runs(self, actors: Sequence[str], *, without_heads: bool = False) -> list[StoredRow]:
        found = [self._store.actors[actor] for actor in actors if actor in self._store.actors]
        return [row[:1] + row[2:4] for row in found if row[5] and not (without_heads and row[4])]

    def outbox(self, prefix: str, after: str, limit: int) -> tuple[list[StoredRow], dict[str, int]]:
        first = max(after, prefix)
        actors = sorted(
            actor
            for actor in self._store.tables["operations"]
            if actor.startswith(prefix) and actor > first and self.with_outbox([actor])
        )
        rows: list[StoredRow] = []
        times: dict[str, int] = {}
        for actor in actors[:limit]:
            live = [row for row in self._rows("operations", actor) if row[LIVE]]
            rows += [as_read(row) for row in sorted(live, key=itemgetter(CREATED, ID))]
            last = self._store.entries.get(actor, {}).get(self._store.actors[actor][3])
            if last is not None:
                times[actor] = last[2]
        return rows, times

    def with_outbox(self, actors: Sequence[str]) -> list[str]:
        return [actor for actor in actors if any(row[LIVE] for row in self._rows("operations", actor))]

    # --- reads for lists ------------------------------------------------------------------------

    def heads(self, actors: Sequence[str]) -> list[StoredRow]:
        return [self._head(self._store.actors[actor]) for actor in actors if actor in self._store.actors]

    def _head(self, row: StoredRow) -> StoredRow:
        actor, entry_head, event_head, is_compact = row[0], *row[3:6]
        if is_compact:
            last = self._store.entries.get(actor, {}).get(entry_head)
            ordinals = [run[ORDINAL] for run in self._rows("runs", actor) if run[ID] == actor]
        else:
            last = self._store.events.get(actor, {}).get(event_head)
            ordinals = [each[ORDINAL] for each in self._rows("executions", actor)]
        return actor, event_head, 0 if last is None else last[2], max(ordinals, default=0)

    def rows(self, selection: RowSelection) -> Generator[StoredRow]:
        query, limit = selection.query, selection.limit or None
        order = ORDINAL if query.by_ordinal else CREATED
        placed = [
            ((0 if query.by_id else row[order], row[ID]), row)
            for row in self._rows_of(query)
            if query.text is not None or self._is_selected(row, selection)
        ]
        placed.sort(key=itemgetter(0), reverse=query.newest_first)
        if query.after is not None:
            is_after = lt if query.newest_first else gt
            placed = [(place, row) for place, row in placed if is_after(place, query.after)]
        for place, row in placed[:limit]:
            read = as_read(row)
            if query.text is not None and not self._is_selected(row, selection):
                read = (*read[:READ_DATA], None, *read[READ_DATA + 1 :])
            yield (place[0], *read)

    def _rows_of(self, query: Query) -> Iterable[StoredRow]:
        """Return the rows of the query's actor, or of all."""
        table = self._store.tables[query.table]
        actors = [query.actor] if query.actor else list(table)
        return [row for actor in actors for row in table.get(actor, {}).values()]

    def _is_selected(self, row: StoredRow, selection: RowSelection) -> bool:
        projects = selection.query.projects
        return (projects is None or self._project(row[0]) in projects) and row_matches(row, selection)

    def listed_events(self, selection: EventSelection) -> Generator[StoredRow]:
        query = selection.query
        actors = [
            actor
            for actor in self._store.events
            if actor.startswith(selection.prefix)
            and query.actor in ("", actor)
            and query.project_id in ("", self._project(actor))
            and (query.projects is None or self._project(actor) in query.projects)
        ]
        found = [
            row
            for actor in actors
            for row in self._store.events[actor].values()
            if event_matches(row, query, selection.names)
        ]
        if query.actor:
            found.sort(key=itemgetter(1))
            found = [row for row in found if query.after is None or row[1] > query.after[2]]
        else:
            found.sort(key=itemgetter(2, 0, 1), reverse=True)
            found = [row for row in found if query.after is None or (row[2], row[0], row[1]) < query.after]
        for row in found[: query.limit]:
            yield as_event(row)

    def _project(self, actor: str) -> str:
        """Return the project of a conversation or run."""
        for table, column in (("runs", _PROJECT_OF_RUN), ("conversations", PARENT)):
            row = self._store.tables[table].get(actor, {}).get(actor)
            if row is not None:
                return str(row[column])
        return ""

    def members(self, root: str) -> list[str]:
        return [row[0] for row in self._store.actors.values() if row[2] == root or row[0] == root]

    # --- writes ---------------------------------------------------------------------------------

    def write(self, batch: WriteBatch) -> None:
        store = self._store
        for actor, shard, epoch in batch.fences:
            current = store.epochs.get(shard, 0)
            if epoch < current:
                raise StaleEpochError(actor, epoch, current)
        for erasure in batch.erasures:
            self._erase(erasure)
        for reference in batch.references:
            self._check_reference(reference)
        self._write_rows(batch)
        for erasure in batch.erasures:
            if erasure.whole:
                self._erase_root(erasure.actor_id)

    def _write_rows(self, batch: WriteBatch) -> None:
        store = self._store
        for table, keys in batch.deletes.items():
            for actor, row_id in _tuples(keys, 2):
                store.remove(store.tables[table].get(actor, {}), row_id)
        for table, values in batch.rows.items():
            for row in _tuples(values, len(WRITTEN_COLUMNS[table])):
                self._put(table, row)

    def mark_expanded(self, actors: Sequence[str]) -> None:
        for actor in actors:
            row = self._store.actors[actor]
            self._store.put(self._store.actors, actor, (*row[:5], 0, row[6]))

    def _put(self, table: str, row: StoredRow) -> None:
        store = self._store
        if table == "actors":
            before = store.actors.get(row[0])
            merged = row if before is None else (*before[:3], *row[3:5], before[5], row[6])
            store.put(store.actors, row[0], merged)
        elif table == "parts":
            if row[:2] not in store.parts:
                store.put(store.parts, row[:2], row[2])
        elif table == "requests_answered":
            self._insert(table, store.requests, row[:2], row)
        elif table in ("entries", "events"):
            by_actor = store.entries if table == "entries" else store.events
            self._insert(table, self._of_actor(by_actor, row[0]), row[1], row)
        elif table == CHARGES:
            spent = Account(**dict(zip(Account.__struct_fields__, row[_FIRST_FILTER:], strict=True)))
            account = add_accounts((store.accounts.get(row[PARENT], Account()), spent))
            store.put(store.accounts, row[PARENT], account)
        else:
            rows = self._of_actor(store.tables[table], row[0])
            before = rows.get(row[ID])
            if before is not None:
                # The time of creation and the filter columns stay.
                row = (*row[:CREATED], before[CREATED], *row[DATA:_FIRST_FILTER], *before[_FIRST_FILTER:])
            store.put(rows, row[ID], row)

    def _insert(self, table: str, rows: Mutable, key: object, row: StoredRow) -> None:
        if key in rows:
            raise ValueError(f"the row {key} of table {table} exists")
        self._store.put(rows, key, row)

    def _of_actor(self, by_actor: Mutable, actor: str) -> Mutable:
        rows = by_actor.get(actor)
        if rows is None:
            rows = {}
            self._store.put(by_actor, actor, rows)
        return rows

    def _check_reference(self, reference: Reference) -> None:
        for actor, rows in self._store.tables["conversations"].items():
            if actor == reference.actor_id or self._file_of(actor) != self._file_of(reference.actor_id):
                continue
            for row in rows.values():
                if (row[PARENT], row[ALIAS]) == (reference.project_id, reference.alias):
                    raise external_ref_taken(actor)

    def _file_of(self, actor_id: str) -> int:
        return ids.shard_of(actor_id) % self._store.files if self._store.files > 1 else 0

    def _erase(self, erasure: Erasure) -> None:
        store = self._store
        for moved in erasure.moved:
            row = store.requests[moved.scope, moved.id]
            store.put(store.requests, row[:2], (*row[:2], erasure.actor_id, *row[3:5], moved.seal))
        for actor in (erasure.actor_id, *erasure.children):
            self._erase_rows(actor)
            for key, row in list(store.requests.items()):
                if row[2] == actor and row[0] not in erasure.kept_scopes:
                    store.remove(store.requests, key)
        for child in erasure.children:
            store.remove(store.actors, child)
        self._erase_parts(erasure.actor_id)

    def _erase_root(self, root: str) -> None:
        store = self._store
        descendants = [row[0] for row in store.actors.values() if row[2] == root and row[0] != root]
        for actor in (root, *descendants):
            self._erase_rows(actor)
            store.remove(store.actors, actor)
        for key, row in list(store.requests.items()):
            if row[2] in descendants:
                store.remove(store.requests, key)
        self._erase_parts(root)

    def _erase_rows(self, actor: str) -> None:
        by_actor: list[Mutable] = [
            *self._store.tables.values(),
            self._store.entries,
            self._store.events,
        ]
        for rows in by_actor:
            self._store.remove(rows, actor)

    def _erase_parts(self, root: str) -> None:
        store = self._store
        if not any(row[2] == root and row[0] != root for row in store.actors.values()):
            for key in [key for key in store.parts if key[0] == root]:
                store.remove(store.parts, key)


def as_bytes(stored: str | bytes) -> bytes:
    """Return a stored content as a reader gets it."""
    return stored.encode() if isinstance(stored, str) else stored


def as_read(row: StoredRow) -> StoredRow:
    """Return a row in the form of `codec.tables.READ_ROW`, with its position."""
    return (*row[:CREATED], as_bytes(row[DATA]), row[SEAL], 1)


def is_live(row: StoredRow) -> bool:
    """Return True for the row of something in progress."""
    return bool(row[LIVE])


def as_event(row: StoredRow) -> StoredRow:
    """Return an event in the form of `codec.tables.READ_EVENT`, with its position."""
    return (*row[:7], as_bytes(row[7]), row[8], 1)


def _after(found: Mapping[int, StoredRow], after: int, limit: int) -> list[StoredRow]:
    return [found[sequence] for sequence in sorted(found) if sequence > after][:limit]


def _tuples(values: Sequence[StoredValue], width: int) -> list[StoredRow]:
    return [tuple(values[start : start + width]) for start in range(0, len(values), width)]
