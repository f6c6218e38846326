"""Conversion between API messages and YAML documents.

A document is the JSON form of a message with snake_case names and enum values as short lower-case words
(``target_type: task``). `read` traverses YAML nodes and not Python values, because only nodes have line
numbers. It reports every fault with its line. It does not convert types: ``yes``, ``5`` and ``2026-01-01``
are text only in quotes.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NoReturn, TypeVar, get_args, get_type_hints

import betterproto2
import yaml

from wonder_sdk._proto.google import protobuf
from wonder_sdk.json_types import JsonDict, JsonValue
from wonder_sdk.transport.encoding import INTEGERS, metadata_of
from wonder_sdk.values import plain

_M = TypeVar("_M", bound=betterproto2.Message)

MAX_FAULTS = 100
"""Maximum number of reported faults, to keep the output readable. `read` drops further ones."""

_MAX_DEPTH = 64
_MAX_INTEGER = 2**53 - 1
_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "seq": "a list",
    "map": "a mapping",
    "timestamp": "a date",
}
_JSON_NAMES = {"is_async": "async"}
"""Fields whose ``json_name`` the API sets. The generated classes do not contain it."""


class DocumentError(Exception):
    """A fault of a document. ``line`` counts from 1; an example of ``path`` is ``task.steps[0].id``."""

    def __init__(self, line: int, path: str, message: str) -> None:
        super().__init__(message)
        self.line, self.path, self.message = line, path, message


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    attribute: str
    proto_type: str
    hint: type
    repeated: bool
    optional: bool
    group: str | None


def read(
    kind: type[_M],
    node: yaml.Node,
    faults: list[DocumentError],
    *,
    path: str = "",
    skip: frozenset[str] = frozenset(),
) -> _M:
    """Return the message of type ``kind`` in ``node``. Keys in ``skip`` are ignored.

    The function adds each fault to ``faults``. The message has the fields without faults.
    """
    known = {each.name: each for each in _fields(kind)}
    values: dict[str, object] = {}
    groups: dict[str, str] = {}
    given = dict(_pairs(node, path, faults))
    for key, child in given.items():
        if key in skip:
            continue
        place, field = _join(path, key), known.get(key)
        if field is None:
            names = sorted(known.keys() - skip)
            meant = closest_field(key, names)
            _note(faults, DocumentError(line(child), place, _unknown(meant, names)))
            if not meant or meant in given:
                continue
            field = known[
                meant
            ]  # read it as the suggested field, so that a required field is not reported as missing
        if field.group is not None:
            if field.group in groups:
                message = f"excludes {groups[field.group]}; remove one of them"
                _note(faults, DocumentError(line(child), place, message))
                continue
            groups[field.group] = key
        try:
            values[field.attribute] = _value(field, child, place, faults)
        except DocumentError as fault:
            _note(faults, fault)
    return kind(**values)


def write(message: betterproto2.Message) -> JsonDict:
    """Return the document of a message without fields at their default."""
    document: JsonDict = {}
    for field in _fields(type(message)):
        value = getattr(message, field.attribute)
        # An unset oneof or optional field is None; a message that is set counts even if it is empty.
        if value is None or (not field.optional and not value):
            continue
        document[field.name] = _plain(value)
    return document


def closest_field(key: str, names: Iterable[str]) -> str:
    """Return the name closest to ``key``, such as ``from_node_id`` for ``from``; empty without one.

    Both begin or end with the same letter: ``version`` is no misspelt ``persona``.
    """
    choices = sorted(names)
    found = difflib.get_close_matches(key[:200], choices, 3)
    near = [name for name in found if name[0] == key[0] or name[-1] == key[-1]]
    near = near or [name for name in choices if key and name.startswith(f"{key}_")]
    return near[0] if near else ""


def line_of(node: yaml.Node, path: str) -> int:
    """Return the line, from 1, of ``path`` or of its closest existing parent."""
    while path:
        below = dict(_below(node))
        # Keys of mappings may contain dots, as in `output_mapping.output.text`.
        names = [name for name in below if re.match(re.escape(name) + r"(?=$|[.\[])", path)]
        if not names:
            break
        name = max(names, key=len)
        node, path = below[name], path[len(name) :].removeprefix(".")
    return line(node)


def _below(node: yaml.Node) -> Iterator[tuple[str, yaml.Node]]:
    """Yield a node's children, each with its part of the path."""
    if isinstance(node, yaml.MappingNode):
        yield from ((str(key.value), child) for key, child in node.value)
    elif isinstance(node, yaml.SequenceNode):
        yield from ((f"[{index}]", child) for index, child in enumerate(node.value))


def line(node: yaml.Node) -> int:
    """Return the line of a node, from 1."""
    return int(node.start_mark.line) + 1


@cache
def _fields(kind: type[betterproto2.Message]) -> tuple[_Field, ...]:
    hints = get_type_hints(kind)
    return tuple(
        _Field(
            # The generator appends an underscore to Python's reserved words.
            name=_JSON_NAMES.get(name, name.removesuffix("_")),
            attribute=name,
            proto_type=meta.proto_type,
            hint=_inner(hints[name]),
            repeated=bool(meta.repeated),
            optional=bool(meta.optional),
            group=meta.group,
        )
        for name, meta in metadata_of(kind).meta_by_field_name.items()
    )


def _inner(hint: type) -> type:
    """Return ``X`` for ``X | None``, ``list[X]`` and ``dict[str, X]``."""
    arguments = [each for each in get_args(hint) if each is not type(None)]
    return _inner(arguments[-1]) if arguments else hint


def _note(faults: list[DocumentError], fault: DocumentError) -> None:
    if len(faults) < MAX_FAULTS:
        faults.append(fault)


def _pairs(node: yaml.Node, path: str, faults: list[DocumentError]) -> Iterator[tuple[str, yaml.Node]]:
    """Yield keys and values of a mapping; of a repeated key only the first."""
    if not isinstance(node, yaml.MappingNode):
        _note(faults, DocumentError(line(node), path, f"must be a mapping, not {_kind(node)}"))
        return
    seen: set[str] = set()
    for key, child in node.value:
        if not isinstance(key, yaml.ScalarNode):
            _note(faults, DocumentError(line(key), path, "a key must be text"))
        elif key.value in seen:
            _note(faults, DocumentError(line(key), _join(path, key.value), "is repeated; remove one"))
        else:
            seen.add(key.value)
            yield key.value, child


def _value(field: _Field, node: yaml.Node, path: str, faults: list[DocumentError]) -> object:
    if field.proto_type == "map":
        return {key: _text(child, _join(path, key), faults) for key, child in _pairs(node, path, faults)}
    if not field.repeated:
        return _one(field, node, path, faults)
    if not isinstance(node, yaml.SequenceNode):
        _refuse(node, path, f"must be a list, not {_kind(node)}")
    if field.proto_type == "string":
        return [_text(child, f"{path}[{index}]", faults) for index, child in enumerate(node.value)]
    return [_one(field, child, f"{path}[{index}]", faults) for index, child in enumerate(node.value)]


def _text(node: yaml.Node, path: str, faults: list[DocumentError]) -> str:
    """Return one text of a list or a mapping; empty for a fault."""
    try:
        return str(_scalar("string", str, node, path))
    except DocumentError as fault:
        _note(faults, fault)
        return ""


def _one(field: _Field, node: yaml.Node, path: str, faults: list[DocumentError]) -> object:
    if field.proto_type != "message":
        return _scalar(field.proto_type, field.hint, node, path)
    if field.hint is protobuf.Struct:
        value = _json(node, path, 0)
        if not isinstance(value, dict):
            _refuse(node, path, f"must be a mapping, not {_kind(node)}")
        return protobuf.Struct.from_dict(value)
    return read(field.hint, node, faults, path=path)


def _scalar(proto_type: str, hint: type, node: yaml.Node, path: str) -> object:
    kind = node.tag.rpartition(":")[2]
    if proto_type == "enum":
        return _enum_value(hint, node, path)
    wanted = "int" if proto_type in INTEGERS else {"string": "str", "double": "float"}.get(proto_type, "bool")
    if kind != wanted and not (wanted == "float" and kind == "int"):
        quotes = _quotes(node) if wanted == "str" else ""
        _refuse(node, path, f"must be {_KINDS[wanted]}, not {_kind(node)}{quotes}")
    value = _construct(node, path)
    if wanted == "int" and isinstance(value, int):
        minimum, maximum = INTEGERS[proto_type]
        if not minimum <= value <= maximum:
            _refuse(node, path, f"must be between {minimum} and {maximum}, not {value}")
    return value


def _enum_value(enum: type[betterproto2.Enum], node: yaml.Node, path: str) -> betterproto2.Enum:
    names = {member.name.lower(): member for member in enum if member.value}
    long = {member.proto_name: member for member in names.values()}
    text = node.value if isinstance(node, yaml.ScalarNode) else ""
    member = names.get(text) or long.get(text)
    if member is None:
        _refuse(node, path, f"must be one of: {', '.join(names)}")
    return member


def _json(node: yaml.Node, path: str, depth: int) -> JsonValue:
    if depth > _MAX_DEPTH:
        _refuse(node, path, "is nested too deeply")
    if isinstance(node, yaml.MappingNode):
        return {key: _json(child, _join(path, key), depth + 1) for key, child in _all_pairs(node, path)}
    if isinstance(node, yaml.SequenceNode):
        return [_json(child, f"{path}[{index}]", depth + 1) for index, child in enumerate(node.value)]
    return _construct(node, path)


def _all_pairs(node: yaml.Node, path: str) -> Iterator[tuple[str, yaml.Node]]:
    """Yield the same pairs as `_pairs`. Raises the first fault."""
    faults: list[DocumentError] = []
    yield from _pairs(node, path, faults)
    if faults:
        raise faults[0]


def _construct(node: yaml.Node, path: str) -> JsonValue:
    """Return the value of a scalar. Raises DocumentError for a type that JSON does not have."""
    if node.tag.rpartition(":")[2] not in ("str", "int", "float", "bool", "null"):
        _refuse(node, path, f"must not be {_kind(node)}; put it in quotes to make it text")
    value = yaml.constructor.SafeConstructor().construct_object(node)
    if isinstance(value, float) and not math.isfinite(value):
        _refuse(node, path, "must be a finite number")
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        _refuse(node, path, "is beyond 2^53; put it in quotes to keep it as text")
    return value


def _plain(value: object) -> JsonValue:
    match value:
        case betterproto2.Enum():
            return value.name.lower()
        case protobuf.Struct() | protobuf.Value() | protobuf.ListValue():
            return plain(value.to_dict())
        case betterproto2.Message():
            return write(value)
        case list():
            return [_plain(each) for each in value]
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case _:
            return value


def _unknown(meant: str, names: list[str]) -> str:
    hint = f"did you mean '{meant}'?" if meant else f"use one of: {', '.join(names)}"
    return f"the field does not exist; {hint}"


def _quotes(node: yaml.Node) -> str:
    """Return a hint for text that YAML reads as another type."""
    if isinstance(node, yaml.ScalarNode) and not node.tag.startswith("!"):
        return "; put it in quotes"
    begin = node.tag[:1] if node.tag.startswith("!") else "[" if isinstance(node, yaml.SequenceNode) else "{"
    return f"; put the whole of an expression that begins with {begin} in quotes"


def _kind(node: yaml.Node) -> str:
    return _KINDS.get(node.tag.rpartition(":")[2], "a YAML tag")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _refuse(node: yaml.Node, path: str, message: str) -> NoReturn:
    raise DocumentError(line(node), path, message)
