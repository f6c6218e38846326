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
from typing import Any, NoReturn, TypeAlias, TypeVar

import betterproto2

from wonder_sdk._proto.google import protobuf
from wonder_sdk.errors import RequestError

Message: TypeAlias = betterproto2.Message
_M = TypeVar("_M", bound=betterproto2.Message)

_INTEGERS = {
    betterproto2.TYPE_INT32: (-(2**31), 2**31 - 1),
    betterproto2.TYPE_INT64: (-(2**63), 2**63 - 1),
    betterproto2.TYPE_UINT32: (0, 2**32 - 1),
    betterproto2.TYPE_UINT64: (0, 2**64 - 1),
}
_FLOATS = (betterproto2.TYPE_DOUBLE, betterproto2.TYPE_FLOAT)
_DEPTH = 100
"""Maximum depth, above every server's limit. It also stops at a value that contains itself."""


class Encoder:
    """Serialise requests of one method. ``message`` is their class."""

    def __init__(self, message: type[Message]) -> None:
        self.message = message

    def __call__(self, request: Any) -> bytes:
        """Return the bytes of a request, which may be a mapping. Raises `RequestError`."""
        if type(request) is bytes:  # already encoded
            return request
        return bytes(checked(request, self.message))


def checked(value: Any, kind: type[_M], path: str = "") -> _M:
    """Return ``value`` as a message of class ``kind`` that can be serialised.

    Raises `RequestError`, whose field is ``path`` or below it.
    """
    message: _M = _Walk().message(value, kind, path)
    return message


def _refuse(path: str, problem: str) -> NoReturn:
    raise RequestError(f"{path or 'request'}: {problem}", path)


class _Walk:
    """A traversal of a request that limits its depth."""

    def __init__(self) -> None:
        self._depth = 0

    def message(self, value: Any, kind: type[Message], path: str) -> Any:
        self._depth += 1
        if self._depth > _DEPTH:
            _refuse(path, f"the value is nested deeper than {_DEPTH} levels")
        try:
            return self._message(value, kind, path)
        finally:
            self._depth -= 1

    def _message(self, value: Any, kind: Any, path: str) -> Any:
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
                if name not in kind._betterproto.meta_by_field_name:
                    _unknown(kind, name, path)
            return self._fields(kind(**value), path)
        _refuse(path, f"must be {_a(kind.__name__)} or a mapping, not {_shown(value)}")

    def _fields(self, message: Any, path: str) -> Any:
        """Return ``message`` itself if its fields need no conversion, otherwise a converted copy."""
        meta = message._betterproto
        for name in vars(message):
            if name not in meta.meta_by_field_name and name != "_unknown_fields":
                _unknown(type(message), name, path)
        changed: dict[str, Any] = {}
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
        self, value: Any, field: betterproto2.FieldMetadata, kinds: dict[str, type], name: str, path: str
    ) -> Any:
        if field.repeated:
            if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
                _refuse(path, f"must be a list, not {_shown(value)}")
            # Copy first: an iterator can be read only once.
            given = value if isinstance(value, list) else [*value]
            items = [
                self._single(item, field, kinds[name], f"{path}[{number}]")
                for number, item in enumerate(given)
            ]
            return value if _same(items, value) else items
        if field.map_meta is not None:
            if not isinstance(value, Mapping):
                _refuse(path, f"must be a mapping, not {_shown(value)}")
            _, of_value = field.map_meta
            entries = {}
            for key, each in value.items():
                if not isinstance(key, str):
                    _refuse(path, f"keys must be strings, not {_shown(key)}")
                _text(key, path)
                entries[key] = self._single(each, of_value, kinds[f"{name}.value"], f"{path}[{key!r}]")
            same = isinstance(value, dict) and all(entries[key] is value[key] for key in value)
            return value if same else entries
        return self._single(value, field, kinds[name], path)

    def _single(self, value: Any, field: betterproto2.FieldMetadata, kind: type, path: str) -> Any:
        match field.proto_type:
            case betterproto2.TYPE_MESSAGE if field.unwrap is not None:
                return _moment(value, field, path)
            case betterproto2.TYPE_MESSAGE:
                return self.message(value, kind, path)
            case betterproto2.TYPE_ENUM:
                return _choice(value, kind, path)
            case _:
                return self._scalar(value, field, path)

    def _scalar(self, value: Any, field: betterproto2.FieldMetadata, path: str) -> Any:
        match field.proto_type:
            case betterproto2.TYPE_BOOL:
                if not isinstance(value, bool):
                    _refuse(path, f"must be True or False, not {_shown(value)}")
            case betterproto2.TYPE_STRING:
                if not isinstance(value, str):
                    _refuse(path, f"must be a string, not {_shown(value)}")
                _text(value, path)
            case betterproto2.TYPE_BYTES:
                if not isinstance(value, bytes | bytearray | memoryview):
                    _refuse(path, f"must be bytes, not {_shown(value)}")
                return value if isinstance(value, bytes) else bytes(value)
            case number if number in _INTEGERS:
                return _integer(value, *_INTEGERS[number], path)
            case number if number in _FLOATS:
                if isinstance(value, bool) or not isinstance(value, int | float):
                    _refuse(path, f"must be a number, not {_shown(value)}")
            case _:
                pass
        return value

    # --- JSON -------------------------------------------------------------------------------------

    def _json(self, value: Any, path: str) -> protobuf.Value:
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
            case protobuf.Struct() | protobuf.ListValue():
                kept: Any = self._fields(value, path)
                name = "struct_value" if isinstance(value, protobuf.Struct) else "list_value"
                return protobuf.Value(**{name: kept})
            case Mapping():
                return protobuf.Value(struct_value=self.message(value, protobuf.Struct, path))
            case list() | tuple():
                return protobuf.Value(list_value=self.message(value, protobuf.ListValue, path))
            case _:
                _refuse(path, f"JSON cannot hold {_shown(value)}")

    def _object(self, value: Mapping[Any, Any], path: str) -> protobuf.Struct:
        fields = {}
        for key, each in value.items():
            if not isinstance(key, str):
                _refuse(path, f"keys must be strings, not {_shown(key)}")
            _text(key, path)
            fields[key] = self.message(each, protobuf.Value, f"{path}.{key}" if path else key)
        return protobuf.Struct(fields=fields)

    def _list(self, value: Iterable[Any], path: str) -> protobuf.ListValue:
        values = [self.message(each, protobuf.Value, f"{path}[{n}]") for n, each in enumerate(value)]
        return protobuf.ListValue(values=values)


def _same(items: list[Any], value: Any) -> bool:
    return isinstance(value, list) and all(map(operator.is_, items, value))


def _text(value: str, path: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        _refuse(path, "the text has half of a surrogate pair, which UTF-8 cannot carry")


def _integer(value: Any, minimum: int, maximum: int, path: str) -> Any:
    try:
        number = operator.index(value)
    except TypeError:
        _refuse(path, f"must be a whole number, not {_shown(value)}")
    if isinstance(value, bool):
        _refuse(path, f"must be a whole number, not {value}")
    if not minimum <= number <= maximum:
        _refuse(path, f"must be between {minimum} and {maximum}, not {number}")
    return value if isinstance(value, int) else number


def _moment(value: Any, field: betterproto2.FieldMetadata, path: str) -> Any:
    if not isinstance(value, datetime.datetime):
        _refuse(path, f"must be a datetime, not {_shown(value)}")
    assert field.unwrap is not None
    wrapper: Any = field.unwrap()
    try:
        bytes(wrapper.from_wrapped(value))
    except (ValueError, OverflowError, TypeError) as problem:
        _refuse(path, f"{value!r} cannot be sent: {problem}")
    return value


def _choice(value: Any, kind: Any, path: str) -> Any:
    if isinstance(value, str):
        try:
            return kind[value.upper()]
        except KeyError:
            names = ", ".join(each for each in kind.__members__)
            _refuse(path, f"{value!r} is not one of {names}")
    return _integer(value, *_INTEGERS[betterproto2.TYPE_INT32], path)


def _unknown(kind: Any, name: Any, path: str) -> NoReturn:
    known = list(kind._betterproto.meta_by_field_name)
    close = difflib.get_close_matches(str(name), known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(known) or 'none'}"
    where = f"{path}.{name}" if path else str(name)
    _refuse(where, f"{kind.__name__} has no field {name!r}{hint}")


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:59] + '…'}"
