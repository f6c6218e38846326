"""The schema of a shard: ``shards/NN.db``.

Every table of rows has the same columns, so that one statement writes them all: who it belongs to, what it
hangs on (``parent``), what else it is called (``alias``), where it stands (``ordinal``, ``created_ms``),
and the value itself as JSON.
"""

from __future__ import annotations

ROW_TABLES = (
    "conversations",
    "turns",
    "messages",
    "moves",
    "works",
    "requests",
    "operations",
    "runs",
    "tokens",
    "executions",
    "context",
)

FOLDED_TABLES = frozenset({"works", "requests", "operations", "runs", "executions", "context"})
"""Tables whose large pieces are stored as parts (see `codec`)."""

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

MIGRATIONS: tuple[tuple[str, str], ...] = (
    (
        "0001_shard",
        "".join(_ROWS.format(table=table) for table in ROW_TABLES) + _INDEXES + _REST,
    ),
)
