"""Checksums of rows. They turn a flipped bit into an error instead of wrong data.

A row's *seal* is a CRC-32 over its table, its key and its stored bytes, in a column of the row. The key is
part of the seal, so a row in another row's place fails too. Every reader checks seals. A store that is older
than seals has rows without one. These rows stay readable, unchecked, and get a seal at their next write. The
store says, per table, which is the highest row that may lack a seal. A later row without a seal is damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NoReturn
from zlib import crc32

from wonder_server.core.errors import Reason, WonderError, error

_MAX_UNLOCKED_BYTES: Final = 4096
"""Bytes per call of `crc32`. From 5 KiB on, zlib releases the interpreter lock, and a busy server takes long
to return it."""

ADVICE: Final = (
    "Restore a backup; `wonder check` on the stopped server's data folder lists every damaged record."
)


def seal(key: Iterable[object], data: bytes) -> int:
    """Return the seal of a row: over ``key`` (its name and all short columns) and over its content."""
    return seal_bytes("\0".join(map(str, key)).encode("utf-8", "surrogatepass"), data)


def seal_bytes(key: bytes, data: bytes) -> int:
    """Return the seal of a row whose key is joined and encoded."""
    value = crc32(key)
    if len(data) <= _MAX_UNLOCKED_BYTES:
        return crc32(data, value)
    view = memoryview(data)
    for start in range(0, len(data), _MAX_UNLOCKED_BYTES):
        value = crc32(view[start : start + _MAX_UNLOCKED_BYTES], value)
    return value


def damaged_record(store: str, table: str, key: str) -> WonderError:
    """Return a STORAGE_UNAVAILABLE error that names a record."""
    return error(
        Reason.STORAGE_UNAVAILABLE,
        f"The record {key} in table {table} of {store} is damaged. {ADVICE}",
        store=store,
        table=table,
        record=key,
    )


class Seals:
    """Check the rows of one store."""

    def __init__(self, store: str, unsealed: Mapping[str, int]) -> None:
        """``store`` is the file name. ``unsealed`` gives for each table the highest row that may lack a
        seal."""
        self.store = store
        self._unsealed = unsealed

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
        """Return the content of a row after checking its seal.

        ``key`` begins with the columns that name the record, ``found`` is the stored seal, and ``row`` is the
        row's rowid. ``older`` is the shorter key that earlier versions sealed; a seal over it also passes.
        Raises STORAGE_UNAVAILABLE.
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
        """Raise STORAGE_UNAVAILABLE for the record that ``key`` names.

        The message names a record by the last of its two key columns, by both, or by the first, depending on
        the table.
        """
        named = [str(each) for each in key[:2]]
        if table in _NAMED_BY_TWO:
            raise damaged_record(self.store, table, "/".join(named))
        raise damaged_record(self.store, table, named[-1] if table not in _NAMED_BY_ONE else named[0])


_NAMED_BY_TWO: Final = frozenset({"embeddings", "entries", "events", "revisions", "requests_answered"})
"""Tables whose records are named by two columns."""

_NAMED_BY_ONE: Final = frozenset(
    {
        "accounts",
        "actors",
        "agents",
        "answers",
        "archive_objects",
        "files",
        "libraries",
        "memories",
        "overflow_words",
        "projects",
    }
)
"""Tables whose records are named by their first column alone."""
