"""Payloads of unknown shape: ``google.protobuf.Struct`` to plain JSON values and back, within limits.

A Struct nested deeper than 33 levels can be built but not sent, and its numbers are doubles, in which
2^53 + 1 is 2^53. What comes in is refused beyond `MAX_DEPTH` levels and beyond ±`MAX_INCOMING`, since
from there on nobody can tell which number was meant; whole numbers come in as ``int``: a Struct's 3.0
is 3.

What goes out is what was recorded, and an answer never fails because of it: one such value would make
unreadable every page that it is on. What JSON can say and a Struct cannot carry goes out as text in its
place: what lies deeper than `MAX_DEPTH` levels as its JSON text, an integer beyond ±2^53 as its digits,
what is not finite by its name. A payload above `MAX_OUTGOING_BYTES` is cut, with a notice in place of what is
missing: a client with default limits must be able to receive it.

`check` applies the same to every payload inside a request, and refuses enum numbers that the contract
does not know.
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
from wonder_server.core.schema.payloads import MAX_DEPTH, MAX_INTEGER
from wonder_server.core.truncation import truncate_text, utf8_size

MAX_INCOMING_NUMBER: Final = MAX_INTEGER - 1
MAX_OUTGOING_BYTES: Final = 2 << 20
"""Bytes of one payload that goes out. What is recorded may have 4 MiB as JSON, and a Struct of small numbers
takes seven times as much as its JSON."""
_VALUE_OVERHEAD_BYTES: Final = 20
"""The most bytes that a value takes besides its key and its text."""
_SHORT_TEXT_BYTES: Final = 256
"""Texts of so many bytes go out even where the room for long ones is used up."""

MAX_VALUES: Final = 50_000
"""Values that the payloads of one request may have together: reading one takes microseconds, and nobody else
is served in that time."""
_MIN_VALUE_BYTES: Final = 2
"""An empty Value in a list: its tag and its length."""

_STRUCT: Final = "google.protobuf.Struct"
_VALUE: Final = "google.protobuf.Value"
_LIST: Final = "google.protobuf.ListValue"


def struct_to_dict(struct: Struct, field: str = "") -> dict[str, Any]:
    """The Struct as a dict. ``field`` is its path in the request, for errors.

    Raises PAYLOAD_TOO_DEEP or NUMBER_OUT_OF_RANGE.
    """
    try:
        return _fast_struct(struct, 1)
    except _RejectedError:
        return _plain_struct(struct, field, field, 1)


def value_to_json(value: Value, field: str = "") -> Any:
    """The Value as None, bool, int, float, str, list or dict. An unset Value is None."""
    try:
        return _fast_value(value, 0)
    except _RejectedError:
        return _plain(value, field, field, 0)


def dict_to_struct(values: Mapping[str, Any]) -> Struct:
    """A Struct from JSON-like values (dict, list, tuple, str, bool, int, float, None); text stands for
    what it cannot carry. Raises FIELD_INVALID for what is no JSON at all, such as bytes."""
    struct = Struct()
    if values:
        _fill_struct(struct, values, 1, _SizeBudget())
    return struct


def json_to_value(value: object) -> Value:
    """A Value from a JSON-like value; as `dict_to_struct`."""
    made = Value()
    _fill(made, value, 0, _SizeBudget())
    return made


def check_request(message: Message, size: int) -> None:
    """Refuse a request of ``size`` bytes whose payloads break the limits or whose enums are unknown."""
    if size > MAX_VALUES * _MIN_VALUE_BYTES:
        _count(message)
    _check(message, "")


def too_deep(field: str) -> WonderError:
    """The refusal of a payload that is nested too deeply."""
    return error(
        Reason.PAYLOAD_TOO_DEEP, f"The payload is nested more than {MAX_DEPTH} levels deep.", field=field
    )


# Out of protobuf, first without paths, which cost half of the time and are wanted for errors alone.


class _RejectedError(Exception):
    """The payload is refused; the walk with paths finds out why."""


def _fast_struct(struct: Struct, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise _RejectedError
    return {key: _fast_value(value, depth) for key, value in struct.fields.items()}


def _fast_value(value: Value, depth: int) -> Any:
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


# Out of protobuf. ``root`` is the path of the whole payload, ``path`` where in it the walk is; a number
# is reported where it stands, depth at the root, since such a path would be as long as it is deep.


def _plain_struct(struct: Struct, root: str, path: str, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise too_deep(root)
    return {key: _plain(value, root, _join(path, key), depth) for key, value in struct.fields.items()}


def _plain_list(values: ListValue, root: str, path: str, depth: int) -> list[Any]:
    if depth > MAX_DEPTH:
        raise too_deep(root)
    return [_plain(value, root, f"{path}[{i}]", depth) for i, value in enumerate(values.values)]


def _plain(value: Value, root: str, path: str, depth: int) -> Any:
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
    # Written so that NaN, which compares with nothing, fails as well.
    if not -MAX_INCOMING_NUMBER <= number <= MAX_INCOMING_NUMBER:
        raise _out_of_range(path)
    return int(number) if number == int(number) else number


# Into protobuf.


class _SizeBudget:
    """Bytes that are left for the long texts of a payload, and for all of it."""

    __slots__ = ("for_texts", "left")

    def __init__(self) -> None:
        self.for_texts = MAX_OUTGOING_BYTES * 3 // 4
        self.left = MAX_OUTGOING_BYTES

    def clip(self, text: str) -> str:
        """``text``, cut where it takes more than there is room for."""
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


def _fill_struct(struct: Struct, values: Mapping[str, Any], depth: int, budget: _SizeBudget) -> None:
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


def _fill_list(into: ListValue, values: Sequence[Any], depth: int, budget: _SizeBudget) -> None:
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
        case int():
            if -MAX_INTEGER <= value <= MAX_INTEGER:
                slot.number_value = value
            else:
                slot.string_value = _text_of(value)
        case float():
            if math.isfinite(value):
                slot.number_value = value
            else:
                slot.string_value = _text_of(value)
        case str():
            text = budget.clip(value)
            try:
                slot.string_value = text
            except ValueError:
                slot.string_value = _utf8(text)
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


def _text_of(value: object) -> str:
    """The JSON text of a value."""
    try:
        return _utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain_members))
    except (RecursionError, ValueError):  # Python writes no numbers of more than 4300 digits.
        return "(too much to be shown)"


def _plain_members(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise _not_json()


def _utf8(text: str) -> str:
    """``text`` with halves of surrogate pairs replaced: JSON text may hold them, UTF-8 may not."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _out_of_range(path: str) -> WonderError:
    return error(
        Reason.NUMBER_OUT_OF_RANGE,
        f"Numbers must be finite and within ±{MAX_INCOMING_NUMBER}; send larger ones as text.",
        field=path,
    )


def _not_json() -> WonderError:
    return error(Reason.FIELD_INVALID, "The payload holds something that JSON cannot say.")


# Requests as a whole.


def _count(message: Message) -> None:
    """Raise PAYLOAD_TOO_LARGE if the payloads of a message have more than `MAX_VALUES` values together."""
    left, waiting = MAX_VALUES, [message]
    while waiting:
        found = _child_values(waiting.pop())
        left -= len(found)
        if left < 0:
            raise error(
                Reason.PAYLOAD_TOO_LARGE,
                f"The payloads of the request have more than {MAX_VALUES} values together.",
                limit=str(MAX_VALUES),
            )
        waiting += found


def _child_values(message: Any) -> list[Any]:
    """Return the messages in a message that are values of a payload, or may hold some."""
    match message.DESCRIPTOR.full_name:
        case "google.protobuf.Struct":
            return list(message.fields.values())
        case "google.protobuf.ListValue":
            return list(message.values)
        case "google.protobuf.Value":
            match message.WhichOneof("kind"):
                case "struct_value":
                    return list(message.struct_value.fields.values())
                case "list_value":
                    return list(message.list_value.values)
            return []
    found: list[Any] = []
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


def _check_one(field: FieldDescriptor, item: Any, path: str) -> None:
    kind = _value_type(field)
    if kind.enum_type is not None:
        if item not in kind.enum_type.values_by_number:
            raise error(Reason.FIELD_INVALID, f"{item} is not a value that this field can have.", field=path)
        return
    match item.DESCRIPTOR.full_name:
        case "google.protobuf.Struct":
            struct_to_dict(item, path)
        case "google.protobuf.Value":
            value_to_json(item, path)
        case "google.protobuf.ListValue":
            _plain_list(item, path, path, 1)
        case _:
            _check(item, path)


@cache
def _checked_fields(descriptor: Descriptor) -> tuple[FieldDescriptor, ...]:
    """The fields of a message that hold, at any depth, a payload or an enum."""
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
    """The field itself, or for a map the field of its values."""
    if field.message_type is None or not _is_map(field):
        return field
    return field.message_type.fields_by_name["value"]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
