"""JSON Schemas of Python types, and conversion of their values from and to JSON.

===========================  =====================================================
``str int float bool None``  the JSON type of the same name
``list[T] dict[str, T]``     a list, an object of T
``Literal["a", "b"]``        one of these values
``T | None``, ``A | B``      one of the types
``Annotated[T, "…"]``        T, with a description
a dataclass, a TypedDict     an object with these fields, required unless they have a default
``Any``, ``dict``, ``list``  anything, any object, any list
===========================  =====================================================

Other types raise `TypeError`: pass their schema explicitly.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from wonder_sdk.json_types import JsonDict, JsonValue

_SIMPLE: dict[object, JsonDict] = {
    Any: {},
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
}
_LISTS = (list, tuple, Sequence)
_OBJECTS = (dict, Mapping)


def schema_of(kind: object) -> JsonDict:
    """Return the schema of a type. Raises TypeError for an unsupported type."""
    return _schema(kind, ())


def read(kind: object, value: JsonValue) -> object:
    """Convert JSON that matches the schema of ``kind`` to a value of that type."""
    kind, origin, arguments = _type_parts(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and isinstance(value, Mapping):
        hints = get_type_hints(kind, include_extras=True)
        names = [field.name for field in dataclasses.fields(kind) if field.init]
        return kind(**{name: read(hints[name], value[name]) for name in names if name in value})
    if is_typeddict(kind) and isinstance(value, Mapping):
        hints = get_type_hints(kind, include_extras=True)
        return {name: read(hints.get(name, Any), each) for name, each in value.items()}
    if origin in _LISTS and isinstance(value, list):
        items = [read(arguments[0], each) for each in value]
        return tuple(items) if origin is tuple else items
    if origin in _OBJECTS and isinstance(value, Mapping):
        return {name: read(arguments[1], each) for name, each in value.items()}
    if origin in (Union, types.UnionType):
        options = [each for each in arguments if each is not type(None)]
        return value if value is None or len(options) != 1 else read(options[0], value)
    return value


def write(value: object) -> JsonValue:
    """Convert ``value`` to JSON: dataclasses become objects, tuples become lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: write(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: write(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [write(each) for each in value]
    return value


def _type_parts(kind: object) -> tuple[object, object, tuple[object, ...]]:
    while get_origin(kind) in (Annotated, Required, NotRequired):
        kind = get_args(kind)[0]
    return kind, get_origin(kind), get_args(kind)


def _schema(kind: object, within: tuple[object, ...]) -> JsonDict:
    if get_origin(kind) is Annotated:
        inner, *notes = get_args(kind)
        description = next((note for note in notes if isinstance(note, str)), "")
        return _schema(inner, within) | ({"description": description} if description else {})
    kind, origin, arguments = _type_parts(kind)
    if isinstance(kind, types.NoneType) or (isinstance(kind, type) and kind in _SIMPLE) or kind is Any:
        return dict(_SIMPLE[kind])
    if kind in within:
        raise TypeError(f"{_name(kind)} contains itself. Pass its schema as input_schema or output_schema.")
    if dataclasses.is_dataclass(kind) or is_typeddict(kind):
        return _object(kind, (*within, kind))
    if kind in _LISTS or kind in _OBJECTS:
        return {"type": "array" if kind in _LISTS else "object"}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(each, within) for each in arguments]}
    if (origin in (list, Sequence)) or (origin is tuple and arguments[1:] == (...,)):
        return {"type": "array", "items": _schema(arguments[0], within)}
    if origin in _OBJECTS and arguments[0] is str:
        return {"type": "object", "additionalProperties": _schema(arguments[1], within)}
    raise TypeError(f"{_name(kind)} has no JSON Schema. Pass its schema as input_schema or output_schema.")


def _object(kind: object, within: tuple[object, ...]) -> JsonDict:
    hints = get_type_hints(kind, include_extras=True)
    required: list[str] = []
    if is_typeddict(kind):
        required = [name for name, hint in hints.items() if _is_required(kind, name, hint)]
    elif dataclasses.is_dataclass(kind):
        fields = [field for field in dataclasses.fields(kind) if field.init]
        hints = {field.name: hints[field.name] for field in fields}
        missing = dataclasses.MISSING
        required = [
            field.name for field in fields if field.default is missing and field.default_factory is missing
        ]
    schema: JsonDict = {
        "type": "object",
        "properties": {name: _schema(hint, within) for name, hint in hints.items()},
    }
    return schema | ({"required": required} if required else {})


def _is_required(kind: object, name: str, hint: object) -> bool:
    # ``__required_keys__`` ignores the two markers in a module with postponed annotations.
    origin = get_origin(hint)
    return origin is Required or (
        origin is not NotRequired and name in getattr(kind, "__required_keys__", ())
    )


def _name(kind: object) -> str:
    return getattr(kind, "__name__", None) or str(kind)
