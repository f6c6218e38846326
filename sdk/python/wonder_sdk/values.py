"""Conversion between values of Python and those of the contract: JSON (`Struct`, `Value`), parts of
messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from wonder_sdk._proto.google import protobuf
from wonder_sdk._proto.wonder import v1
from wonder_sdk.json_types import JsonDict, JsonObject, JsonValue
from wonder_sdk.transport.encoding import checked


def to_struct(value: JsonObject | None, field: str = "") -> protobuf.Struct | None:
    """Convert a mapping to a Struct; None stays None.

    Raises `RequestError`, which names ``field``, for other types and for values that JSON does not have.
    """
    return None if value is None else checked(value, protobuf.Struct, field)


def to_value(value: JsonValue, field: str = "") -> protobuf.Value:
    """Convert a JSON value to a Value.

    Raises `RequestError`, which names ``field``, for values that JSON does not have.
    """
    return checked(value, protobuf.Value, field)


def from_struct(value: protobuf.Struct | None) -> JsonDict:
    """Convert a Struct to a dict; None becomes an empty dict."""
    return {} if value is None else plain(value.to_dict())


def from_value(value: protobuf.Value | None) -> JsonValue:
    """Convert a Value to a JSON value; None stays None."""
    return None if value is None else plain(value.to_dict())


def plain(value: JsonValue) -> JsonValue:
    """Normalize decoded JSON: whole numbers become int, and keys are sorted.

    A Struct stores each number as a double, and its keys have no order.
    """
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: plain(value[key]) for key in sorted(value)}
        case list():
            return [plain(each) for each in value]
        case _:
            return value


PartLike: TypeAlias = "str | v1.File | v1.ContentPart"
"""A part of a message: a text, an uploaded file, or a part of the contract."""

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def content_parts(parts: Sequence[PartLike]) -> list[v1.ContentPart]:
    """Return parts in the form of the contract."""
    return [_content_part(part) for part in parts]


def _content_part(part: PartLike) -> v1.ContentPart:
    if isinstance(part, str):
        return v1.ContentPart(text=part)
    if isinstance(part, v1.File):
        named = v1.FilePart(file_id=part.id)
        if part.media_type in _IMAGES:
            return v1.ContentPart(image=named)
        return v1.ContentPart(file=named)
    return part
