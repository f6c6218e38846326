"""Conversion of payloads of unknown shape between ``google.protobuf.Struct`` and JSON values, within limits.

A Struct nested deeper than 33 levels can be built but not sent, and its numbers are doubles, in which 2^53 +
1 equals 2^53. Incoming payloads with more than `MAX_DEPTH` levels are rejected. So are numbers beyond
±`MAX_INCOMING_NUMBER`, because rounding makes them ambiguous. Whole numbers become ``int``: a Struct's 3.0 is
3.

Outgoing payloads were recorded and never make an answer fail: one such value would make every page that holds
it unreadable. A value that a Struct cannot carry is sent as text: a value deeper than `MAX_DEPTH` levels as
its JSON text, an integer beyond ±2^53 as its digits, a number that is not finite as its name. A payload above
`MAX_OUTGOING_BYTES` is cut and a notice names the missing part, so that a client with default limits can
receive it.

`check_request` applies the incoming limits to every payload of a request, and rejects enum numbers that the
contract does not define.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import ListValue, Struct, Value

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.schema.payloads import MAX_DEPTH, MAX_INTEGER
from wonder_server.core.schema.truncation import truncate_text, utf8_size

MAX_INCOMING_NUMBER: Final = MAX_INTEGER - 1
MAX_OUTGOING_BYTES: Final = 2 << 20
"""Maximum size of one outgoing payload.

A recorded payload can have 4 MiB as JSON, and a Struct of small numbers is seven times as large as its JSON.
"""
_VALUE_OVERHEAD_BYTES: Final = 20
"""Maximum size of a value without its key and its text."""
_SHORT_TEXT_BYTES: Final = 256
"""Texts up to this size are sent even if the budget for long texts is used up."""

MAX_VALUES: Final = 50_000
"""Maximum number of values in the payloads of one request.

Reading one takes microseconds, in which the server serves no other call.
"""
_MIN_VALUE_BYTES: Final = 2
"""Size of an empty Value in a list: its tag and its length."""

_STRUCT: Final = "google.protobuf.Struct"
_VALUE: Final = "google.protobuf.Value"
_LIST: Final = "google.protobuf.ListValue"


def struct_to_dict(struct: Struct, field: str = "") -> JsonDict:
    """Convert a Struct to a dict. ``field`` is its path in the request, for errors.

    Raises PAYLOAD_TOO_DEEP or NUMBER_OUT_OF_RANGE.
    """
    try:
        return _fast_struct(struct, 1)
    except _RejectedError:
        return _plain_struct(struct, field, field, 1)


def value_to_json(value: Value, field: str = "") -> JsonValue:
    """Convert a Value to None, bool, int, float, str, list or dict.

    An unset Value is None. Raises as `struct_to_dict`.
    """
    try:
        return _fast_value(value, 0)
    except _RejectedError:
        return _plain(value, field, field, 0)


def dict_to_struct(values: JsonObject) -> Struct:
    """Convert JSON-like values (dict, list, tuple, str, bool, int, float, None) to a Struct.

    Values that a Struct cannot carry become text. Raises FIELD_INVALID for values that JSON does not have,
    such as bytes.
    """
    struct = Struct()
    if values:
        _fill_struct(struct, values, 1, _SizeBudget())
    return struct


def json_to_value(value: object) -> Value:
    """Convert a JSON-like value to a Value; see `dict_to_struct`."""
    made = Value()
    _fill(made, value, 0, _SizeBudget())
    return made


def check_request(message: Message, size: int) -> None:
    """Check the payloads and enum numbers of a request of ``size`` bytes.

    Raises PAYLOAD_TOO_LARGE, PAYLOAD_TOO_DEEP, NUMBER_OUT_OF_RANGE or FIELD_INVALID.
    """
    if size > MAX_VALUES * _MIN_VALUE_BYTES:
        _count(message)
    _check(message, "")


def too_deep(field: str) -> WonderError:
    """Return the error for a payload that is nested too deeply."""
    return error(
        Reason.PAYLOAD_TOO_DEEP, f"The payload is nested more than {MAX_DEPTH} levels deep.", field=field
    )


# From protobuf without paths: paths take half of the time, and only errors need them.


class _RejectedError(Exception):
    """The payload is invalid; the walk with paths finds the field."""


def _fast_struct(struct: Struct, depth: int) -> JsonDict:
    if depth > MAX_DEPTH:
        raise _RejectedError
    return {key: _fast_value(value, depth) for key, value in struct.fields.items()}


def _fast_value(value: Value, depth: int) -> JsonValue:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return value.string_value
    if kind == "number_value":
        number = value.number_value
        if not -MAX_INCOMING_NUMBER <= number <= MAX_INCOMING_NUMBER:
            raise _RejectedError
        return int(number) if number == int(number) else number
    if kind == "bool_value":
        return value.bool_value
    if kind == "struct_value":
        return _fast_struct(value.struct_value, depth + 1)
    if kind == "list_value":
        if depth + 1 > MAX_DEPTH:
            raise _RejectedError
        return [_fast_value(item, depth + 1) for item in value.list_value.values]
    return None


# From protobuf with paths. ``root`` is the path of the payload, ``path`` the current position in it. Number
# errors name ``path``; depth errors name ``root``, because a path of that depth is too long.


def _plain_struct(struct: Struct, root: str, path: str, depth: int) -> JsonDict:
    if depth > MAX_DEPTH:
        raise too_deep(root)
    return {key: _plain(value, root, _join(path, key), depth) for key, value in struct.fields.items()}


def _plain_list(values: ListValue, root: str, path: str, depth: int) -> list[JsonValue]:
    if depth > MAX_DEPTH:
        raise too_deep(root)
    return [_plain(value, root, f"{path}[{i}]", depth) for i, value in enumerate(values.values)]


def _plain(value: Value, root: str, path: str, depth: int) -> JsonValue:
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "number_value":
            return _checked_number(value.number_value, path)
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return _plain_struct(value.struct_value, root, path, depth + 1)
        case "list_value":
            return _plain_list(value.list_value, root, path, depth + 1)
        case _:
            return None


def _checked_number(number: float, path: str) -> int | float:
    # Written so that NaN, for which every comparison is false, fails too.
    if not -MAX_INCOMING_NUMBER <= number <= MAX_INCOMING_NUMBER:
        raise _out_of_range(path)
    return int(number) if number == int(number) else number


# To protobuf.


class _SizeBudget:
    """Bytes that remain for the long texts of a payload, and for the whole payload."""

    __slots__ = ("for_texts", "left")

    def __init__(self) -> None:
        self.for_texts = MAX_OUTGOING_BYTES * 3 // 4
        self.left = MAX_OUTGOING_BYTES

    def clip(self, text: str) -> str:
        """Return ``text``, cut to the remaining budget for texts."""
        size = utf8_size(text)
        if size > _SHORT_TEXT_BYTES:
            if size > self.for_texts:
                text, size = (
                    truncate_text(text, max(_SHORT_TEXT_BYTES, self.for_texts)),
                    max(_SHORT_TEXT_BYTES, self.for_texts),
                )
            self.for_texts -= size
        self.left -= size
        return text


def _fill_struct(struct: Struct, values: JsonObject, depth: int, budget: _SizeBudget) -> None:
    left = len(values)
    for key, value in values.items():
        if not isinstance(key, str):
            raise _not_json()
        budget.left -= _VALUE_OVERHEAD_BYTES + len(key)
        if budget.left < 0:
            struct.fields["cut"].string_value = f"[Cut: {left} of {len(values)} members are left out here.]"
            return
        left -= 1
        try:
            slot = struct.fields[key]
        except ValueError:
            slot = struct.fields[_utf8(key)]
        _fill(slot, value, depth, budget)


def _fill_list(into: ListValue, values: Sequence[object], depth: int, budget: _SizeBudget) -> None:
    for count, item in enumerate(values):
        budget.left -= _VALUE_OVERHEAD_BYTES
        if budget.left < 0:
            notice = f"[Cut: {len(values) - count} of {len(values)} items are left out here.]"
            into.values.add().string_value = notice
            return
        _fill(into.values.add(), item, depth, budget)


def _fill(slot: Value, value: object, depth: int, budget: _SizeBudget) -> None:
    match value:
        case None:
            slot.null_value = 0  # type: ignore[assignment]
        case bool():
            slot.bool_value = value
        case int() | float():
            _fill_number(slot, value)
        case str():
            _fill_text(slot, budget.clip(value))
        case Mapping() | list() | tuple() if depth >= MAX_DEPTH:
            slot.string_value = budget.clip(_text_of(value))
        case Mapping():
            slot.struct_value.SetInParent()
            _fill_struct(slot.struct_value, value, depth + 1, budget)
        case list() | tuple():
            slot.list_value.SetInParent()
            _fill_list(slot.list_value, value, depth + 1, budget)
        case _:
            raise _not_json()


def _fill_number(slot: Value, number: int | float) -> None:
    is_exact = -MAX_INTEGER <= number <= MAX_INTEGER if isinstance(number, int) else math.isfinite(number)
    if is_exact:
        slot.number_value = number
    else:
        slot.string_value = _text_of(number)


def _fill_text(slot: Value, text: str) -> None:
    try:
        slot.string_value = text
    except ValueError:
        slot.string_value = _utf8(text)


def _text_of(value: object) -> str:
    """Return the JSON text of a value."""
    try:
        return _utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain_members))
    except (RecursionError, ValueError):  # Python does not convert integers of more than 4300 digits.
        return "(too much to be shown)"


def _plain_members(value: object) -> JsonDict:
    if isinstance(value, Mapping):
        return dict(value)
    raise _not_json()


def _utf8(text: str) -> str:
    """Replace the unpaired surrogates in ``text``: JSON text may contain them, UTF-8 may not."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _out_of_range(path: str) -> WonderError:
    return error(
        Reason.NUMBER_OUT_OF_RANGE,
        f"Numbers must be finite and within ±{MAX_INCOMING_NUMBER}; send larger ones as text.",
        field=path,
    )


def _not_json() -> WonderError:
    return error(Reason.FIELD_INVALID, "The payload contains a value that JSON cannot represent.")


# Checks of a whole request.


def _count(message: Message) -> None:
    """Raise PAYLOAD_TOO_LARGE if the payloads of a message have more than `MAX_VALUES` values together."""
    left, pending = MAX_VALUES, [message]
    while pending:
        found = _child_values(pending.pop())
        left -= len(found)
        if left < 0:
            raise error(
                Reason.PAYLOAD_TOO_LARGE,
                f"The payloads of the request have more than {MAX_VALUES} values in total.",
                limit=str(MAX_VALUES),
            )
        pending += found


def _child_values(message: Message) -> list[Message]:
    """Return the messages in a message that are values of a payload, or can contain them."""
    match message:
        case Struct():
            return list(message.fields.values())
        case ListValue():
            return list(message.values)
        case Value():
            match message.WhichOneof("kind"):
                case "struct_value":
                    return list(message.struct_value.fields.values())
                case "list_value":
                    return list(message.list_value.values)
            return []
    found: list[Message] = []
    for field in _checked_fields(message.DESCRIPTOR):
        if _value_type(field).message_type is None:
            continue
        if field.is_repeated:
            found += [item for _, item in _items(field, getattr(message, field.name))]
        elif message.HasField(field.name):
            found.append(getattr(message, field.name))
    return found


def _check(message: Message, path: str) -> None:
    for field in _checked_fields(message.DESCRIPTOR):
        name = _join(path, field.name)
        if field.is_repeated:
            for at, item in _items(field, getattr(message, field.name)):
                _check_one(field, item, f"{name}[{at}]")
        elif not field.has_presence or message.HasField(field.name):
            _check_one(field, getattr(message, field.name), name)


def _items(field: FieldDescriptor, container: Any) -> list[tuple[object, Any]]:
    if _is_map(field):
        return [(key, container[key]) for key in container]
    return list(enumerate(container))


def _check_one(field: FieldDescriptor, item: object, path: str) -> None:
    kind = _value_type(field)
    if kind.enum_type is not None:
        if item not in kind.enum_type.values_by_number:
            raise error(
                Reason.FIELD_INVALID, f"{item} is not a value of the enum {kind.enum_type.name}.", field=path
            )
        return
    match item:
        case Struct():
            struct_to_dict(item, path)
        case Value():
            value_to_json(item, path)
        case ListValue():
            _plain_list(item, path, path, 1)
        case Message():
            _check(item, path)


@cache
def _checked_fields(descriptor: Descriptor) -> tuple[FieldDescriptor, ...]:
    """Return the fields of a message that contain, at any depth, a payload or an enum."""
    return tuple(field for field in descriptor.fields if _needs_check(_value_type(field), frozenset()))


def _needs_check(field: FieldDescriptor, seen: frozenset[str]) -> bool:
    if field.enum_type is not None:
        return True
    if field.message_type is None or field.message_type.full_name in seen:
        return False
    name = field.message_type.full_name
    if name in (_STRUCT, _VALUE, _LIST):
        return True
    inner = seen | {name}
    return any(_needs_check(_value_type(each), inner) for each in field.message_type.fields)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _value_type(field: FieldDescriptor) -> FieldDescriptor:
    """Return the field, or for a map the field of its values."""
    if field.message_type is None or not _is_map(field):
        return field
    return field.message_type.fields_by_name["value"]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
