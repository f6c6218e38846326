"""Seals of whole rows of a shard, by table. Used for archives and for checking a data folder."""

from __future__ import annotations

from typing import Final

from wonder_server.adapters.sqlite.codec.interning import part_name
from wonder_server.adapters.sqlite.connection import Columns, Row, SqlValue
from wonder_server.adapters.sqlite.seals import Seals, seal
from wonder_server.adapters.sqlite.shard.schema import SEALED

_ROW: Final = ("actor", "id", "parent", "ordinal", "status", "alias", "live")
_KEYS: Final = {
    **dict.fromkeys(SEALED, _ROW),
    "entries": ("actor", "sequence", "at_ms"),
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
        if part_name(_bytes(row["data"])) != row["hash"]:
            seals.raise_damaged(table, (row["root"], row["hash"]))
    elif table in _KEYS:
        limit = rowid if table in WITH_ROW_ID else 1
        seals.check(table, _key(table, row), _content(table, row), row["seal"], limit)


def _key(table: str, row: Columns) -> Row:
    return tuple(row[column] for column in _KEYS[table])


def _content(table: str, row: Columns) -> bytes:
    return b"\n".join(_bytes(row[column]) for column in _CONTENT.get(table, ("data",)))


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
