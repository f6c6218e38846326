"""Seals of whole rows of a shard, by table. Used for archives and for checking a data folder."""

from __future__ import annotations

from typing import Any, Final

from wonder_server.adapters.sqlite.connection import Columns, Row, SqlValue
from wonder_server.codec.interning import part_name
from wonder_server.codec.packing import pack_all, unpack
from wonder_server.codec.seals import Seals, seal
from wonder_server.codec.tables import PACKED_TABLES, SEALED

_ROW: Final = ("actor", "id", "parent", "ordinal", "status", "alias", "live")
_KEYS: Final = {
    **dict.fromkeys(SEALED, _ROW),
    "entries": ("actor", "sequence", "at_ms", "epoch"),
    "events": ("actor", "sequence", "at_ms", "name", "kind", "turn_id", "message_id"),
    "requests_answered": ("scope", "id", "actor", "fingerprint"),
    "actors": ("id", "entry_head", "event_head"),
}
_CONTENT: Final = {"entries": ("input", "decisions"), "requests_answered": ("answer",), "actors": ()}
"""The columns of the content, for tables whose content is not in ``data``."""

WITH_ROW_ID: Final = frozenset(SEALED)
"""Tables whose rowid decides whether a row may lack a seal."""


def with_seal(table: str, row: Columns) -> dict[str, SqlValue]:
    """Return the row with its seal; compute one if it has none. An archive may be older than seals."""
    if table not in _KEYS or row.get("seal") is not None:
        return dict(row)
    return {**row, "seal": seal((table, *_key(table, row)), _content(table, row))}


def check(seals: Seals, table: str, row: Columns, rowid: int) -> None:
    """Check a row that has all its columns. STORAGE_UNAVAILABLE if it is damaged."""
    if table == "parts":
        try:
            intact = part_name(unpack(_bytes(row["data"]))) == row["hash"]
        except ValueError:
            intact = False
        if not intact:
            seals.raise_damaged(table, (row["root"], row["hash"]))
    elif table in _KEYS:
        limit = rowid if table in WITH_ROW_ID else 1
        key = _key(table, row)
        # Earlier versions sealed journal entries without their epoch, which is then 0.
        older = key[:-1] if table == "entries" and not key[-1] else None
        seals.check(table, key, _content(table, row), row["seal"], limit, older=older)


def unpacked(table: str, row: Columns) -> dict[str, Any]:
    """Return an intact row with its content as text. A content that was packed loses its seal."""
    if table not in PACKED_TABLES:
        return dict(row)
    column = _columns(table)[0]
    data = row[column]
    if not isinstance(data, bytes):
        return dict(row)
    seal_column = {"seal": None} if "seal" in row else {}
    return {**row, column: unpack(data).decode(), **seal_column}


def packed(table: str, row: Columns) -> dict[str, SqlValue]:
    """Return a row without a seal in the form that a commit writes, and any other row unchanged."""
    if table not in PACKED_TABLES or row.get("seal") is not None:
        return dict(row)
    column = _columns(table)[0]
    return {**row, column: pack_all([_bytes(row[column])])[0]}


def _columns(table: str) -> tuple[str, ...]:
    return _CONTENT.get(table, ("data",))


def _key(table: str, row: Columns) -> Row:
    # A row from an archive can be older than its last columns.
    return tuple(row.get(column, 0) if column == "epoch" else row[column] for column in _KEYS[table])


def _content(table: str, row: Columns) -> bytes:
    return b"\n".join(_bytes(row[column]) for column in _columns(table))


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
