"""Conversion between JSON and specs, for YAML files, the contract and the catalog.

A document is the JSON form of the contract's message: snake_case names, enum values as lower-case words
(``task``, ``continue``). The dataclasses in `specs` drive the conversion, so each field is declared once.
Every fault of a document is reported, each with its path (``nodes[2].input_mapping.query``). `document` reads
a whole definition, which contains a spec.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from wonder_server.core.definitions.fault_list import FaultList, join
from wonder_server.core.definitions.specs import (
    Action,
    Kind,
    ModelProfile,
    Persona,
    Spec,
    Task,
    Tool,
    Workflow,
)
from wonder_server.core.errors import Fault, WonderError
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.suggestions import did_you_mean

SPEC_TYPES: dict[Kind, type[Spec]] = {
    Kind.PERSONA: Persona,
    Kind.TOOL: Tool,
    Kind.WORKFLOW: Workflow,
    Kind.TASK: Task,
    Kind.ACTION: Action,
    Kind.MODEL_PROFILE: ModelProfile,
}
R = TypeVar("R")

TypeHint: TypeAlias = Any
"""The annotation of a spec's field. The type system has no type for annotations."""

FieldValue: TypeAlias = Any
"""A value of a spec's field: JSON, an enum member, a record, or a tuple or dict of these."""

_KINDS = {spec_type: kind for kind, spec_type in SPEC_TYPES.items()}

LATER: dict[type[object], frozenset[str]] = {}
"""Fields of the contract that this server does not support yet. They are refused and not ignored."""

MAX_PAYLOAD_DEPTH = 30
MAX_INTEGER = 2**53 - 1


def kind_of(spec: Spec) -> Kind:
    """Return the kind that this spec defines."""
    return _KINDS[type(spec)]


def parse_spec(kind: Kind, document: JsonObject, *, path: str = "") -> Spec:
    """Return the spec of ``document``.

    Raises DEFINITION_INVALID (``faults`` lists every place) for unknown or missing fields and wrong types.
    `check.check_spec` checks the values. ``path`` is the prefix of every field path.
    """
    spec: Spec = read_record(SPEC_TYPES[kind], document, path=path)
    return spec


def parse_spec_lenient(kind: Kind, document: JsonObject, *, path: str = "") -> tuple[Spec, tuple[Fault, ...]]:
    """Return the spec of ``document`` and its faults. An unreadable value counts as left out.

    Never raises. The caller can check the readable part and report further faults.
    """
    reader = _Reader()
    spec: Spec = reader.record(SPEC_TYPES[kind], document, path)
    return spec, reader.faults.found()


def read_record(shape: type[R], document: JsonObject, *, path: str = "") -> R:
    """Return the dataclass of type ``shape`` that ``document`` contains. Raises as `parse_spec`.

    A type with a form of its own has ``to_document`` and ``from_document``.
    """
    reader = _Reader()
    record: R = reader.record(shape, document, path)
    if found := reader.faults.found():
        raise WonderError(found[0], faults=found)
    return record


def to_json(spec: object) -> JsonDict:
    """Return the document of a spec or another dataclass, without fields that have their default."""
    document: JsonDict = {}
    shape: TypeHint = type(spec)
    for entry in _layout(shape):
        value = getattr(spec, entry.attribute)
        if entry.required or value != entry.default:
            document[entry.name] = _plain(value)
    return document


def canonical(value: JsonValue) -> str:
    """Return the canonical text of a JSON value: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain(value: FieldValue) -> JsonValue:
    if spelled := getattr(value, "to_document", None):
        return spelled()
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if hasattr(type(value), "__dataclass_fields__"):
        return to_json(value)
    return value


@dataclass(frozen=True, slots=True)
class _Entry:
    """One field of a spec: its name in documents, its attribute, its type and its default."""

    name: str
    attribute: str
    hint: TypeHint
    required: bool
    default: FieldValue


@cache
def _layout(spec_type: TypeHint) -> tuple[_Entry, ...]:
    hints = get_type_hints(spec_type)
    entries = []
    for item in fields(spec_type):
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        # Python reserves ``async``; see specs.
        name = "async" if item.name == "is_async" else item.name
        entries.append(_Entry(name, item.name, hints[item.name], default is MISSING, default))
    return tuple(entries)


_UNREAD: Final[FieldValue] = object()
"""Stands for a refused value."""


def _blank(hint: TypeHint) -> FieldValue:
    """Return a placeholder for a missing value in a record that has faults."""
    origin: TypeHint = get_origin(hint)
    if origin in (Union, types.UnionType) or hint is Any:
        return None
    if hasattr(hint, "__dataclass_fields__"):
        return hint(**{entry.attribute: _blank(entry.hint) for entry in _layout(hint) if entry.required})
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return next(iter(hint))
    return (origin or hint)()


class _Reader:
    """Reader of one document; collects faults."""

    def __init__(self) -> None:
        self.faults = FaultList()
        self.refuse = self.faults.refuse

    def record(self, spec_type: TypeHint, document: JsonValue, path: str) -> FieldValue:
        if not isinstance(document, Mapping):
            self.refuse(path, f"{_place(path)} must be an object, not {_type_name(document)}.")
            return _blank(spec_type)
        if read := getattr(spec_type, "from_document", None):
            return read(document)
        layout = _layout(spec_type)
        names = {entry.name for entry in layout}
        for unknown in sorted(str(key) for key in document if key not in names):
            self.refuse(join(path, unknown), _unknown(spec_type, unknown, _place(path), sorted(names)))
        values: dict[str, FieldValue] = {}
        for entry in layout:
            if entry.name in document:
                value = self.value(entry.hint, document[entry.name], join(path, entry.name))
                if value is not _UNREAD:
                    values[entry.attribute] = value
            elif entry.required:
                self.refuse(join(path, entry.name), f"{join(path, entry.name)} is required.")
            if entry.required and entry.attribute not in values:
                values[entry.attribute] = _blank(entry.hint)
        return spec_type(**values)

    def value(self, hint: TypeHint, raw: JsonValue, path: str) -> FieldValue:
        origin: TypeHint = get_origin(hint)
        if origin is tuple:
            return self.sequence(get_args(hint)[0], raw, path)
        if origin is dict:
            return self.mapping(get_args(hint)[1], raw, path)
        if origin in (Union, types.UnionType):  # An optional record, such as Step.action.
            hint = next(arm for arm in get_args(hint) if arm is not type(None))
        if hint is Any:
            return self.payload(raw, path, 1)
        if hasattr(hint, "__dataclass_fields__") or hasattr(hint, "from_document"):
            return self.record(hint, raw, path)
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            return self.word(hint, raw, path)
        return self.scalar(hint, raw, path)

    def sequence(self, hint: TypeHint, raw: JsonValue, path: str) -> tuple[FieldValue, ...]:
        if not isinstance(raw, (list, tuple)):
            self.refuse(path, f"{path} must be a list, not {_type_name(raw)}.")
            return ()
        read = (self.value(hint, item, f"{path}[{index}]") for index, item in enumerate(raw))
        return tuple(_blank(hint) if value is _UNREAD else value for value in read)

    def mapping(self, hint: TypeHint, raw: JsonValue, path: str) -> dict[str, FieldValue]:
        if not isinstance(raw, Mapping):
            self.refuse(path, f"{path} must be an object, not {_type_name(raw)}.")
            return {}
        read = {key: self.value(hint, item, join(path, key)) for key, item in self.pairs(raw, path)}
        return {key: _blank(hint) if value is _UNREAD else value for key, value in read.items()}

    def pairs(self, raw: Mapping[JsonValue, JsonValue], path: str) -> Iterator[tuple[str, JsonValue]]:
        # Sorted: the order of the contract's maps differs between processes, but prompts, exports and diffs
        # must not differ.
        for key, item in sorted(raw.items(), key=lambda pair: str(pair[0])):
            if isinstance(key, str):
                yield key, item
            else:
                self.refuse(path, f"{path} has the key {key!r}; put keys in quotes: they must be text.")

    def word(self, words: type[StrEnum], raw: JsonValue, path: str) -> FieldValue:
        try:
            return words(raw)
        except ValueError:
            self.refuse(path, f"{path} must be one of: {', '.join(words)}.")
            return _UNREAD

    def scalar(self, hint: TypeHint, raw: JsonValue, path: str) -> FieldValue:
        if hint is int and isinstance(raw, float) and raw.is_integer():
            raw = int(raw)
        if hint is float and isinstance(raw, int) and not isinstance(raw, bool):
            raw = float(raw)
        # A bool is an int in Python, but not in a document.
        if not isinstance(raw, hint) or (hint is int and isinstance(raw, bool)):
            wanted = {str: "text", int: "a whole number", bool: "true or false", float: "a number"}[hint]
            self.refuse(path, f"{path} must be {wanted}, not {_type_name(raw)}.")
            return _UNREAD
        if hint is float and not math.isfinite(raw):
            self.refuse(path, f"{path} must be a finite number.")
        if hint is int and abs(raw) > MAX_INTEGER:
            self.refuse(path, f"{path} is too large: at most {MAX_INTEGER}.")
        return raw

    def payload(self, raw: JsonValue, path: str, depth: int) -> FieldValue:
        """Read JSON of any shape within the limits of a ``Struct``. Whole numbers become integers."""
        if depth > MAX_PAYLOAD_DEPTH:
            self.refuse(path, f"{path} is nested deeper than {MAX_PAYLOAD_DEPTH} levels.")
            return None
        if isinstance(raw, Mapping):
            return {
                key: self.payload(item, join(path, key), depth + 1) for key, item in self.pairs(raw, path)
            }
        if isinstance(raw, (list, tuple)):
            return [self.payload(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(raw)]
        if isinstance(raw, float) and raw.is_integer():
            raw = int(raw)
        if isinstance(raw, (int, float)) and not (math.isfinite(raw) and abs(raw) <= MAX_INTEGER):
            self.refuse(path, f"{path} is a number beyond what can be kept exactly (2^53).")
        elif raw is not None and not isinstance(raw, (str, bool, int, float)):
            self.refuse(path, f"{path} must be JSON; put {_type_name(raw)} in quotes to make it text.")
        return raw


def _unknown(spec_type: TypeHint, name: str, place: str, names: list[str]) -> str:
    if name in LATER.get(spec_type, ()):
        return f"'{name}' is part of the contract, but this server does not support it yet; leave it out."
    meant = did_you_mean(name, names)
    return f"'{name}' is not a field of {place}{meant}; its fields are: {', '.join(names)}."


def _place(path: str) -> str:
    return path or "the definition"


def _type_name(value: JsonValue) -> str:
    """Return the type of ``value`` in an author's words."""
    if value is None:
        return "nothing"
    for candidates, name in (
        (bool, "true or false"),
        (str, "text"),
        ((int, float), "a number"),
        (Mapping, "an object"),
        ((list, tuple), "a list"),
    ):
        if isinstance(value, candidates):
            return name
    return "a date or other special value"
