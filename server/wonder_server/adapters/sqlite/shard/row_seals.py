"""The seals of whole rows of a shard, by table: for archives and for checking a folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from wonder_server.adapters.sqlite.codec.interning import part_name
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
"""The columns that hold the content, where it is not ``data``."""

WITH_ROW_ID: Final = frozenset(SEALED)
"""Tables whose rows have a place that says whether they must have a seal."""


def with_seal(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with its seal, as it is written today; an archive may be older than seals."""
    if table not in _KEYS or row.get("seal") is not None:
        return dict(row)
    return {**row, "seal": seal((table, *_key(table, row)), _content(table, row))}


def check(seals: Seals, table: str, row: Mapping[str, Any], place: int) -> None:
    """Check a row with all its columns. Raises STORAGE_UNAVAILABLE."""
    if table == "parts":
        if part_name(_bytes(row["data"])) != row["hash"]:
            seals.raise_damaged(table, (row["root"], row["hash"]))
    elif table in _KEYS:
        place = place if table in WITH_ROW_ID else 1
        seals.check(table, _key(table, row), _content(table, row), row["seal"], place)


def _key(table: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[column] for column in _KEYS[table])


def _content(table: str, row: Mapping[str, Any]) -> bytes:
    return b"\n".join(_bytes(row[column]) for column in _CONTENT.get(table, ("data",)))


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
