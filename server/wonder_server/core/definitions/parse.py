"""JSON to specs and back: one strict reading for YAML files, the contract and the catalog.

A document is the JSON form of the contract's message: snake_case names, enum values as short
lower-case words (``task``, ``continue``). Reading is driven by the dataclasses in `specs`, so a field
exists in exactly one place. It reports every fault of a document at once, each with its path
(``nodes[2].input_mapping.query``). `document` reads a whole definition, of which a spec is the part
that says what it does.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

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
from wonder_server.core.suggestions import did_you_mean

SPEC_TYPES: dict[Kind, type[Any]] = {
    Kind.PERSONA: Persona,
    Kind.TOOL: Tool,
    Kind.WORKFLOW: Workflow,
    Kind.TASK: Task,
    Kind.ACTION: Action,
    Kind.MODEL_PROFILE: ModelProfile,
}
R = TypeVar("R")

_KINDS = {spec_type: kind for kind, spec_type in SPEC_TYPES.items()}

LATER: dict[type[Any], frozenset[str]] = {}
"""Fields of the contract that this server does not carry out yet. Taking them in silence would be a lie."""

MAX_PAYLOAD_DEPTH = 30
MAX_INTEGER = 2**53 - 1


def kind_of(spec: Spec) -> Kind:
    """The kind that this spec defines."""
    return _KINDS[type(spec)]


def parse_spec(kind: Kind, document: Mapping[str, Any], *, path: str = "") -> Spec:
    """The spec that ``document`` spells.

    Raises DEFINITION_INVALID (``faults`` lists every place) for unknown or missing fields and wrong
    types. What fields mean is not judged here: that is `check.check_spec`. ``path`` goes before every
    field path.
    """
    spec: Spec = read_record(SPEC_TYPES[kind], document, path=path)
    return spec


def parse_spec_lenient(
    kind: Kind, document: Mapping[str, Any], *, path: str = ""
) -> tuple[Spec, tuple[Fault, ...]]:
    """As `parse_spec`, but never raises: what cannot be read is as if it were left out, and beside the
    faults stands what can, so that its meaning can be judged too."""
    reader = _Reader()
    spec: Spec = reader.record(SPEC_TYPES[kind], document, path)
    return spec, reader.faults.found()


def read_record(shape: type[R], document: Mapping[str, Any], *, path: str = "") -> R:
    """The dataclass of type ``shape`` that ``document`` spells, as `parse_spec`.

    A type that spells itself otherwise has ``to_document`` and ``from_document``.
    """
    reader = _Reader()
    record: R = reader.record(shape, document, path)
    if found := reader.faults.found():
        raise WonderError(found[0], faults=found)
    return record


def to_json(spec: Any) -> dict[str, Any]:
    """The document of a spec or any such dataclass: what was left at its default is left out."""
    document: dict[str, Any] = {}
    shape: Any = type(spec)
    for entry in _layout(shape):
        value = getattr(spec, entry.attribute)
        if entry.required or value != entry.default:
            document[entry.name] = _plain(value)
    return document


def canonical(value: Any) -> str:
    """One spelling for one JSON value: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
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
    hint: Any
    required: bool
    default: Any


@cache
def _layout(spec_type: Any) -> tuple[_Entry, ...]:
    hints = get_type_hints(spec_type)
    entries = []
    for item in fields(spec_type):
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        # Python reserves ``async``; see specs.
        name = "async" if item.name == "is_async" else item.name
        entries.append(_Entry(name, item.name, hints[item.name], default is MISSING, default))
    return tuple(entries)


_UNREAD: Any = object()
"""In place of a value that was refused."""


def _blank(hint: Any) -> Any:
    """What stands for something that is missing, in a record that has faults."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType) or hint is Any:
        return None
    if hasattr(hint, "__dataclass_fields__"):
        return hint(**{entry.attribute: _blank(entry.hint) for entry in _layout(hint) if entry.required})
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return next(iter(hint))
    return (origin or hint)()


class _Reader:
    """Reads one document, collecting faults as it goes."""

    def __init__(self) -> None:
        self.faults = FaultList()
        self.refuse = self.faults.refuse

    def record(self, spec_type: Any, document: Any, path: str) -> Any:
        if not isinstance(document, Mapping):
            self.refuse(path, f"{_place(path)} must be an object, not {_type_name(document)}.")
            return _blank(spec_type)
        if read := getattr(spec_type, "from_document", None):
            return read(document)
        layout = _layout(spec_type)
        names = {entry.name for entry in layout}
        for unknown in sorted(str(key) for key in document if key not in names):
            self.refuse(join(path, unknown), _unknown(spec_type, unknown, _place(path), sorted(names)))
        values: dict[str, Any] = {}
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

    def value(self, hint: Any, raw: Any, path: str) -> Any:
        origin = get_origin(hint)
        if origin is tuple:
            return self.sequence(get_args(hint)[0], raw, path)
        if origin is dict:
            return self.mapping(get_args(hint)[1], raw, path)
        if origin in (Union, types.UnionType):  # an optional record: Step.action
            hint = next(arm for arm in get_args(hint) if arm is not type(None))
        if hint is Any:
            return self.payload(raw, path, 1)
        if hasattr(hint, "__dataclass_fields__") or hasattr(hint, "from_document"):
            return self.record(hint, raw, path)
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            return self.word(hint, raw, path)
        return self.scalar(hint, raw, path)

    def sequence(self, hint: Any, raw: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(raw, (list, tuple)):
            self.refuse(path, f"{path} must be a list, not {_type_name(raw)}.")
            return ()
        read = (self.value(hint, item, f"{path}[{index}]") for index, item in enumerate(raw))
        return tuple(_blank(hint) if value is _UNREAD else value for value in read)

    def mapping(self, hint: Any, raw: Any, path: str) -> dict[str, Any]:
        if not isinstance(raw, Mapping):
            self.refuse(path, f"{path} must be an object, not {_type_name(raw)}.")
            return {}
        read = {key: self.value(hint, item, join(path, key)) for key, item in self.pairs(raw, path)}
        return {key: _blank(hint) if value is _UNREAD else value for key, value in read.items()}

    def pairs(self, raw: Mapping[Any, Any], path: str) -> Iterator[tuple[str, Any]]:
        # Sorted, since the contract's maps come in an order that differs from process to process: what
        # models are shown, what is exported and what a diff compares must not.
        for key, item in sorted(raw.items(), key=lambda pair: str(pair[0])):
            if isinstance(key, str):
                yield key, item
            else:
                self.refuse(path, f"{path} has the key {key!r}; put keys in quotes: they must be text.")

    def word(self, words: type[StrEnum], raw: Any, path: str) -> Any:
        try:
            return words(raw)
        except ValueError:
            self.refuse(path, f"{path} must be one of: {', '.join(words)}.")
            return _UNREAD

    def scalar(self, hint: type[Any], raw: Any, path: str) -> Any:
        if hint is int and isinstance(raw, float) and raw.is_integer():
            raw = int(raw)
        if hint is float and isinstance(raw, int) and not isinstance(raw, bool):
            raw = float(raw)
        # bool is an int to Python, never to an author.
        if not isinstance(raw, hint) or (hint is int and isinstance(raw, bool)):
            wanted = {str: "text", int: "a whole number", bool: "true or false", float: "a number"}[hint]
            self.refuse(path, f"{path} must be {wanted}, not {_type_name(raw)}.")
            return _UNREAD
        if hint is float and not math.isfinite(raw):
            self.refuse(path, f"{path} must be a finite number.")
        if hint is int and abs(raw) > MAX_INTEGER:
            self.refuse(path, f"{path} is too large: at most {MAX_INTEGER}.")
        return raw

    def payload(self, raw: Any, path: str, depth: int) -> Any:
        """JSON of any shape, as far as a ``Struct`` can carry it; whole numbers become integers."""
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


def _unknown(spec_type: type[Any], name: str, place: str, names: list[str]) -> str:
    if name in LATER.get(spec_type, ()):
        return f"'{name}' is part of the contract, but this server does not support it yet; leave it out."
    meant = did_you_mean(name, names)
    return f"'{name}' is not a field of {place}{meant}; its fields are: {', '.join(names)}."


def _place(path: str) -> str:
    return path or "the definition"


def _type_name(value: Any) -> str:
    """What an author would call the type of ``value``."""
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
