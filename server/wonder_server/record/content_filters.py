"""Filters by fields inside the content of rows, which check the seals of the rows.

Contents are packed, so a store cannot filter by them. A filter reads a content before `Seals.check` does. A
flipped bit could change the field, and the row would be missing from the result without an error. So a
damaged row meets every condition. Its reader then raises STORAGE_UNAVAILABLE.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from wonder_server.codec.packing import unpack
from wonder_server.codec.seals import Seals
from wonder_server.core.errors import WonderError
from wonder_server.core.history.text_query import TextQuery
from wonder_server.ports.record_store import StoredRow

Condition = tuple[str, str | tuple[str, ...]]
"""A path in the stored value, and the wanted text, one of several, or any that is not empty for ``()``."""


def meets(
    table: str,
    row: StoredRow,
    conditions: Sequence[Condition],
    seals: Seals,
    text: TextQuery | None = None,
) -> bool:
    """Return True if the content of a row meets all conditions, or if the row is damaged. The field
    ``content`` of the row must match ``text``."""
    if not conditions and text is None:
        return True
    *key, data, found, position = row
    try:
        content = unpack(seals.check(table, tuple(key), data, found, position))
        if text is not None and not text.matches(_field(content, "content")):
            return False
        return all(_matches(_field(content, path), wanted) for path, wanted in conditions)
    except (WonderError, msgspec.MsgspecError, ValueError, RecursionError):
        return True


def _matches(text: str, wanted: str | tuple[str, ...]) -> bool:
    if isinstance(wanted, tuple):
        return text in wanted if wanted else text != ""
    return text == wanted


def _field(content: bytes, path: str) -> str:
    """Return the text at ``path`` of a JSON object; "" if it has none there."""
    first, *rest = path.split(".")
    try:
        value = _decoder(first).decode(content).value
    except msgspec.ValidationError:
        return ""  # Intact, but not an object.
    for name in rest:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


class _Field(msgspec.Struct):
    value: object = None


@lru_cache(maxsize=64)
def _decoder(name: str) -> msgspec.json.Decoder[_Field]:
    """Return a decoder that builds only the field ``name`` and skips the rest: a turn has 40 fields."""
    return msgspec.json.Decoder(
        msgspec.defstruct("_Named", [("value", object, None)], bases=(_Field,), rename={"value": name})
    )
