"""The schema of memory.db, as migrations. A released migration never changes."""

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

        -- One row per vector: a long text has several. AUTOINCREMENT, because a deleted key must never be
        -- used again for another vector.
        CREATE TABLE embeddings (
            key        INTEGER PRIMARY KEY AUTOINCREMENT,
            memory_key INTEGER NOT NULL REFERENCES memories (key) ON DELETE CASCADE,
            agent_id   TEXT NOT NULL,
            embedder   TEXT NOT NULL,
            vector     BLOB NOT NULL
        );
        CREATE INDEX embeddings_by_agent ON embeddings (agent_id, embedder, key);
        CREATE INDEX embeddings_by_memory ON embeddings (memory_key);

        -- The number of memories of an agent; the row with the empty id counts all. Ranking needs both.
        CREATE TABLE counts (agent_id TEXT PRIMARY KEY, memories INTEGER NOT NULL) WITHOUT ROWID;
        INSERT INTO counts VALUES ('', 0);

        -- tokenizer.py defines the content. With trusted_schema=OFF, triggers may not change a virtual
        -- table, so text_index.py updates the index, in the transaction that changes the memory.
        CREATE VIRTUAL TABLE memories_text USING fts5 (
            words, content='', tokenize='porter unicode61 remove_diacritics 2'
        );
        """,
    ),
    (
        "0002 overflow, links, order, fields",
        """
        -- The object key of a content that is too long for a row; `content` is then ''.
        ALTER TABLE memories ADD COLUMN content_ref TEXT;
        ALTER TABLE memories ADD COLUMN size_bytes INTEGER NOT NULL DEFAULT 0;
        UPDATE memories SET size_bytes = length(CAST(content AS BLOB));
        CREATE INDEX memories_by_object ON memories (content_ref) WHERE content_ref IS NOT NULL;

        -- The speaker, and the position of the text in its conversation (from 1; 0: unknown).
        ALTER TABLE memories ADD COLUMN speaker TEXT NOT NULL DEFAULT '';
        ALTER TABLE memories ADD COLUMN ordinal INTEGER NOT NULL DEFAULT 0;
        CREATE INDEX memories_by_place ON memories (agent_id, conversation_id, ordinal)
            WHERE conversation_id != '';
        CREATE INDEX memories_by_turn ON memories (agent_id, turn_id) WHERE turn_id != '';
        CREATE INDEX memories_by_time ON memories (agent_id, created_ms);

        ALTER TABLE memories ADD COLUMN supersedes_id TEXT NOT NULL DEFAULT '';
        ALTER TABLE memories ADD COLUMN superseded_by_id TEXT NOT NULL DEFAULT '';
        ALTER TABLE memories ADD COLUMN archived_ms INTEGER NOT NULL DEFAULT 0;

        CREATE INDEX memories_set_aside ON memories (agent_id)
            WHERE superseded_by_id != '' OR archived_ms != 0;

        -- Pairs of memories that contradict each other. Each pair has two rows, one in each direction.
        CREATE TABLE contradictions (
            memory_key INTEGER NOT NULL REFERENCES memories (key) ON DELETE CASCADE,
            other_key  INTEGER NOT NULL REFERENCES memories (key) ON DELETE CASCADE,
            PRIMARY KEY (memory_key, other_key)
        ) WITHOUT ROWID;
        CREATE INDEX contradictions_by_other ON contradictions (other_key);

        -- The position of a vector among those of its memory: a long text has one per passage.
        ALTER TABLE embeddings ADD COLUMN passage INTEGER NOT NULL DEFAULT 0;

        -- Metadata terms for filters, one row for each value (metadata_index.py).
        CREATE TABLE fields (
            mark       INTEGER NOT NULL,
            memory_key INTEGER NOT NULL,
            PRIMARY KEY (mark, memory_key)
        ) WITHOUT ROWID;

        -- See text_index.py: the indexed text of the neighbouring memories, and the words of a content that
        -- is an object (compressed). Removing a memory from the index needs the same text again.
        ALTER TABLE memories ADD COLUMN around TEXT NOT NULL DEFAULT '';
        CREATE TABLE overflow_words (
            memory_key INTEGER PRIMARY KEY REFERENCES memories (key) ON DELETE CASCADE,
            words      BLOB NOT NULL
        );
        DROP TABLE memories_text;
        CREATE VIRTUAL TABLE memories_text USING fts5 (
            words, around, content='', tokenize='porter unicode61 remove_diacritics 2'
        );
        -- The format of the derived tables (memories_text, fields). Opening the store rebuilds a table whose
        -- format is not the current one.
        CREATE TABLE formats (name TEXT PRIMARY KEY, format INTEGER NOT NULL) WITHOUT ROWID;

        -- Objects that may have no memory: recorded before an object is written and when its memory is
        -- deleted; removed when a memory refers to the object, or when the object is deleted.
        CREATE TABLE loose_objects (key TEXT PRIMARY KEY) WITHOUT ROWID;

        -- Changes with a request_id and their result: a memory's id, or '' for a deletion.
        CREATE TABLE requests (
            agent_id    TEXT NOT NULL,
            request_id  TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            memory_id   TEXT NOT NULL,
            created_ms  INTEGER NOT NULL,
            PRIMARY KEY (agent_id, request_id)
        ) WITHOUT ROWID;
        CREATE INDEX requests_by_time ON requests (created_ms);

        -- Deleted agents: nothing is written for them any more. Until is_sure is 1, the catalog decides
        -- whether the agent exists.
        CREATE TABLE deleted_agents (agent_id TEXT PRIMARY KEY, is_sure INTEGER NOT NULL) WITHOUT ROWID;
        """,
    ),
    (
        "0003 seals",
        """
        -- See seals.py: the checksum of a memory's columns, and the last key that may lack one.
        ALTER TABLE memories ADD COLUMN seal INTEGER;
        CREATE TABLE unsealed (name TEXT PRIMARY KEY, upto INTEGER NOT NULL) WITHOUT ROWID;
        INSERT INTO unsealed SELECT 'memories', coalesce(max(key), 0) FROM memories;
        """,
    ),
    (
        "0004 seals of vectors and of the index",
        """
        -- The seal of the indexed text of a memory; -1: none. Removing a memory from the index needs the
        -- same text.
        ALTER TABLE memories ADD COLUMN indexed INTEGER;
        ALTER TABLE embeddings ADD COLUMN seal INTEGER;
        INSERT INTO unsealed SELECT 'embeddings', coalesce(max(key), 0) FROM embeddings;
        """,
    ),
    (
        "0005 agents of objects",
        """
        -- The agent of an object, whose owner deletes it; '' in rows of earlier versions.
        ALTER TABLE loose_objects ADD COLUMN agent_id TEXT NOT NULL DEFAULT '';
        """,
    ),
    (
        "0006 said_ms, speaker_role",
        """
        -- The time at which a memory was said, if the writer gave one; else it is created_ms. The side of the
        -- speaker: user, agent or ''.
        ALTER TABLE memories ADD COLUMN said_ms INTEGER;
        ALTER TABLE memories ADD COLUMN speaker_role TEXT NOT NULL DEFAULT '';
        """,
    ),
    (
        "0007 subject, message_id, speaker_id",
        """
        -- The user whom a memory is about, the message that it comes from, and the user or agent who wrote
        -- that message.
        ALTER TABLE memories ADD COLUMN subject TEXT NOT NULL DEFAULT '';
        ALTER TABLE memories ADD COLUMN message_id TEXT NOT NULL DEFAULT '';
        ALTER TABLE memories ADD COLUMN speaker_id TEXT NOT NULL DEFAULT '';
        CREATE INDEX memories_by_subject ON memories (agent_id, subject, id) WHERE subject != '';
        """,
    ),
    (
        "0008 memory blocks",
        """
        -- Small texts that stand in every request of an agent; subject is the user whom one is about, or ''.
        CREATE TABLE memory_blocks (
            agent_id       TEXT NOT NULL,
            subject        TEXT NOT NULL,
            label          TEXT NOT NULL,
            description    TEXT NOT NULL,
            max_characters INTEGER NOT NULL,
            read_only      INTEGER NOT NULL,
            version        INTEGER NOT NULL,
            created_ms     INTEGER NOT NULL,
            updated_ms     INTEGER NOT NULL,
            content        TEXT NOT NULL,
            seal           INTEGER NOT NULL,
            PRIMARY KEY (agent_id, subject, label)
        ) WITHOUT ROWID;

        -- Their newest changes, each with its author and the content after it.
        CREATE TABLE memory_block_changes (
            agent_id        TEXT NOT NULL,
            subject         TEXT NOT NULL,
            label           TEXT NOT NULL,
            version         INTEGER NOT NULL,
            kind            TEXT NOT NULL,
            principal       TEXT NOT NULL,
            user_id         TEXT NOT NULL,
            conversation_id TEXT NOT NULL,
            turn_id         TEXT NOT NULL,
            move_id         TEXT NOT NULL,
            changed_ms      INTEGER NOT NULL,
            content         TEXT NOT NULL,
            seal            INTEGER NOT NULL,
            PRIMARY KEY (agent_id, subject, label, version)
        ) WITHOUT ROWID;
        """,
    ),
    (
        "0009 requests_by_id",
        """
        -- A repeated request is found before its agent is resolved. memory_id of a request that writes
        -- several memories has all ids, separated by spaces; earlier versions stored the first alone.
        CREATE INDEX requests_by_id ON requests (request_id);
        """,
    ),
)
