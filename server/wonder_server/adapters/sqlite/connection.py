"""Opening a SQLite file: pragmas, migrations, and the storage's errors in the domain's words."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from operator import methodcaller
from pathlib import Path
from typing import Final

from wonder_server.adapters.sqlite.seals import ADVICE, seal
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.logs import logger

_log = logger("store")

_PRAGMAS: Final = (
    # Held from the first access to the end: see the note on two connections in database.py.
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = WAL",
    # NORMAL loses acknowledged commits at power loss.
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA mmap_size = 0",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -16384",
    # Every 4,000 pages, which is just below the limit that follows, the commit folds the WAL into the file;
    # `Database.bound_log` makes that less. With no other connection that is always the whole of it, and the
    # next commit starts the WAL over. (Overwriting it costs less at each fsync than growing it anew after a
    # truncation.)
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 16777216",
)

any_text: Final = methodcaller("decode", "utf-8", "replace")
"""The text of a column, with a mark in the place of what is no text. Only valid text is ever written, so the
rest is damaged: no seal fits it, and the reader names the record. An exception of SQLite's would not."""

UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises for a file. Its messages and names of columns can hold bytes of a damaged file, of which
Python makes the second."""

_CORRUPT: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_TRANSIENT: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
}


def connect(
    path: Path, migrations: Sequence[tuple[str, str]], *, must_exist: bool = False
) -> sqlite3.Connection:
    """A connection in autocommit mode, exclusive, with ``migrations`` applied. ``must_exist``: a file that is
    missing, or empty, is an error and not made.

    Errors: STORAGE_UNAVAILABLE with a sentence for the operator.
    """
    if must_exist and not (path.exists() and path.stat().st_size):
        raise _store_missing(path)
    try:
        connection = sqlite3.connect(path, isolation_level=None, timeout=2.0, cached_statements=512)
    except sqlite3.Error as failure:
        raise _open_failed(path, failure) from failure
    connection.text_factory = any_text
    try:
        for pragma in _PRAGMAS:
            connection.execute(pragma).fetchall()
        connection.create_function("seal_of", -1, _seal_of)  # For migrations.
        if must_exist and not connection.execute(_MIGRATED).fetchone():
            raise _store_missing(path)
        _migrate(connection, path.name, migrations)
    except UNREADABLE as failure:
        connection.close()
        raise _open_failed(path, failure) from failure
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, name: str, migrations: Sequence[tuple[str, str]]) -> None:
    connection.execute("BEGIN IMMEDIATE")  # Takes the exclusive lock, even when nothing is to do.
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations (position INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)"
    )
    connection.execute("COMMIT")
    applied = [row[0] for row in connection.execute("SELECT name FROM migrations ORDER BY position")]
    known = [migration for migration, _ in migrations]
    if any("\N{REPLACEMENT CHARACTER}" in str(each) for each in applied):
        raise unavailable(f"The store {name} is damaged. {ADVICE}")
    if applied != known[: len(applied)]:
        raise unavailable(
            f"The store {name} was written by a newer version of Wonder. Start that version, "
            "or restore a backup made with this one."
        )
    size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    megabytes = connection.execute(size).fetchone()[0] >> 20
    for migration, script in migrations[len(applied) :]:
        if applied:
            # It can take ten seconds for each gigabyte, in which nothing else is said.
            _log.info("store_migration_started", store=name, migration=migration, megabytes=megabytes)
        try:
            # executescript would commit a transaction that is already open, so it opens its own.
            connection.executescript(f"BEGIN IMMEDIATE;\n{script}")
            connection.execute("INSERT INTO migrations (name) VALUES (?)", (migration,))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


_MIGRATED: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migrations'"


def _store_missing(path: Path) -> WonderError:
    return unavailable(
        f"The store {path.name} is missing or empty, and the folder has conversations. Restore it from a "
        f"backup. To go on without what it held, for good, make an empty file {path.name}.new beside it and "
        "start again."
    )


def _seal_of(*key: object) -> int:
    return seal(key, b"")


def unavailable(message: str, *, transient: bool = False, cause: BaseException | None = None) -> WonderError:
    """STORAGE_UNAVAILABLE in these words."""
    fault = error(Reason.STORAGE_UNAVAILABLE, message, transient=transient)
    fault.__cause__ = cause
    return fault


def storage_fault(failure: BaseException, store: str, *, always: bool = False) -> BaseException:
    """STORAGE_UNAVAILABLE for what the storage itself caused, ``store`` being its file.

    Anything else (a constraint, a bug, a `WonderError`) comes back as it is, unless ``always``: then
    it counts as the storage's, as everything does that fails a commit.
    """
    code = _code(failure)
    if code in _CORRUPT or _is_unreadable(failure):
        return unavailable(f"The store {store} is damaged. {ADVICE}", cause=failure)
    if code == sqlite3.SQLITE_FULL:
        return unavailable("The disk is full; free some space.", transient=True, cause=failure)
    if always or code in _TRANSIENT:
        return unavailable(
            "The data could not be written or read; try again.",
            transient=True,
            cause=failure,
        )
    if isinstance(failure, StopIteration):  # A future refuses to carry it.
        return RuntimeError("A database function raised StopIteration.")
    return failure


def _is_unreadable(failure: BaseException) -> bool:
    """Return True where SQLite found text or JSON that is none, and only ever both were written."""
    if isinstance(failure, UnicodeDecodeError):
        return True
    return _code(failure) == sqlite3.SQLITE_ERROR and "malformed JSON" in str(failure)


def _open_failed(path: Path, failure: Exception) -> WonderError:
    code = _code(failure)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        sentence = f"The store {path.name} is in use by another connection; stop the other server first."
    elif code in _CORRUPT or isinstance(failure, UnicodeDecodeError):
        sentence = f"The store {path.name} is damaged or not a database. {ADVICE}"
    else:
        sentence = f"The store {path.name} could not be opened: {failure}."
    return unavailable(sentence, cause=failure)


def _code(failure: BaseException) -> int | None:
    """The primary result code of a SQLite error; extended codes keep it in the low byte."""
    extended = getattr(failure, "sqlite_errorcode", None) if isinstance(failure, sqlite3.Error) else None
    return None if extended is None else extended & 0xFF
