"""Checksums of rows, so that a flipped bit is an error and never another text.

A row's *seal* is a CRC-32 over its table, its key and its stored bytes, kept in a column of the row. The key
is part of it, so that a row in another's place does not pass either. Every reader checks it. A store that is
older than seals has rows without one: they stay readable, unchecked, and get one when they are written
again. The table ``unsealed`` of the file says up to which row that may be; a row beyond it without a seal is
damaged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn
from zlib import crc32

from wonder_server.core.errors import Reason, WonderError, error

_MAX_UNLOCKED_BYTES: Final = 4096
"""Bytes per call: for 5 KiB and more zlib lets go of the interpreter's lock, which a busy server gives back
late."""

ADVICE: Final = (
    "Restore a backup; `wonder check` on the stopped server's data folder lists every damaged record."
)


def seal(key: Iterable[object], data: bytes) -> int:
    """The seal of a row: over ``key``, which names it and all of its short columns, and over its content."""
    value = crc32("\0".join(map(str, key)).encode("utf-8", "surrogatepass"))
    if len(data) <= _MAX_UNLOCKED_BYTES:
        return crc32(data, value)
    view = memoryview(data)
    for start in range(0, len(data), _MAX_UNLOCKED_BYTES):
        value = crc32(view[start : start + _MAX_UNLOCKED_BYTES], value)
    return value


def damaged_record(store: str, table: str, key: str) -> WonderError:
    """STORAGE_UNAVAILABLE that names a record."""
    return error(
        Reason.STORAGE_UNAVAILABLE,
        f"The record {key} in table {table} of {store} is damaged. {ADVICE}",
        store=store,
        table=table,
        record=key,
    )


class Seals:
    """Checks the rows of one store."""

    def __init__(self, store: str, unsealed: Mapping[str, int]) -> None:
        """``store`` is the file's name, ``unsealed`` by table the highest row that may lack a seal."""
        self.store = store
        self._unsealed = unsealed

    @classmethod
    def load(cls, connection: sqlite3.Connection, store: str) -> Seals:
        """Those of an open store."""
        return cls(store, dict(connection.execute("SELECT name, upto FROM unsealed").fetchall()))

    def check(
        self,
        table: str,
        key: tuple[object, ...],
        data: object,
        found: object,
        row: int = 0,
        *,
        older: tuple[object, ...] | None = None,
    ) -> bytes:
        """The content of a row, whose stored seal is ``found`` and whose place in the table is ``row``.

        ``key`` begins with the columns that name the record. ``older`` is the key that earlier versions
        sealed, of fewer columns; their seal is accepted too. Raises STORAGE_UNAVAILABLE.
        """
        if type(data) is bytes:
            if found is None:
                if row <= self._unsealed.get(table, 0):
                    return data
            elif found == seal((table, *key), data):
                return data
            elif older is not None and found == seal((table, *older), data):
                return data
        self.raise_damaged(table, key)

    def raise_damaged(self, table: str, key: tuple[object, ...]) -> NoReturn:
        """Raise STORAGE_UNAVAILABLE for the record that ``key`` names: its last name is enough, or two for
        what is numbered within another."""
        named = [str(each) for each in key[:2]]
        if table in _NAMED_BY_TWO:
            raise damaged_record(self.store, table, "/".join(named))
        raise damaged_record(self.store, table, named[-1] if table not in _NAMED_BY_ONE else named[0])


_NAMED_BY_TWO: Final = frozenset({"embeddings", "entries", "events", "revisions", "requests_answered"})
"""Tables whose records are named by two columns."""

_NAMED_BY_ONE: Final = frozenset(
    {"accounts", "actors", "libraries", "agents", "projects", "answers", "memories", "overflow_words"}
)
"""Tables whose records are named by their first column alone."""
