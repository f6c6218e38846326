"""Writing commits into a shard with few statements.

SQLite releases the interpreter lock for each statement, and a busy event loop takes long to return it. So the
commits of one write are first collected by table, with only the last change of each row. Then each statement
writes many rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from wonder_server.adapters.sqlite.codec.interning import Interner, InternSession, encode
from wonder_server.adapters.sqlite.codec.stored_names import stored_event
from wonder_server.adapters.sqlite.connection import Row, SqlValue
from wonder_server.adapters.sqlite.seals import seal
from wonder_server.adapters.sqlite.shard.deletion import delete_record, delete_root
from wonder_server.adapters.sqlite.shard.schema import COLUMNS, INTERNED_TABLES, ROW_TABLES, SHARED
from wonder_server.adapters.sqlite.shard.usage_seals import initial_seal
from wonder_server.core.actor.changes import Change, Delete, Erase, Put, field_at
from wonder_server.core.budget import CHARGES
from wonder_server.ports.journal import Commit

Pin = tuple[str, str]
"""A root, and the hash of a part or pinned definition stored for it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Statement:
    """An INSERT or DELETE over rows of ``width`` values each."""

    head: str
    width: int
    tail: str = ""
    deletes: bool = False

    def of(self, count: int) -> str:
        """Return the SQL for ``count`` rows."""
        if self.deletes:
            return self.head + " OR ".join(["(actor = ? AND id = ?)"] * count)
        row = f"({', '.join('?' * self.width)})"
        return f"{self.head} VALUES {', '.join([row] * count)} {self.tail}"


_COLUMNS: Final = (
    "actor",
    "id",
    "parent",
    "ordinal",
    "status",
    "alias",
    "live",
    "created_ms",
    "data",
    "seal",
)
_PUT: Final = {
    table: _Statement(
        f"INSERT INTO {table} ({', '.join((*_COLUMNS, *COLUMNS.get(table, {}).values()))})",
        len(_COLUMNS) + len(COLUMNS.get(table, {})),
        "ON CONFLICT (actor, id) DO UPDATE SET parent = excluded.parent, ordinal = excluded.ordinal,"
        " status = excluded.status, alias = excluded.alias, live = excluded.live, data = excluded.data,"
        " seal = excluded.seal",
    )
    for table in ROW_TABLES
    if table != CHARGES
} | {
    CHARGES: _Statement(
        f"INSERT INTO {CHARGES} ({', '.join((*_COLUMNS, *COLUMNS[CHARGES].values()))})",
        len(_COLUMNS) + len(COLUMNS[CHARGES]),
    )
}
_DELETE: Final = {table: _Statement(f"DELETE FROM {table} WHERE ", 2, deletes=True) for table in ROW_TABLES}
_ACTOR: Final = _Statement(
    "INSERT INTO actors (id, kind, root, entry_head, event_head, brief, seal)",
    7,
    "ON CONFLICT (id) DO UPDATE SET entry_head = excluded.entry_head, event_head = excluded.event_head,"
    " seal = excluded.seal",
)
_ENTRY: Final = _Statement("INSERT INTO entries (actor, sequence, at_ms, input, decisions, seal)", 6)
_EVENT: Final = _Statement(
    "INSERT INTO events (actor, sequence, at_ms, name, kind, turn_id, message_id, data, seal)", 9
)
_REQUEST: Final = _Statement("INSERT INTO requests_answered (scope, id, actor, fingerprint, answer, seal)", 6)
_PART: Final = _Statement("INSERT OR IGNORE INTO parts (root, hash, data)", 3)

_SIZES: Final = (256, 128, 64, *range(56, 31, -8), *range(28, 15, -4), *range(14, 7, -2), *range(7, 0, -1))
"""Rows per statement. The sizes are few, so that prepared statements (about 1 KiB a row) are reused. They are
enough that any number of rows needs few statements: after each, this thread waits for the interpreter
lock."""


class Writes:
    """The rows that several commits write to a shard: `add` each commit, then `execute`."""

    def __init__(self, interner: Interner) -> None:
        self._interner = interner
        self._sessions: dict[str, InternSession] = {}
        self._actors: dict[str, Row] = {}
        self._changes: dict[tuple[str, str, str], tuple[Change, InternSession]] = {}
        self._values: dict[_Statement, list[SqlValue]] = {_ENTRY: [], _EVENT: [], _REQUEST: []}
        """The values of all rows of a statement, concatenated."""
        self._erased: list[tuple[str, Erase]] = []

    @property
    def erases(self) -> bool:
        """Return True if a commit removes a record."""
        return bool(self._erased)

    def add(self, commit: Commit) -> None:
        """Add a commit. Its changes replace earlier changes of the same rows."""
        actor, root = commit.actor_id, commit.root or commit.actor_id
        changes = commit.changes
        erase = next((change for change in changes if isinstance(change, Erase)), None)
        if erase is not None:
            self._erased.append((actor, erase))
            changes = changes[changes.index(erase) + 1 :]
            if erase.whole:
                self._add_requests(commit)
                return
        session = self._sessions.get(root)
        if session is None:
            session = self._sessions[root] = self._interner.session()
        heads = commit.entry_head, commit.event_head
        self._actors[actor] = (
            *(actor, commit.planner.kind, root, *heads, commit.compact),
            seal(("actors", actor, *heads), b""),
        )
        found = self._changes
        for change in changes:
            row = change.table, actor, change.id
            if isinstance(change, Delete) and row in found and _is_insert(found[row][0]):
                del found[row]
            else:
                found[row] = (change, session)
        values = self._values[_ENTRY]
        for entry in commit.entries:
            data, decided = session.tagged(entry.input), session.all_tagged(entry.decisions)
            step = actor, entry.sequence, entry.at_ms
            values += (*step, data, decided, seal(("entries", *step), f"{data}\n{decided}".encode()))
        values = self._values[_EVENT]
        text = session.text if commit.planner.kind == "run" else session.plain_text
        for event in commit.events:
            emit = event.emit
            data = text(emit.value)
            name, kind = stored_event(commit.planner.kind, emit.name)
            key = actor, event.sequence, event.at_ms, name, kind, emit.turn_id, emit.message_id
            values += (*key, data, seal(("events", *key), data.encode()))
        self._add_requests(commit)

    def _add_requests(self, commit: Commit) -> None:
        values = self._values[_REQUEST]
        for request, answer in commit.requests:
            data = encode(answer)
            key = request.scope, request.id, commit.actor_id, request.fingerprint
            values += (*key, data.decode(), seal(("requests_answered", *key), data))

    def execute(self, connection: sqlite3.Connection, stored: Collection[Pin]) -> list[Pin]:
        """Write all rows except parts in ``stored``. Return the pins that were not in ``stored``."""
        for actor, erase in self._erased:
            delete_record(connection, actor, erase.children)
        actors = [value for row in self._actors.values() for value in row]
        rows: dict[_Statement, list[SqlValue]] = {_ACTOR: actors, **self._values}
        for (table, actor, row_id), (change, session) in self._changes.items():
            if isinstance(change, Delete):
                rows.setdefault(_DELETE[table], []).extend((actor, row_id))
            elif isinstance(change, Put):
                text = session.text if table in INTERNED_TABLES else session.plain_text
                values = rows.setdefault(_PUT[table], [])
                key = (
                    actor,
                    row_id,
                    change.parent,
                    change.ordinal,
                    change.status,
                    change.alias,
                    int(change.live),
                )
                data = text(change.value)
                found = (
                    initial_seal(change.parent) if table == CHARGES else seal((table, *key), data.encode())
                )
                values += (*key, change.created_ms, data, found)
                if table in COLUMNS:
                    values += [field_at(change.value, path) for path in COLUMNS[table]]
        rows[_PART], pins = self._parts(stored)
        for statement, values in rows.items():
            _execute(connection, statement, values)
        for actor, erase in self._erased:
            if erase.whole:
                delete_root(connection, actor)
        return pins

    def _parts(self, stored: Collection[Pin]) -> tuple[list[SqlValue], list[Pin]]:
        """Return the values of parts that are not in ``stored``, and the pins to add to it."""
        found: dict[Pin, bytes] = {}
        pins: list[Pin] = []
        for root, session in self._sessions.items():
            for digest, data in session.parts.items():
                if (root, digest) not in stored:
                    found[root, digest] = data
            owner = SHARED if root.startswith("run_") else root
            for digest, parts in session.pins.items():
                if (owner, digest) not in stored:
                    pins.append((owner, digest))
                    found.update(((owner, part), data) for part, data in parts.items())
        values: list[SqlValue] = [text for pin, data in found.items() for text in (*pin, data.decode())]
        return values, [*pins, *found]


def _is_insert(change: Change) -> bool:
    return isinstance(change, Put) and change.fresh


def _execute(connection: sqlite3.Connection, statement: _Statement, values: list[SqlValue]) -> None:
    start, rows = 0, len(values) // statement.width
    for size in _SIZES:
        while rows >= size:
            end = start + size * statement.width
            connection.execute(_statement(statement, size), values[start:end])
            start, rows = end, rows - size


@lru_cache(maxsize=512)
def _statement(statement: _Statement, rows: int) -> str:
    return statement.of(rows)
