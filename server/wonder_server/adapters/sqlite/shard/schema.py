"""The schema of a shard: ``shards/NN.db``.

`codec.tables` describes the columns that a commit writes. Migrations add indexes, the
epochs of shards and the accounts of agents.

A released migration never changes, because data folders have applied it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.codec.tables import (
    FIRST_TABLES,
    SEALED,
    SEALED_BY_KEY,
    TABLES_OF_ACCOUNTS,
    TABLES_OF_WORKFLOWS,
)
from wonder_server.codec.usage_seals import COLUMNS, PRIME, sum_sql
from wonder_server.codec.usage_seals import FIRST_COLUMNS as _SUMS

OPEN: Final[dict[str, tuple[str, ...]]] = {"runs": ("running", "waiting"), "gates": ("pending",)}
"""Statuses of open rows, for tables where few of many rows are open. These rows have an index of their
own."""

FEW: Final[dict[str, tuple[str, ...]]] = {"turns": ("active",)}
"""Statuses that few of an actor's rows have, by table. Queries find these rows by status."""

_ROWS = """
CREATE TABLE {table} (
    actor      TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    ordinal    INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    alias      TEXT    NOT NULL,
    live       INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    data       TEXT    NOT NULL,
    PRIMARY KEY (actor, id)
);
"""

_INDEXES = """
CREATE INDEX conversations_by_time ON conversations (created_ms, id);
CREATE INDEX conversations_by_reference ON conversations (alias) WHERE alias <> '';
CREATE INDEX turns_by_id ON turns (id);
CREATE INDEX turns_by_order ON turns (actor, ordinal);
CREATE INDEX turns_by_status ON turns (actor, status);
CREATE INDEX turns_by_time ON turns (created_ms, id);
CREATE INDEX messages_by_id ON messages (id);
CREATE INDEX messages_by_order ON messages (actor, ordinal);
CREATE INDEX messages_by_turn ON messages (actor, parent);
CREATE INDEX moves_by_turn ON moves (actor, parent, ordinal);
CREATE INDEX runs_by_time ON runs (created_ms, id);
CREATE INDEX executions_by_order ON executions (actor, ordinal);
CREATE INDEX operations_live ON operations (actor) WHERE live = 1;
"""

_REST = """
CREATE TABLE actors (
    id         TEXT PRIMARY KEY,
    kind       TEXT    NOT NULL,
    root       TEXT    NOT NULL,
    entry_head INTEGER NOT NULL,
    event_head INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE identity (
    shard  INTEGER NOT NULL,
    shards INTEGER NOT NULL
);

CREATE TABLE entries (
    actor     TEXT    NOT NULL,
    sequence  INTEGER NOT NULL,
    at_ms     INTEGER NOT NULL,
    input     TEXT    NOT NULL,
    decisions TEXT    NOT NULL,
    PRIMARY KEY (actor, sequence)
) WITHOUT ROWID;

CREATE TABLE events (
    actor    TEXT    NOT NULL,
    sequence INTEGER NOT NULL,
    at_ms    INTEGER NOT NULL,
    name     TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    turn_id  TEXT    NOT NULL,
    message_id TEXT  NOT NULL,
    data     TEXT    NOT NULL,
    PRIMARY KEY (actor, sequence)
) WITHOUT ROWID;

CREATE INDEX events_by_time ON events (at_ms, actor, sequence);

CREATE TABLE requests_answered (
    scope       TEXT NOT NULL,
    id          TEXT NOT NULL,
    actor       TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    answer      TEXT NOT NULL,
    PRIMARY KEY (scope, id)
) WITHOUT ROWID;

CREATE TABLE parts (
    root TEXT NOT NULL,
    hash TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (root, hash)
) WITHOUT ROWID;
"""

_OF_SCOPE = """coalesce(
    json_extract(data, '$.scope.{field}'),
    (SELECT json_extract(parts.data, '$.{field}') FROM actors JOIN parts ON parts.root = actors.root
     WHERE actors.id = runs.actor AND parts.hash = json_extract(runs.data, '$.scope."$"')),
    '')"""
"""SQL for a field of a run's scope. A large scope is stored as a part."""

_UNFINISHED = r"""
UPDATE executions
SET id = was.id,
    data = json_set(executions.data, '$.id', was.id, '$.token_id', 't',
        '$.input', json_extract(was.data, '$.input'))
FROM operations AS was
WHERE was.actor = executions.actor AND json_extract(was.data, '$.execution_id') = executions.id;

UPDATE tokens
SET id = 't',
    data = json_set(data, '$.id', 't', '$.hops',
        coalesce((SELECT max(ordinal) FROM executions WHERE actor = tokens.actor), 1))
WHERE live = 1;

UPDATE operations
SET parent = 't',
    data = json_object(
        'id', id,
        'run_id', actor,
        'kind', iif(json_extract(data, '$.child_run_id') = '', 'task', 'subworkflow'),
        'token_id', 't',
        'node_id', json_extract(data, '$.node_id'),
        'key', actor || '/' || json_extract(data, '$.node_id') || '/' || json_extract(data, '$.ordinal'),
        'child_id', json_extract(data, '$.child_run_id'),
        'dispatches', json_extract(data, '$.dispatches'),
        'repeatable', json(iif(json_extract(data, '$.repeatable'), 'true', 'false')),
        'deadline_ms', json_extract(data, '$.wake_ms'),
        'created_ms', created_ms)
WHERE actor LIKE 'run\_%' ESCAPE '\';
"""
"""Convert the outbox of unfinished runs, which had one token each, to today's form: the token is the root,
and an operation has the id of the node execution that it executes."""

_WORKFLOWS = f"""
ALTER TABLE runs ADD COLUMN project_id TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN workflow_id TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN workflow_ref TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN parent_actor TEXT NOT NULL DEFAULT '';

UPDATE runs SET
    project_id = {_OF_SCOPE.format(field="project_id")},
    workflow_id = coalesce(json_extract(data, '$.workflow_id'), ''),
    workflow_ref = coalesce(json_extract(data, '$.workflow_ref'), ''),
    parent_actor = coalesce(json_extract(data, '$.parent.actor_id'), '');

{_UNFINISHED}
CREATE INDEX runs_by_project ON runs (project_id, created_ms, id);
CREATE INDEX runs_by_workflow ON runs (workflow_id, created_ms, id);
CREATE INDEX runs_by_conversation ON runs (parent, created_ms, id) WHERE parent <> '';
CREATE INDEX runs_by_parent ON runs (parent_actor, created_ms, id) WHERE parent_actor <> '';
CREATE INDEX runs_open ON runs (created_ms, id) WHERE status IN ('running', 'waiting');
CREATE INDEX gates_by_id ON gates (id);
CREATE INDEX gates_by_time ON gates (created_ms, id);
CREATE INDEX gates_open ON gates (created_ms, id) WHERE status IN ('pending');
"""


def _rows(tables: tuple[str, ...]) -> str:
    return "".join(_ROWS.format(table=table) for table in tables)


_LIFECYCLE = """
ALTER TABLE conversations ADD COLUMN called_by TEXT NOT NULL DEFAULT '';
UPDATE conversations SET called_by = coalesce(json_extract(data, '$.called_by'), '');
CREATE INDEX conversations_by_caller ON conversations (called_by) WHERE called_by <> '';
CREATE INDEX conversations_by_expiry ON conversations (ordinal, id);
CREATE INDEX actors_by_root ON actors (root) WHERE root <> id;
CREATE INDEX requests_by_actor ON requests_answered (actor);
"""
"""Columns and indexes for expiring, archiving and deleting conversations. A conversation's ordinal is its
expiry time."""

_LISTED_EVENTS = """
DROP INDEX events_by_time;
CREATE INDEX events_by_time ON events (at_ms, actor, sequence) WHERE substr(actor, 1, 5) = 'conv_';
"""
"""Only events of conversations are listed across actors. Runs have many more events."""

_ACCOUNTS = f"""
CREATE TABLE accounts (
    agent TEXT PRIMARY KEY,
    {", ".join(f"{name} INTEGER NOT NULL" for name in _SUMS)}
) WITHOUT ROWID;

{"".join(f"ALTER TABLE charges ADD COLUMN {name} INTEGER NOT NULL DEFAULT 0;" for name in _SUMS)}

CREATE TRIGGER charges_add_up BEFORE INSERT ON charges BEGIN
    INSERT INTO accounts (agent, {", ".join(_SUMS)})
    VALUES (NEW.parent, {", ".join(f"NEW.{name}" for name in _SUMS)})
    ON CONFLICT (agent) DO UPDATE SET {", ".join(f"{name} = {name} + excluded.{name}" for name in _SUMS)};
    SELECT RAISE(IGNORE);
END;
"""
"""Usage of agents in this shard. A trigger adds a charge to its account in the commit that contains the
charged work, and discards the row. So an account needs no lock and no writer of its own, is exact after a
crash, and outlives the conversations."""

_COMPACT_RUNS = """
ALTER TABLE actors ADD COLUMN brief INTEGER NOT NULL DEFAULT 0;
"""
"""The column is 1 for a compact run, which is stored as its journal and one row; see `compact_runs`."""

_APPENDED = """
ALTER TABLE entries RENAME TO entries_before;
CREATE TABLE entries (
    actor     TEXT    NOT NULL,
    sequence  INTEGER NOT NULL,
    at_ms     INTEGER NOT NULL,
    input     TEXT    NOT NULL,
    decisions TEXT    NOT NULL,
    PRIMARY KEY (actor, sequence)
);
INSERT INTO entries SELECT * FROM entries_before;
DROP TABLE entries_before;

ALTER TABLE parts RENAME TO parts_before;
CREATE TABLE parts (
    root TEXT NOT NULL,
    hash TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (root, hash)
);
INSERT INTO parts SELECT * FROM parts_before;
DROP TABLE parts_before;

DROP INDEX events_by_time;
ALTER TABLE events RENAME TO events_before;
CREATE TABLE events (
    actor    TEXT    NOT NULL,
    sequence INTEGER NOT NULL,
    at_ms    INTEGER NOT NULL,
    name     TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    turn_id  TEXT    NOT NULL,
    message_id TEXT  NOT NULL,
    data     TEXT    NOT NULL,
    PRIMARY KEY (actor, sequence)
);
INSERT INTO events SELECT * FROM events_before;
DROP TABLE events_before;
CREATE INDEX events_by_time ON events (at_ms, actor, sequence) WHERE substr(actor, 1, 5) = 'conv_';
"""
"""Journals, events and parts are stored in the order of their commits, so the commits of many actors fill the
same few pages. In key order each row changed a page of its own, and rows above a quarter of a page had
overflow pages. The change halved the cost of SQLite per turn."""

_SEALS = f"""
{"".join(f"ALTER TABLE {table} ADD COLUMN seal INTEGER;" for table in (*SEALED, *SEALED_BY_KEY))}
CREATE TABLE unsealed (name TEXT PRIMARY KEY, upto INTEGER NOT NULL) WITHOUT ROWID;
{"".join(f"INSERT INTO unsealed SELECT '{table}', coalesce(max(rowid), 0) FROM {table};" for table in SEALED)}
{
    "".join(
        f"INSERT INTO unsealed SELECT '{table}', EXISTS (SELECT 1 FROM {table});" for table in SEALED_BY_KEY
    )
}
"""


def _sealing_trigger(sums: Sequence[str]) -> str:
    """Return the trigger that adds a charge to the sums of its account and to its seal."""
    more = sum_sql("NEW.", sums)
    return f"""
DROP TRIGGER charges_add_up;
CREATE TRIGGER charges_add_up BEFORE INSERT ON charges BEGIN
    INSERT INTO accounts (agent, {", ".join(sums)}, seal)
    VALUES (NEW.parent, {", ".join(f"NEW.{name}" for name in sums)}, (NEW.seal + {more}) % {PRIME})
    ON CONFLICT (agent) DO UPDATE SET
        {", ".join(f"{name} = {name} + excluded.{name}" for name in sums)},
        seal = (seal + {more}) % {PRIME};
    SELECT RAISE(IGNORE);
END;
"""


_SEALED_ACCOUNTS = f"""
ALTER TABLE accounts ADD COLUMN seal INTEGER;
UPDATE accounts SET seal = (seal_of('accounts', agent) + {sum_sql("", _SUMS)}) % {PRIME};
ALTER TABLE charges ADD COLUMN seal INTEGER;
{_sealing_trigger(_SUMS)}
"""
"""A charge is added to the seal of its account together with the sums. No seal is computed from stored sums,
so a damaged account stays recognizable after the next charge."""

_ROOT_RUNS = """
CREATE INDEX runs_root ON runs (created_ms, id) WHERE parent_actor = '';
CREATE INDEX runs_root_by_project ON runs (project_id, created_ms, id) WHERE parent_actor = '';
"""
"""Runs without a parent, which lists show unless a client asks for others. Each turn starts two runs, so a
list of 48,000 runs read them all to find none without a parent: 36 ms."""

_EPOCHS = """
ALTER TABLE entries ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
CREATE TABLE epochs (
    shard INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL
);
"""
"""The epoch of each shard in this file, and of each journal entry the epoch under which it was written.
Entries of earlier versions have epoch 0."""


_PACKED = "SELECT 1;"
"""Changes nothing. Values may be packed from here on (see `codec.packing`), and the entries of a
commit are one row of the journal (see `codec.journal_rows`). Versions that cannot read them refuse the
store."""

_REFERRING = "SELECT 1;"
"""Changes nothing. Values may refer to messages from here on (see `codec.message_texts`). Versions that
cannot resolve the references refuse the store."""

_ARCHIVE_OBJECTS = """
CREATE TABLE archive_objects (
    key           TEXT    NOT NULL,
    epoch         INTEGER NOT NULL,
    conversation  TEXT    NOT NULL,
    archived_ms   INTEGER NOT NULL,
    registered_ms INTEGER NOT NULL,
    seal          INTEGER NOT NULL,
    PRIMARY KEY (key, epoch)
) WITHOUT ROWID;
"""
"""Objects that archiving is about to write (see `archive_objects`). An object without a conversation that
names it is found here."""

_ITEMIZED = f"""
{
    "".join(
        f"ALTER TABLE {table} ADD COLUMN {name} INTEGER NOT NULL DEFAULT 0;"
        for table in ("accounts", "charges")
        for name in COLUMNS[len(_SUMS) :]
    )
}
{_sealing_trigger(COLUMNS)}
"""
"""Sums of cached and reasoning tokens. Those of older usage are 0, which changes no seal. Code of this
version names all columns, so earlier versions, which would leave the new ones out, refuse the store."""

_LARGE_VALUES = "SELECT 1;"
"""Changes nothing. Large rows and events may have parts from here on in tables without them (see
`codec.interning`). Versions that cannot resolve them refuse the store."""

MIGRATIONS: tuple[tuple[str, str], ...] = (
    ("0001_shard", _rows(FIRST_TABLES) + _INDEXES + _REST),
    ("0002_workflows", _rows(TABLES_OF_WORKFLOWS) + _WORKFLOWS),
    ("0003_rooms", _LIFECYCLE),
    ("0004_listed_events", _LISTED_EVENTS),
    ("0005_accounts", _rows(TABLES_OF_ACCOUNTS) + _ACCOUNTS),
    ("0006_brief", _COMPACT_RUNS),
    ("0007_appended", _APPENDED),
    ("0008_seals", _SEALS),
    ("0009_sealed_accounts", _SEALED_ACCOUNTS),
    ("0010_root_runs", _ROOT_RUNS),
    ("0011_epochs", _EPOCHS),
    ("0012_packed", _PACKED),
    ("0013_message_references", _REFERRING),
    ("0014_archive_objects", _ARCHIVE_OBJECTS),
    ("0015_itemized_accounts", _ITEMIZED),
    ("0016_large_values", _LARGE_VALUES),
)
