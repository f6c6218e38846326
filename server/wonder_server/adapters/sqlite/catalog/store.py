"""The catalog in catalog.db. Implements `wonder_server.ports.catalog.Catalog`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from wonder_server.adapters.sqlite.catalog import files
from wonder_server.adapters.sqlite.catalog.audit import put_entry
from wonder_server.adapters.sqlite.catalog.schema import MIGRATIONS
from wonder_server.adapters.sqlite.connection import Columns, Row, SqlValue, load_seals
from wonder_server.adapters.sqlite.database import Database
from wonder_server.codec.seals import Seals, seal
from wonder_server.core.definitions.parse import read_record, to_json
from wonder_server.core.definitions.references import Reference
from wonder_server.core.definitions.resources import (
    Agent,
    Definition,
    File,
    Library,
    Project,
    Resource,
)
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.idempotency import request_id_reused
from wonder_server.core.tenancy.audit import AuditEntry
from wonder_server.ports.catalog import (
    ANSWER_TTL_MS,
    Answer,
    CatalogNames,
    Change,
    DefinitionQuery,
    Put,
)

R = TypeVar("R", Library, Definition, Agent, Project, File)

Parameters: TypeAlias = Mapping[str, SqlValue] | Sequence[SqlValue]
"""Bound values of a statement, by name or by position."""

_TABLES: Final[dict[type, str]] = {
    Library: "libraries",
    Definition: "definitions",
    Agent: "agents",
    Project: "projects",
    File: "files",
}

SEALED_TABLES: Final = (
    "libraries",
    "revisions",
    "agents",
    "projects",
    "files",
    "answers",
    "tenants",
    "principals",
    "api_keys",
    "role_bindings",
    "audit",
)


def catalog_key(table: str, row: Columns) -> tuple[Row, bytes]:
    """Return the key and the content that the seal of a whole row covers."""
    if table == "answers":
        return (row["request_id"], row["fingerprint"], row["created_ms"]), str(row["result"]).encode(
            "utf-8", "surrogatepass"
        )
    match table:
        case "revisions":
            key = (row["definition_id"], row["revision"], "")
        case "audit":
            key = (row["id"], row["at_ms"], "")
        case _:
            key = (row["id"], row["name"], row["version"])
    return key, str(row["body"]).encode("utf-8", "surrogatepass")


_READ_FROM: Final[dict[type, str]] = {**_TABLES, Definition: "revisions"}

_SEALED: Final = "id, name, version, CAST(body AS BLOB), seal"
_REVISION: Final = "definition_id, revision, '', CAST(body AS BLOB), revisions.seal"
"""The columns of a resource: its key, its content as bytes, its seal."""

_LIBRARY: Final = f"SELECT {_SEALED} FROM libraries WHERE id = :key OR name = :key"
_LIBRARIES: Final = f"""
    SELECT {_SEALED} FROM libraries
    WHERE name > :after AND (:among IS NULL OR id IN (SELECT value FROM json_each(:among)))
    ORDER BY name LIMIT :limit
"""
_DEFINITION: Final = f"""
    SELECT {_REVISION} FROM definitions JOIN revisions ON definition_id = id
    WHERE (id = :id OR (:id = '' AND library = :library AND name = :name))
      AND revision = CASE WHEN :revision THEN :revision ELSE version END
"""
# A list of any length is one bound parameter, a JSON array. An empty list matches everything.
_DEFINITIONS: Final = f"""
    SELECT {_REVISION} FROM definitions JOIN revisions ON definition_id = id AND revision = version
    WHERE (library, name) > (:after_library, :after_name)
      AND :library_id IN ('', library_id)
      AND (:libraries IS NULL OR library_id IN (SELECT value FROM json_each(:libraries)))
      AND (:kinds = '[]' OR kind IN (SELECT value FROM json_each(:kinds)))
      AND NOT EXISTS (
          SELECT 1 FROM json_each(:labels) AS wanted
          WHERE NOT EXISTS (
              SELECT 1 FROM json_each(definitions.labels) AS held
              WHERE held.key = wanted.key AND held.value = wanted.value
          )
      )
    ORDER BY library, name LIMIT :limit
"""
_REVISIONS: Final = f"""
    SELECT {_REVISION} FROM revisions
    WHERE definition_id = :id AND (:before = 0 OR revision < :before)
    ORDER BY revision DESC LIMIT :limit
"""
_AGENT: Final = f"SELECT {_SEALED} FROM agents WHERE id = :key OR name = :key"
_AGENTS: Final = f"""
    SELECT {_SEALED} FROM agents
    WHERE (:before = '' OR id < :before)
      AND (:project = '' OR id IN (SELECT agent_id FROM agent_projects WHERE project_id = :project))
      AND (:among IS NULL OR id IN (
          SELECT agent_id FROM agent_projects WHERE project_id IN (SELECT value FROM json_each(:among))
      ))
    ORDER BY id DESC LIMIT :limit
"""
_PROJECT: Final = f"SELECT {_SEALED} FROM projects WHERE id = :key OR name = :key"
_PROJECTS: Final = f"""
    SELECT {_SEALED} FROM projects
    WHERE (:before = '' OR id < :before)
      AND (:among IS NULL OR id IN (SELECT value FROM json_each(:among)))
    ORDER BY id DESC LIMIT :limit
"""
_FILE: Final = f"SELECT {_SEALED} FROM files WHERE id = :key"
_FILES: Final = f"""
    SELECT {_SEALED} FROM files
    WHERE (:before = '' OR id < :before)
      AND (:project = '' OR project_id = :project)
      AND (:among IS NULL OR project_id IN (SELECT value FROM json_each(:among)))
    ORDER BY id DESC LIMIT :limit
"""
_ANSWER: Final = (
    "SELECT request_id, fingerprint, created_ms, CAST(result AS BLOB), seal FROM answers WHERE request_id = ?"
)

_INSERT_DEFINITION: Final = """
    INSERT INTO definitions (id, library_id, library, name, kind, labels, version)
    VALUES (:id, :library_id, :library, :name, :kind, :labels, :version)
"""
_UPDATE_DEFINITION: Final = """
    UPDATE definitions SET labels = :labels, version = :version WHERE id = :id AND version = :version - 1
"""
_INSERT_REVISION: Final = "INSERT INTO revisions (definition_id, revision, body, seal) VALUES (?, ?, ?, ?)"
_INSERT_ANSWER: Final = (
    "INSERT INTO answers (request_id, fingerprint, created_ms, result, seal) VALUES (?, ?, ?, ?, ?)"
)
_KEEP_ANSWER: Final = _INSERT_ANSWER.replace("INSERT", "INSERT OR IGNORE")


class SqliteCatalog:
    """The catalog over its own `Database`."""

    def __init__(self, database: Database, seals: Seals) -> None:
        self._database = database
        self._seals = seals

    @classmethod
    async def open(cls, path: Path | str, *, must_exist: bool = False) -> SqliteCatalog:
        """Open or create the file. Errors: STORAGE_UNAVAILABLE."""
        database = await Database.open(path, MIGRATIONS, must_exist=must_exist)
        try:
            name = database.path.name
            return cls(database, await database.read(lambda connection: load_seals(connection, name)))
        except BaseException:
            await database.close()
            raise

    @property
    def seals(self) -> Seals:
        """Return the checksums of the rows, for the other stores in this file."""
        return self._seals

    @property
    def database(self) -> Database:
        """Return the database, for maintenance such as disk space and checkpoints."""
        return self._database

    async def close(self) -> None:
        await self._database.close()

    async def library(self, key: str) -> Library | None:
        return await self._one(Library, _LIBRARY, {"key": key})

    async def libraries(self, after: str, limit: int, among: frozenset[str] | None = None) -> list[Library]:
        return await self._many(
            Library, _LIBRARIES, {"after": after, "limit": limit, "among": _json_list(among)}
        )

    async def definition(self, reference: Reference) -> Definition | None:
        return await self._one(
            Definition,
            _DEFINITION,
            {
                "id": reference.definition_id,
                "library": reference.library,
                "name": reference.name,
                "revision": reference.revision,
            },
        )

    async def definitions(self, query: DefinitionQuery) -> list[Definition]:
        parameters: dict[str, SqlValue] = {
            "after_library": query.after[0],
            "after_name": query.after[1],
            "library_id": query.library_id,
            "kinds": json.dumps(query.kinds),
            "labels": json.dumps(query.labels),
            "limit": query.limit,
            "libraries": _json_list(query.libraries),
        }
        return await self._many(Definition, _DEFINITIONS, parameters)

    async def revisions(self, definition_id: str, before: int, limit: int) -> list[Definition]:
        parameters: dict[str, SqlValue] = {"id": definition_id, "before": before, "limit": limit}
        return await self._many(Definition, _REVISIONS, parameters)

    async def agent(self, key: str) -> Agent | None:
        return await self._one(Agent, _AGENT, {"key": key})

    async def agent_header(self, key: str) -> Agent | None:
        sql = "SELECT id, name, version FROM agents WHERE id = :key OR name = :key"
        row = await self._database.read(lambda connection: connection.execute(sql, {"key": key}).fetchone())
        return None if row is None else Agent(id=row[0], name=row[1], project_ids=(), version=row[2])

    async def agents(
        self, project_id: str, before: str, limit: int, among: frozenset[str] | None = None
    ) -> list[Agent]:
        parameters: dict[str, SqlValue] = {
            "project": project_id,
            "before": before,
            "limit": limit,
            "among": _json_list(among),
        }
        return await self._many(Agent, _AGENTS, parameters)

    async def project(self, key: str) -> Project | None:
        return await self._one(Project, _PROJECT, {"key": key})

    async def projects(self, before: str, limit: int, among: frozenset[str] | None = None) -> list[Project]:
        parameters: dict[str, SqlValue] = {"before": before, "limit": limit, "among": _json_list(among)}
        return await self._many(Project, _PROJECTS, parameters)

    async def file(self, file_id: str) -> File | None:
        return await self._one(File, _FILE, {"key": file_id})

    async def files(
        self, project_id: str, before: str, limit: int, among: frozenset[str] | None = None
    ) -> list[File]:
        parameters: dict[str, SqlValue] = {
            "project": project_id,
            "before": before,
            "limit": limit,
            "among": _json_list(among),
        }
        return await self._many(File, _FILES, parameters)

    async def names(self) -> CatalogNames:
        def read(connection: sqlite3.Connection) -> CatalogNames:
            return CatalogNames(
                projects=dict(connection.execute("SELECT id, name FROM projects")),
                libraries=dict(connection.execute("SELECT id, name FROM libraries")),
            )

        return await self._database.read(read)

    async def commit(
        self, changes: Sequence[Change], answer: Answer | None = None, audit: Sequence[AuditEntry] = ()
    ) -> None:
        def write(connection: sqlite3.Connection) -> None:
            for change in changes:
                if isinstance(change, Put):
                    _put(connection, change.resource)
                else:
                    _delete(connection, change.resource)
            for entry in audit:
                put_entry(connection, entry)
            if answer is not None:
                store_answer(connection, answer)

        frees_space = any(not isinstance(change, Put) for change in changes)
        await self._database.write(write, frees_space=frees_space)

    async def answer(self, request_id: str) -> Answer | None:
        return await self._database.read(lambda connection: read_answer(connection, self._seals, request_id))

    async def keep_answers(self, answers: Sequence[Answer]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(_KEEP_ANSWER, [_answer_row(answer) for answer in answers])

        await self._database.write(write, frees_space=True)

    async def _one(self, shape: type[R], sql: str, parameters: Parameters) -> R | None:
        found = await self._many(shape, sql, parameters)
        return found[0] if found else None

    async def _many(self, shape: type[R], sql: str, parameters: Parameters) -> list[R]:
        rows = await self._database.read(lambda connection: connection.execute(sql, parameters).fetchall())
        return [self._resource(shape, row) for row in rows]

    def _resource(self, shape: type[R], row: Row) -> R:
        *key, data, found = row
        table = _READ_FROM[shape]
        body = self._seals.check(table, tuple(key), data, found, 1)
        try:
            return read_record(shape, json.loads(body))
        except (ValueError, KeyError, TypeError, AttributeError):
            self._seals.raise_damaged(table, tuple(key))


def read_answer(connection: sqlite3.Connection, seals: Seals, request_id: str) -> Answer | None:
    """Return the stored answer of a request, or None."""
    row = connection.execute(_ANSWER, (request_id,)).fetchone()
    if row is None:
        return None
    *key, data, found = row
    result = json.loads(seals.check("answers", tuple(key), data, found, 1))
    return Answer(request_id=key[0], fingerprint=key[1], result=result, created_ms=key[2])


def _json_list(among: frozenset[str] | None) -> str | None:
    """Return a list of ids as one bound value; NULL selects all."""
    return None if among is None else json.dumps(sorted(among))


def _put(connection: sqlite3.Connection, resource: Resource) -> None:
    body = json.dumps(to_json(resource), ensure_ascii=False)
    try:
        if isinstance(resource, Definition):
            _put_definition(connection, resource, body)
        elif isinstance(resource, File):
            files.put(connection, resource, body)
        else:
            _put_row(connection, resource, body)
    except sqlite3.IntegrityError:
        if not isinstance(resource, File) and _name_exists(connection, resource):
            raise error(
                Reason.ALREADY_EXISTS,
                f"The name '{resource.name}' is taken. Choose another one.",
                field="name",
            ) from None
        raise stale() from None


def _name_exists(connection: sqlite3.Connection, resource: Library | Definition | Agent | Project) -> bool:
    """Return True if another resource has this name."""
    sql = f"SELECT 1 FROM {_TABLES[type(resource)]} WHERE name = :name AND id <> :id"
    parameters = {"name": resource.name, "id": resource.id}
    if isinstance(resource, Definition):
        sql += " AND library_id = :library_id"
        parameters["library_id"] = resource.library_id
    return connection.execute(sql, parameters).fetchone() is not None


def _put_definition(connection: sqlite3.Connection, definition: Definition, body: str) -> None:
    row = {
        "id": definition.id,
        "library_id": definition.library_id,
        "library": definition.library,
        "name": definition.name,
        "kind": str(definition.kind),
        "labels": json.dumps(definition.draft.labels),
        "version": definition.revision,
    }
    if definition.revision == 1:
        connection.execute(_INSERT_DEFINITION, row)
    elif connection.execute(_UPDATE_DEFINITION, row).rowcount != 1:
        raise stale()
    key = definition.id, definition.revision
    connection.execute(_INSERT_REVISION, (*key, body, seal(("revisions", *key, ""), body.encode())))


def _put_row(connection: sqlite3.Connection, resource: Library | Agent | Project, body: str) -> None:
    table = _TABLES[type(resource)]
    key = resource.id, resource.name, resource.version
    checksum = seal((table, *key), body.encode())
    row = {
        "id": resource.id,
        "name": resource.name,
        "version": resource.version,
        "body": body,
        "seal": checksum,
    }
    if resource.version == 1:
        connection.execute(
            f"INSERT INTO {table} (id, name, version, body, seal)"
            " VALUES (:id, :name, :version, :body, :seal)",
            row,
        )
    else:
        updated = connection.execute(
            f"UPDATE {table} SET name = :name, version = :version, body = :body, seal = :seal "
            "WHERE id = :id AND version = :version - 1",
            row,
        )
        if updated.rowcount != 1:
            raise stale()
    if isinstance(resource, Agent):
        connection.execute("DELETE FROM agent_projects WHERE agent_id = ?", (resource.id,))
        connection.executemany(
            "INSERT INTO agent_projects (project_id, agent_id) VALUES (?, ?)",
            [(project, resource.id) for project in resource.project_ids],
        )


def _delete(connection: sqlite3.Connection, resource: Resource) -> None:
    table = _TABLES[type(resource)]
    if isinstance(resource, File | Project):
        files.release_objects(connection, resource)
    deleted = connection.execute(
        f"DELETE FROM {table} WHERE id = ? AND version = ?", (resource.id, resource.version)
    )
    if deleted.rowcount != 1:
        raise stale()
    if isinstance(resource, Project):
        connection.execute("INSERT OR IGNORE INTO removed_projects (id) VALUES (?)", (resource.id,))


def store_answer(connection: sqlite3.Connection, answer: Answer) -> None:
    """Store the answer of a request. Raises REQUEST_ID_REUSED."""
    connection.execute("DELETE FROM answers WHERE created_ms < ?", (answer.created_ms - ANSWER_TTL_MS,))
    try:
        connection.execute(_INSERT_ANSWER, _answer_row(answer))
    except sqlite3.IntegrityError:
        raise request_id_reused() from None


def _answer_row(answer: Answer) -> Row:
    key = answer.request_id, answer.fingerprint, answer.created_ms
    result = json.dumps(answer.result, ensure_ascii=False)
    return (*key, result, seal(("answers", *key), result.encode()))


def stale() -> WonderError:
    """Return the error for a change of a version that is not the stored one."""
    return error(
        Reason.ETAG_MISMATCH,
        "Another request changed the resource meanwhile. Read it again and repeat the change.",
        field="etag",
    )
