"""Conversion between messages and documents: the JSON form of definition files.

Names are snake_case, or the ``json_name`` that the contract gives a field (``is_async`` is ``async``). Enum
values are short lower-case words (``TARGET_TYPE_TASK`` is ``task``), ``Struct`` is plain JSON, and only set
fields are written. The descriptors drive the conversion, so a new field of the contract needs no code here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct

from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.rpc.shared.payload import dict_to_struct, struct_to_dict


def to_document(message: Message, path: str = "") -> JsonDict:
    """Return the document of a message. ``path`` is its path in the request, for errors of payloads."""
    document = {}
    for field, value in message.ListFields():
        name = _names(field.containing_type)[field.name]
        document[name] = _plain(field, value, f"{path}.{name}" if path else name)
    return document


def fill_from_document(message: Message, document: JsonObject) -> None:
    """Set the fields of ``message`` that the document names. Names and types must match."""
    fields = _fields(message.DESCRIPTOR)
    for key, value in document.items():
        field = fields[key]
        name = field.name
        if _is_map(field):
            getattr(message, name).update(value)
        elif field.is_repeated:
            _fill_list(getattr(message, name), field, value)
        elif field.message_type is None:
            setattr(message, name, enum_number(field.enum_type, value) if field.enum_type else value)
        else:
            _fill_message(getattr(message, name), value)


def enum_name(enum: EnumDescriptor, number: int) -> str:
    """Return the short word of an enum value; "" for "unspecified" and for an unknown number."""
    value = enum.values_by_number.get(number)
    return value.name.removeprefix(_prefix(enum)).lower() if value is not None and number else ""


def enum_number(enum: EnumDescriptor, name: str) -> int:
    """Return the number of the enum value with this short word."""
    return int(enum.values_by_name[_prefix(enum) + name.upper()].number)


def _plain(field: FieldDescriptor, value: Any, path: str) -> JsonValue:
    if _is_map(field):
        return dict(value)
    if field.is_repeated:
        return [_plain_one(field, item, f"{path}[{index}]") for index, item in enumerate(value)]
    return _plain_one(field, value, path)


def _plain_one(field: FieldDescriptor, value: Any, path: str) -> JsonValue:
    if isinstance(value, Struct):
        return struct_to_dict(value, path)
    if isinstance(value, Message):
        return to_document(value, path)
    return enum_name(field.enum_type, value) if field.enum_type else value


def _fill_list(target: Any, field: FieldDescriptor, items: Iterable[JsonValue]) -> None:
    for item in items:
        if field.message_type is None:
            target.append(enum_number(field.enum_type, item) if field.enum_type else item)
        else:
            _fill_message(target.add(), item)


def _fill_message(message: Message, document: JsonObject) -> None:
    if isinstance(message, Struct):
        message.CopyFrom(dict_to_struct(document))
    else:
        message.SetInParent()
        fill_from_document(message, document)


@cache
def _names(descriptor: Descriptor) -> Mapping[str, str]:
    """Return the name in documents of each field, by its name in the contract."""
    return {field.name: _document_name(field) for field in descriptor.fields}


@cache
def _fields(descriptor: Descriptor) -> Mapping[str, FieldDescriptor]:
    """Return the fields of a message by their names in documents."""
    return {_document_name(field): field for field in descriptor.fields}


def _document_name(field: FieldDescriptor) -> str:
    """Return the ``json_name`` of a field where the contract sets one, else its name."""
    first, *rest = field.name.split("_")
    derived = first + "".join(word.capitalize() for word in rest)
    return str(field.name if field.json_name == derived else field.json_name)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


@cache
def _prefix(enum: EnumDescriptor) -> str:
    """Return the prefix of the names of the enum's values: ``TARGET_TYPE_`` for ``TargetType``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
