"""Connections to SQLite files: pragmas, migrations, and storage errors as `WonderError`."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any, Final, TypeAlias

from wonder_server.codec.seals import ADVICE, Seals, seal
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.logs import logger
from wonder_server.ports.metrics import Histogram

_log = logger("store")

Row: TypeAlias = tuple[Any, ...]
"""A row of a query. The types of its columns depend on the query."""
Columns: TypeAlias = Mapping[str, Any]
"""A row by the names of its columns."""
SqlValue: TypeAlias = str | int | float | bytes | None
"""A value that SQLite stores."""

_COMMIT_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)

_PRAGMAS: Final = (
    # Hold the lock from the first access until close: database.py explains why.
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = WAL",
    # NORMAL loses acknowledged commits at a power failure.
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA mmap_size = 0",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -16384",
    # Checkpoint every 4,000 pages, just below journal_size_limit; `Database.limit_log` can lower the number.
    # This is the only connection, so a checkpoint always copies the whole WAL, and the next commit overwrites
    # the WAL from its start. Overwriting costs less at each fsync than growing the WAL again after a
    # truncation.
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 16777216",
)

any_text: Final = methodcaller("decode", "utf-8", "replace")
"""Decode a text column; invalid UTF-8 becomes replacement characters. The server writes only valid text, so
invalid text is damage: its seal does not match, and the reader names the record. SQLite's exception would
not."""

UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""Errors of reading a file. UnicodeDecodeError comes from Python: messages and column names of SQLite can
contain bytes of a damaged file."""

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


def commit_histogram() -> Histogram:
    """Return the empty histogram of a connection's commits, in seconds from BEGIN to the end of COMMIT."""
    return Histogram(_COMMIT_BOUNDS)


def connect(
    path: Path, migrations: Sequence[tuple[str, str]], *, must_exist: bool = False
) -> sqlite3.Connection:
    """Open a connection in autocommit mode, with an exclusive lock, and apply ``migrations``.

    With ``must_exist``, a missing or empty file is an error. Without it, the connection creates the file.

    Errors: STORAGE_UNAVAILABLE, with a message for the operator.
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
        connection.create_function("seal_of", -1, _seal_of)  # Migrations use it.
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
    connection.execute("BEGIN IMMEDIATE")  # Takes the exclusive lock, even without pending migrations.
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
            # A migration can take ten seconds per gigabyte, and the server logs nothing else meanwhile.
            _log.info("store_migration_started", store=name, migration=migration, megabytes=megabytes)
        try:
            # executescript commits an open transaction, so the script begins its own.
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
        f"The store {path.name} is missing or empty, but the data folder has conversations. Restore the file "
        f"from a backup. To continue without its data permanently, create an empty file {path.name}.new "
        "beside it and start again."
    )


def load_seals(connection: sqlite3.Connection, store: str) -> Seals:
    """Return the seals of an open store. ``store`` is the name that its errors say."""
    return Seals(store, dict(connection.execute(UNSEALED).fetchall()))


UNSEALED: Final = "SELECT name, upto FROM unsealed"
"""SQL for the highest rowid of each table that may lack a seal."""


def _seal_of(*key: object) -> int:
    return seal(key, b"")


def unavailable(message: str, *, transient: bool = False, cause: BaseException | None = None) -> WonderError:
    """Return a STORAGE_UNAVAILABLE error with this message."""
    fault = error(Reason.STORAGE_UNAVAILABLE, message, transient=transient)
    fault.__cause__ = cause
    return fault


def storage_fault(failure: BaseException, store: str, *, always: bool = False) -> BaseException:
    """Convert an error that the storage caused to STORAGE_UNAVAILABLE. ``store`` is the name of the file.

    Return any other error unchanged (a constraint, a bug, a `WonderError`). With ``always``, convert those
    too: for a failed commit every error counts as a storage error.
    """
    code = _code(failure)
    if code in _CORRUPT or _is_unreadable(failure):
        return unavailable(f"The store {store} is damaged. {ADVICE}", cause=failure)
    if code == sqlite3.SQLITE_FULL:
        return unavailable("The disk is full. Free some disk space.", transient=True, cause=failure)
    if always or code in _TRANSIENT:
        return unavailable(
            "The server could not read or write its data. Try again.",
            transient=True,
            cause=failure,
        )
    if isinstance(failure, StopIteration):  # A future cannot carry StopIteration.
        return RuntimeError("A database function raised StopIteration.")
    return failure


def _is_unreadable(failure: BaseException) -> bool:
    """Return True if SQLite found invalid text or JSON, or misses a column. The server writes only valid text
    and JSON, and reads only columns that it has made: otherwise the schema in the file is damaged."""
    if isinstance(failure, UnicodeDecodeError):
        return True
    signs = ("malformed JSON", "no such column", "no such table")
    return _code(failure) == sqlite3.SQLITE_ERROR and any(sign in str(failure) for sign in signs)


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
    """Return the primary result code of a SQLite error. An extended code has it in the low byte."""
    extended = getattr(failure, "sqlite_errorcode", None) if isinstance(failure, sqlite3.Error) else None
    return None if extended is None else extended & 0xFF
