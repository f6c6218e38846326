"""The schema of catalog.db, as migrations. A released migration never changes."""

from __future__ import annotations

from typing import Final

MIGRATIONS: Final = (
    (
        "0001 catalog",
        """
        CREATE TABLE libraries (
            id      TEXT PRIMARY KEY,
            name    TEXT NOT NULL UNIQUE,
            version INTEGER NOT NULL,
            body    TEXT NOT NULL
        ) WITHOUT ROWID;

        -- One row per definition: its newest revision, and the columns that lists filter by.
        CREATE TABLE definitions (
            id         TEXT PRIMARY KEY,
            library_id TEXT NOT NULL REFERENCES libraries (id),
            library    TEXT NOT NULL,
            name       TEXT NOT NULL,
            kind       TEXT NOT NULL,
            labels     TEXT NOT NULL,
            version    INTEGER NOT NULL,
            UNIQUE (library_id, name)
        ) WITHOUT ROWID;
        CREATE UNIQUE INDEX definitions_by_name ON definitions (library, name);

        -- Rows are written once and never updated.
        CREATE TABLE revisions (
            definition_id TEXT NOT NULL REFERENCES definitions (id) ON DELETE CASCADE,
            revision      INTEGER NOT NULL,
            body          TEXT NOT NULL,
            PRIMARY KEY (definition_id, revision)
        ) WITHOUT ROWID;
        CREATE TRIGGER revisions_never_change BEFORE UPDATE ON revisions
            BEGIN SELECT RAISE(ABORT, 'a revision never changes'); END;

        CREATE TABLE agents (
            id      TEXT PRIMARY KEY,
            name    TEXT NOT NULL UNIQUE,
            version INTEGER NOT NULL,
            body    TEXT NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE agent_projects (
            project_id TEXT NOT NULL REFERENCES projects (id),
            agent_id   TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
            PRIMARY KEY (project_id, agent_id)
        ) WITHOUT ROWID;
        CREATE INDEX agent_projects_by_agent ON agent_projects (agent_id);

        CREATE TABLE projects (
            id      TEXT PRIMARY KEY,
            name    TEXT NOT NULL UNIQUE,
            version INTEGER NOT NULL,
            body    TEXT NOT NULL
        ) WITHOUT ROWID;

        CREATE TABLE answers (
            request_id  TEXT PRIMARY KEY,
            fingerprint TEXT NOT NULL,
            result      TEXT NOT NULL,
            created_ms  INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE INDEX answers_by_age ON answers (created_ms);
        """,
    ),
    (
        "0002 seals",
        """
        -- See seals.py: checksums of rows, and the tables that have rows older than checksums.
        ALTER TABLE libraries ADD COLUMN seal INTEGER;
        ALTER TABLE revisions ADD COLUMN seal INTEGER;
        ALTER TABLE agents    ADD COLUMN seal INTEGER;
        ALTER TABLE projects  ADD COLUMN seal INTEGER;
        ALTER TABLE answers   ADD COLUMN seal INTEGER;
        CREATE TABLE unsealed (name TEXT PRIMARY KEY, upto INTEGER NOT NULL) WITHOUT ROWID;
        INSERT INTO unsealed VALUES
            ('libraries', EXISTS (SELECT 1 FROM libraries)),
            ('revisions', EXISTS (SELECT 1 FROM revisions)),
            ('agents', EXISTS (SELECT 1 FROM agents)),
            ('projects', EXISTS (SELECT 1 FROM projects)),
            ('answers', EXISTS (SELECT 1 FROM answers));
        """,
    ),
    (
        "0003 files",
        """
        CREATE TABLE files (
            id         TEXT PRIMARY KEY,
            project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
            name       TEXT NOT NULL,
            version    INTEGER NOT NULL,
            body       TEXT NOT NULL,
            seal       INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE INDEX files_by_project ON files (project_id, id);

        -- The objects that hold a file's content.
        CREATE TABLE file_objects (
            key     TEXT NOT NULL,
            file_id TEXT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
            PRIMARY KEY (key, file_id)
        ) WITHOUT ROWID;
        CREATE INDEX file_objects_by_file ON file_objects (file_id);

        -- Objects that are about to be written, or that a deleted file had. Some may have a file again.
        CREATE TABLE loose_file_objects (
            key        TEXT PRIMARY KEY,
            project_id TEXT NOT NULL
        ) WITHOUT ROWID;
        """,
    ),
    (
        "0004 tenancy",
        """
        -- ``name`` is what must be unique: a tenant's name, a principal with its tenant and kind, a binding.
        CREATE TABLE tenants (
            id      TEXT PRIMARY KEY,
            name    TEXT NOT NULL UNIQUE,
            version INTEGER NOT NULL,
            body    TEXT NOT NULL,
            seal    INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE principals (
            id       TEXT PRIMARY KEY,
            name     TEXT NOT NULL UNIQUE,
            version  INTEGER NOT NULL,
            external TEXT NOT NULL,
            body     TEXT NOT NULL,
            seal     INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE UNIQUE INDEX principals_by_external ON principals (external) WHERE external <> '';
        CREATE TABLE api_keys (
            id      TEXT PRIMARY KEY,
            name    TEXT NOT NULL UNIQUE,
            version INTEGER NOT NULL,
            body    TEXT NOT NULL,
            seal    INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE role_bindings (
            id      TEXT PRIMARY KEY,
            name    TEXT NOT NULL UNIQUE,
            version INTEGER NOT NULL,
            body    TEXT NOT NULL,
            seal    INTEGER NOT NULL
        ) WITHOUT ROWID;

        -- The last use of each key, to the minute. It is no part of the key's version.
        CREATE TABLE key_uses (
            key_id  TEXT PRIMARY KEY REFERENCES api_keys (id) ON DELETE CASCADE,
            used_ms INTEGER NOT NULL
        ) WITHOUT ROWID;

        -- Rows are written once and never updated. Ids sort by time.
        CREATE TABLE audit (
            id        TEXT PRIMARY KEY,
            at_ms     INTEGER NOT NULL,
            tenant    TEXT NOT NULL,
            principal TEXT NOT NULL,
            method    TEXT NOT NULL,
            resource  TEXT NOT NULL,
            project   TEXT NOT NULL,
            outcome   TEXT NOT NULL,
            body      TEXT NOT NULL,
            seal      INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE INDEX audit_by_resource ON audit (resource, id) WHERE resource <> '';
        CREATE INDEX audit_by_principal ON audit (principal, id);
        CREATE TRIGGER audit_never_changes BEFORE UPDATE ON audit
            BEGIN SELECT RAISE(ABORT, 'an audit entry never changes'); END;
        """,
    ),
    (
        "0005 removed projects",
        """
        -- Deleted projects of which documents or repositories may be left.
        CREATE TABLE removed_projects (id TEXT PRIMARY KEY) WITHOUT ROWID;
        """,
    ),
)
