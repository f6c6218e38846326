"""JSON as the contract carries it (`Struct`, `Value`), and as Python has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wonder_sdk._proto.google import protobuf
from wonder_sdk.transport.encoding import checked


def to_struct(value: Mapping[str, Any] | None, field: str = "") -> protobuf.Struct | None:
    """Return a mapping for the wire; None stays None. Raises `RequestError`, which names ``field``, for
    anything else and for values that JSON does not have."""
    return None if value is None else checked(value, protobuf.Struct, field)


def to_value(value: Any, field: str = "") -> protobuf.Value:
    """Return anything that JSON has, for the wire. Raises `RequestError`, which names ``field``, for other
    values."""
    return checked(value, protobuf.Value, field)


def from_struct(value: protobuf.Struct | None) -> dict[str, Any]:
    """An object off the wire; one that is not there is empty."""
    return {} if value is None else plain(value.to_dict())


def from_value(value: protobuf.Value | None) -> Any:
    """A value off the wire; one that is not there is None."""
    return None if value is None else plain(value.to_dict())


def plain(value: Any) -> Any:
    """JSON off the wire, where every number is a double and keys have no order: whole numbers as such, keys
    by the alphabet."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: plain(value[key]) for key in sorted(value)}
        case list():
            return [plain(each) for each in value]
        case _:
            return value
