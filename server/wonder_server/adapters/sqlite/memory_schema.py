"""The schema of memory.db, as migrations. A migration that has been released never changes."""

from __future__ import annotations

from typing import Final

MIGRATIONS: Final = (
    (
        "0001 memories",
        """
        CREATE TABLE memories (
            key             INTEGER PRIMARY KEY AUTOINCREMENT,
            id              TEXT NOT NULL UNIQUE,
            agent_id        TEXT NOT NULL,
            type            TEXT NOT NULL,
            content         TEXT NOT NULL,
            significance    REAL NOT NULL,
            metadata        TEXT NOT NULL,
            conversation_id TEXT NOT NULL,
            turn_id         TEXT NOT NULL,
            move_id         TEXT NOT NULL,
            run_id          TEXT NOT NULL,
            idempotency_key TEXT,
            fingerprint     BLOB NOT NULL,
            created_ms      INTEGER NOT NULL,
            updated_ms      INTEGER NOT NULL,
            version         INTEGER NOT NULL
        );
        CREATE INDEX memories_by_agent ON memories (agent_id, id);
        CREATE INDEX memories_by_type ON memories (agent_id, type, id);
        CREATE INDEX memories_by_fingerprint ON memories (agent_id, fingerprint);
        CREATE UNIQUE INDEX memories_by_request ON memories (agent_id, idempotency_key)
            WHERE idempotency_key IS NOT NULL;

        -- One row per vector, not per memory: long texts will have several. AUTOINCREMENT, because a
        -- key must never come back with another vector.
        CREATE TABLE embeddings (
            key        INTEGER PRIMARY KEY AUTOINCREMENT,
            memory_key INTEGER NOT NULL REFERENCES memories (key) ON DELETE CASCADE,
            agent_id   TEXT NOT NULL,
            embedder   TEXT NOT NULL,
            vector     BLOB NOT NULL
        );
        CREATE INDEX embeddings_by_agent ON embeddings (agent_id, embedder, key);
        CREATE INDEX embeddings_by_memory ON embeddings (memory_key);

        -- How many memories an agent has; the row of the empty id counts all. Ranking needs both.
        CREATE TABLE counts (agent_id TEXT PRIMARY KEY, memories INTEGER NOT NULL) WITHOUT ROWID;
        INSERT INTO counts VALUES ('', 0);

        -- See memory_text.py for what goes in. No triggers keep it in step: with trusted_schema=OFF
        -- they may not touch a virtual table. memories.py does, in the same transaction.
        CREATE VIRTUAL TABLE memories_text USING fts5 (
            words, content='', tokenize='porter unicode61 remove_diacritics 2'
        );
        """,
    ),
)
