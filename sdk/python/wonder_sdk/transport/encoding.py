"""Validation and serialisation of requests, with conversion of plain Python values to messages.

betterproto2 does not check the values of a new message. It fails during serialisation, and gRPC then sends
an empty request. The generated stubs therefore serialise each request with an `Encoder`. It converts

==========================  =======================================================================
``google.protobuf.Struct``  from a mapping
``google.protobuf.Value``   from any JSON value
other messages              from a mapping of its field names to values
``FieldMask``               from a list of paths, or one string with commas
an enum                     from the name of a value
==========================  =======================================================================

at every depth, and raises `RequestError` with the path of the field for any other value. The caller's
message does not change.
"""

from __future__ import annotations

import datetime
import difflib
import math
import operator
from collections.abc import Iterable, Mapping
from typing import NoReturn, SupportsIndex, TypeAlias, TypeVar, cast

import betterproto2

from wonder_sdk._proto.google import protobuf
from wonder_sdk.errors import RequestError

Message: TypeAlias = betterproto2.Message
_M = TypeVar("_M", bound=betterproto2.Message)

INTEGERS = {
    betterproto2.TYPE_INT32: (-(2**31), 2**31 - 1),
    betterproto2.TYPE_INT64: (-(2**63), 2**63 - 1),
    betterproto2.TYPE_UINT32: (0, 2**32 - 1),
    betterproto2.TYPE_UINT64: (0, 2**64 - 1),
}
"""Minimum and maximum of each integer type of protobuf."""
_FLOATS = (betterproto2.TYPE_DOUBLE, betterproto2.TYPE_FLOAT)
_DEPTH = 100
"""Maximum depth, above every server's limit. It also stops at a value that contains itself."""


class Encoder:
    """Serialise requests of one method. ``message`` is their class."""

    def __init__(self, message: type[Message]) -> None:
        self.message = message

    def __call__(self, request: object) -> bytes:
        """Return the bytes of a request, which may be a mapping. Raises `RequestError`."""
        if type(request) is bytes:  # already encoded
            return request
        return bytes(checked(request, self.message))


def checked(value: object, kind: type[_M], path: str = "") -> _M:
    """Return ``value`` as a message of class ``kind`` that can be serialised.

    Raises `RequestError`, whose field is ``path`` or below it.
    """
    return _Walk().message(value, kind, path)


def _refuse(path: str, problem: str) -> NoReturn:
    raise RequestError(f"{path or 'request'}: {problem}", path)


class _Walk:
    """A traversal of a request that limits its depth."""

    def __init__(self) -> None:
        self._depth = 0

    def message(self, value: object, kind: type[_M], path: str) -> _M:
        self._depth += 1
        if self._depth > _DEPTH:
            _refuse(path, f"the value is nested deeper than {_DEPTH} levels")
        try:
            message = self._message(value, kind, path)
        finally:
            self._depth -= 1
        assert isinstance(message, kind)
        return message

    def _message(self, value: object, kind: type[Message], path: str) -> Message:
        if isinstance(value, kind):
            return self._fields(value, path)
        if kind is protobuf.Value:
            return self._json(value, path)
        if kind is protobuf.Struct and isinstance(value, Mapping):
            return self._object(value, path)
        if kind is protobuf.ListValue and isinstance(value, list | tuple):
            return self._list(value, path)
        if kind is protobuf.FieldMask:
            paths = value.split(",") if isinstance(value, str) else value
            if isinstance(paths, list | tuple):
                return self._fields(protobuf.FieldMask(paths=[*paths]), path)
        if isinstance(value, Mapping) and kind is not protobuf.FieldMask:
            for name in value:
                if name not in metadata_of(kind).meta_by_field_name:
                    _unknown(kind, name, path)
            return self._fields(kind(**value), path)
        _refuse(path, f"must be {_a(kind.__name__)} or a mapping, not {shown(value)}")

    def _fields(self, message: _M, path: str) -> _M:
        """Return ``message`` itself if its fields need no conversion, otherwise a converted copy."""
        meta = metadata_of(type(message))
        for name in vars(message):
            if name not in meta.meta_by_field_name and name != "_unknown_fields":
                _unknown(type(message), name, path)
        changed: dict[str, object] = {}
        chosen: dict[str, str] = {}
        for name, field in meta.meta_by_field_name.items():
            given = getattr(message, name)
            if given is None:
                continue
            where = f"{path}.{name}" if path else name
            if field.group is not None and (other := chosen.setdefault(field.group, name)) != name:
                _refuse(where, f"only one of {other} and {name} may be set")
            value = self._field(given, field, meta.cls_by_field, name, where)
            if value is not given:
                changed[name] = value
        if not changed:
            return message
        values = {name: getattr(message, name) for name in meta.meta_by_field_name}
        copy = type(message)(**{**values, **changed})
        copy._unknown_fields = message._unknown_fields
        return copy

    def _field(
        self, value: object, field: betterproto2.FieldMetadata, kinds: dict[str, type], name: str, path: str
    ) -> object:
        if field.repeated:
            if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
                _refuse(path, f"must be a list, not {shown(value)}")
            # Copy first: an iterator can be read only once.
            given = value if isinstance(value, list) else [*value]
            items = [
                self._single(item, field, kinds[name], f"{path}[{number}]")
                for number, item in enumerate(given)
            ]
            return value if _same(items, value) else items
        if field.map_meta is not None:
            if not isinstance(value, Mapping):
                _refuse(path, f"must be a mapping, not {shown(value)}")
            _, of_value = field.map_meta
            entries = {}
            for key, each in value.items():
                if not isinstance(key, str):
                    _refuse(path, f"keys must be strings, not {shown(key)}")
                _text(key, path)
                entries[key] = self._single(each, of_value, kinds[f"{name}.value"], f"{path}[{key!r}]")
            same = isinstance(value, dict) and all(entries[key] is value[key] for key in value)
            return value if same else entries
        return self._single(value, field, kinds[name], path)

    def _single(self, value: object, field: betterproto2.FieldMetadata, kind: type, path: str) -> object:
        match field.proto_type:
            case betterproto2.TYPE_MESSAGE if field.unwrap is not None:  # a Timestamp, the only such message
                return _moment(value, path)
            case betterproto2.TYPE_MESSAGE:
                return self.message(value, kind, path)
            case betterproto2.TYPE_ENUM:
                return _choice(value, kind, path)
            case _:
                return self._scalar(value, field, path)

    def _scalar(self, value: object, field: betterproto2.FieldMetadata, path: str) -> object:
        match field.proto_type:
            case betterproto2.TYPE_BOOL:
                if not isinstance(value, bool):
                    _refuse(path, f"must be True or False, not {shown(value)}")
            case betterproto2.TYPE_STRING:
                if not isinstance(value, str):
                    _refuse(path, f"must be a string, not {shown(value)}")
                _text(value, path)
            case betterproto2.TYPE_BYTES:
                if not isinstance(value, bytes | bytearray | memoryview):
                    _refuse(path, f"must be bytes, not {shown(value)}")
                return value if isinstance(value, bytes) else bytes(value)
            case number if number in INTEGERS:
                return _integer(value, *INTEGERS[number], path)
            case number if number in _FLOATS:
                if isinstance(value, bool) or not isinstance(value, int | float):
                    _refuse(path, f"must be a number, not {shown(value)}")
            case _:
                pass
        return value

    # --- JSON -------------------------------------------------------------------------------------

    def _json(self, value: object, path: str) -> protobuf.Value:
        match value:
            case None:
                return protobuf.Value(null_value=protobuf.NullValue.NULL_VALUE)
            case bool():
                return protobuf.Value(bool_value=value)
            case int() | float():
                if isinstance(value, float) and not math.isfinite(value):
                    _refuse(path, f"JSON has no {value}")
                return protobuf.Value(number_value=value)
            case str():
                _text(value, path)
                return protobuf.Value(string_value=value)
            case protobuf.Struct():
                return protobuf.Value(struct_value=self._fields(value, path))
            case protobuf.ListValue():
                return protobuf.Value(list_value=self._fields(value, path))
            case Mapping():
                return protobuf.Value(struct_value=self.message(value, protobuf.Struct, path))
            case list() | tuple():
                return protobuf.Value(list_value=self.message(value, protobuf.ListValue, path))
            case _:
                _refuse(path, f"JSON cannot hold {shown(value)}")

    def _object(self, value: Mapping[object, object], path: str) -> protobuf.Struct:
        fields = {}
        for key, each in value.items():
            if not isinstance(key, str):
                _refuse(path, f"keys must be strings, not {shown(key)}")
            _text(key, path)
            fields[key] = self.message(each, protobuf.Value, f"{path}.{key}" if path else key)
        return protobuf.Struct(fields=fields)

    def _list(self, value: Iterable[object], path: str) -> protobuf.ListValue:
        values = [self.message(each, protobuf.Value, f"{path}[{n}]") for n, each in enumerate(value)]
        return protobuf.ListValue(values=values)


def metadata_of(kind: type[Message]) -> betterproto2.ProtoClassMetadata:
    """Return the fields of a message class."""
    metadata: betterproto2.ProtoClassMetadata = kind._betterproto  # type: ignore[arg-type]  # its own types
    return metadata


def _same(items: list[object], value: object) -> bool:
    return isinstance(value, list) and all(map(operator.is_, items, value))


def _text(value: str, path: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        _refuse(path, "the text has half of a surrogate pair, which UTF-8 cannot carry")


def _integer(value: object, minimum: int, maximum: int, path: str) -> int:
    try:
        number = operator.index(cast(SupportsIndex, value))
    except TypeError:
        _refuse(path, f"must be a whole number, not {shown(value)}")
    if isinstance(value, bool):
        _refuse(path, f"must be a whole number, not {value}")
    if not minimum <= number <= maximum:
        _refuse(path, f"must be between {minimum} and {maximum}, not {number}")
    return value if isinstance(value, int) else number


def _moment(value: object, path: str) -> datetime.datetime:
    if not isinstance(value, datetime.datetime):
        _refuse(path, f"must be a datetime, not {shown(value)}")
    try:
        bytes(protobuf.Timestamp.from_wrapped(value))
    except (ValueError, OverflowError, TypeError) as problem:
        _refuse(path, f"{value!r} cannot be sent: {problem}")
    return value


def _choice(value: object, kind: type[betterproto2.Enum], path: str) -> int:
    if isinstance(value, str):
        try:
            return kind[value.upper()]
        except KeyError:
            names = ", ".join(kind.__members__)
            _refuse(path, f"{value!r} is not one of {names}")
    return _integer(value, *INTEGERS[betterproto2.TYPE_INT32], path)


def _unknown(kind: type[Message], name: object, path: str) -> NoReturn:
    known = list(metadata_of(kind).meta_by_field_name)
    close = difflib.get_close_matches(str(name), known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(known) or 'none'}"
    where = f"{path}.{name}" if path else str(name)
    _refuse(where, f"{kind.__name__} has no field {name!r}{hint}")


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def shown(value: object) -> str:
    """Return the type and the content of a value for an error message, shortened to 60 characters."""
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:59] + '…'}"
