"""Rows of files in catalog.db, and the list of their unreferenced objects."""

from __future__ import annotations

import json
import sqlite3
from typing import Final

from wonder_server.adapters.sqlite.database import Database
from wonder_server.adapters.sqlite.unreferenced_objects import ObjectList, SqliteUnreferencedObjects
from wonder_server.codec.seals import seal
from wonder_server.core.definitions.resources import File, Project
from wonder_server.core.errors import Reason, not_found

_INSERT: Final = """
    INSERT INTO files (id, project_id, name, version, body, seal)
    VALUES (:id, :project_id, :name, :version, :body, :seal)
"""
_ADD_OBJECTS: Final = "INSERT OR IGNORE INTO file_objects (key, file_id) SELECT value, ? FROM json_each(?)"
_RELEASE_FILE: Final = """
    INSERT OR IGNORE INTO loose_file_objects (key, project_id)
    SELECT key, ? FROM file_objects WHERE file_id = ?
"""
_RELEASE_PROJECT: Final = """
    INSERT OR IGNORE INTO loose_file_objects (key, project_id)
    SELECT key, project_id FROM file_objects JOIN files ON files.id = file_id WHERE project_id = ?
"""
_UNREFERENCED: Final = ObjectList(
    table="loose_file_objects",
    owner="project_id",
    references="SELECT 1 FROM file_objects WHERE file_objects.key = loose_file_objects.key",
)


def put(connection: sqlite3.Connection, file: File, body: str) -> None:
    """Insert a file; its objects are referenced from here on. Raises PROJECT_NOT_FOUND."""
    project = connection.execute("SELECT 1 FROM projects WHERE id = ?", (file.project_id,)).fetchone()
    if project is None:
        raise not_found(Reason.PROJECT_NOT_FOUND, file.project_id, field="project_id")
    row = {
        "id": file.id,
        "project_id": file.project_id,
        "name": file.name,
        "version": file.version,
        "body": body,
        "seal": seal(("files", file.id, file.name, file.version), body.encode()),
    }
    connection.execute(_INSERT, row)
    keys = json.dumps(file.objects)
    connection.execute(_ADD_OBJECTS, (file.id, keys))
    connection.execute(_UNREFERENCED.remove, (keys,))


def release_objects(connection: sqlite3.Connection, resource: File | Project) -> None:
    """List the objects of a file, or of all files of a project, before its deletion."""
    if isinstance(resource, File):
        connection.execute(_RELEASE_FILE, (resource.project_id, resource.id))
    else:
        connection.execute(_RELEASE_PROJECT, (resource.id,))


class SqliteFileObjects(SqliteUnreferencedObjects):
    """Implements the port ``UnreferencedObjects`` for files, in the database of the catalog."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, _UNREFERENCED)
