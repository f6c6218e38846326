"""The field at fault in bytes that do not decode, found by a walk over the wire format.

The protobuf library reports only that decoding failed, with its own class names. The walk runs for rejected
requests only and reads at most `_MAX_FIELDS` fields, so that random bytes cannot block the server.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.rpc.shared.payload import too_deep

# The protobuf library's limit on nested messages.
_MAX_NESTING: Final = 100
_MAX_FIELDS: Final = 20_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NAMELESS: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})


def decode_error(data: bytes, descriptor: Descriptor) -> WonderError:
    """Return the error for ``data`` that did not decode as a message of this type.

    PAYLOAD_TOO_DEEP with the field, or MALFORMED_REQUEST with the field if it can be found.
    """
    walk = _WireReader(data)
    try:
        walk.message(0, len(data), descriptor, "", 0)
    except WonderError as found:
        return found
    except _NotProtobufError:
        pass
    return error(Reason.MALFORMED_REQUEST, "The request's bytes are not a valid message of this method.")


def text_at_path(data: bytes, *path: int) -> str:
    """Return the text at a path of field numbers, "" if it is absent, even if the rest is malformed."""
    try:
        return _WireReader(data).find(0, len(data), path).decode()
    except (_NotProtobufError, UnicodeDecodeError):
        return ""


class _NotProtobufError(Exception):
    """The bytes are not protobuf, or have too many fields."""


class _WireReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._budget = _MAX_FIELDS

    def message(self, at: int, end: int, descriptor: Descriptor, path: str, depth: int) -> None:
        if depth > _MAX_NESTING:
            raise too_deep(path)
        seen: Counter[int] = Counter()
        while at < end:
            self._budget -= 1
            if self._budget < 0:
                raise _NotProtobufError
            key, at = self._varint(at, end)
            number, wire = key >> 3, key & 7
            start, at = self._skip(at, end, wire)
            field = descriptor.fields_by_number.get(number)
            if field is not None and wire == _BYTES:
                self._content(start, at, field, _path(path, field, seen[number], descriptor), depth)
            seen[number] += 1

    def find(self, at: int, end: int, path: tuple[int, ...]) -> bytes:
        while at < end:
            self._budget -= 1
            if self._budget < 0:
                raise _NotProtobufError
            key, at = self._varint(at, end)
            start, at = self._skip(at, end, key & 7)
            if key == path[0] << 3 | _BYTES:
                return self.find(start, at, path[1:]) if path[1:] else self._data[start:at]
        return b""

    def _content(self, start: int, end: int, field: FieldDescriptor, path: str, depth: int) -> None:
        if field.message_type is not None:
            self.message(start, end, field.message_type, path, depth + 1)
        elif field.type == FieldDescriptor.TYPE_STRING:
            try:
                self._data[start:end].decode()
            except UnicodeDecodeError:
                raise error(Reason.MALFORMED_REQUEST, f"{path} is not UTF-8 text.", field=path) from None

    def _skip(self, at: int, end: int, wire: int) -> tuple[int, int]:
        """Return the start and the end of the value at ``at``."""
        if wire == _VARINT:
            start, (_, stop) = at, self._varint(at, end)
        elif wire == _BYTES:
            length, start = self._varint(at, end)
            stop = start + length
        elif wire in (_FIXED64, _FIXED32):
            start, stop = at, at + (8 if wire == _FIXED64 else 4)
        else:
            raise _NotProtobufError
        if stop > end:
            raise _NotProtobufError
        return start, stop

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 70:
            byte = self._data[at]
            value |= (byte & 0x7F) << shift
            at += 1
            if byte < 0x80:
                return value, at
            shift += 7
        raise _NotProtobufError


def _path(path: str, field: FieldDescriptor, index: int, parent: Descriptor) -> str:
    if parent.full_name in _NAMELESS or parent.GetOptions().map_entry:
        return path
    name = f"{path}.{field.name}" if path else field.name
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
    return f"{name}[{index}]" if field.is_repeated and not is_map else name
