"""Trimming of messages that exceed a client's default limit.

gRPC clients refuse messages above 4 MiB by default. New records are limited when they are written. Older
records are not, and a record can join several limited values: a move holds every result of its calls. The
server trims such a message before it sends it, in this order: the longest texts, each with a notice of the
number of missing bytes; whole payloads; the last items of lists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import ListValue, Struct, Value

from wonder_server.core.schema.truncation import NOTICE_BYTES, notice, truncate_text, utf8_size

CLIENT_MAX_BYTES: Final = 4 << 20
"""Largest message that a client accepts by default."""
MAX_MESSAGE_BYTES: Final = CLIENT_MAX_BYTES - (64 << 10)
"""Largest message that the server sends; the difference is reserved for its envelope."""
MAX_ITEM_BYTES: Final = 3 << 20
"""Largest item of a list, and largest event of a stream."""

_MIN_TEXT_BYTES: Final = 512
"""Shorter texts are never cut; ids and names are shorter."""
_MAX_VALUES: Final = 20_000
"""Maximum values of one payload that are searched for long texts, breadth first."""

Payload = Struct | Value | ListValue

_PAYLOADS: Final = {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}


@dataclass(slots=True)
class _TrimTarget:
    """A text or a payload (with an empty ``text``) in a message, its size and its replacement function."""

    size: int
    text: str
    replace: Callable[[str], None]
    current_size: Callable[[], int] = lambda: 0
    """Returns the size of a payload in bytes; its texts may have been cut since it was found."""


def trim_message(message: Message, max_bytes: int = MAX_ITEM_BYTES) -> bool:
    """Cut ``message`` in place to at most ``max_bytes``. Return True if something was cut.

    Bytes fields are never cut: a part of a file is useless.
    """
    if message.ByteSize() <= max_bytes:
        return False
    targets = list(_trim_targets(message))
    _trim_texts(message, [target for target in targets if target.text], max_bytes)
    if message.ByteSize() > max_bytes:
        _omit_payloads(message, [target for target in targets if not target.text], max_bytes)
    if message.ByteSize() > max_bytes:
        _trim_lists(message, max_bytes)
    return True


def trim_encoded(encoded: bytes, message: Message, max_bytes: int = MAX_ITEM_BYTES) -> bytes:
    """Return ``encoded``, the encoding of ``message``, or the encoding of the trimmed message if it is too
    large."""
    if len(encoded) <= max_bytes or not trim_message(message, max_bytes):
        return encoded
    return message.SerializeToString()


def _trim_texts(message: Message, targets: list[_TrimTarget], max_bytes: int) -> None:
    """Cut the longest texts to one length, as long as possible."""
    excess = message.ByteSize() - max_bytes
    targets.sort(key=lambda target: target.size, reverse=True)
    level, count = targets[0].size if targets else 0, 0
    while excess > 0 and count < len(targets):
        count += 1
        below = targets[count].size if count < len(targets) else _MIN_TEXT_BYTES + NOTICE_BYTES
        drop = min(level - below, -(-excess // count))
        if drop > 0:
            excess -= drop * count
            level -= drop
    for target in targets[:count]:
        if target.size > level:
            target.replace(truncate_text(target.text, level))


def _omit_payloads(message: Message, payloads: list[_TrimTarget], max_bytes: int) -> None:
    """Replace payloads by a notice, the largest first."""
    excess = message.ByteSize() - max_bytes
    for target in sorted(payloads, key=lambda target: target.current_size(), reverse=True):
        if excess <= 0:
            return
        excess -= target.current_size() - NOTICE_BYTES
        target.replace(notice(target.size, target.size).strip())


def _trim_lists(message: Message, max_bytes: int) -> None:
    """Remove the last items of the longest lists of messages."""
    while (excess := message.ByteSize() - max_bytes) > 0:
        lists = [items for items in _lists(message) if len(items)]
        if not lists:
            return
        longest = max(lists, key=lambda items: sum(item.ByteSize() for item in items))
        while excess > 0 and len(longest):
            excess -= longest[-1].ByteSize()
            del longest[-1]


def _trim_targets(message: Message) -> Iterator[_TrimTarget]:
    """Yield the long texts and the payloads of a message, at any depth."""
    for field, value in message.ListFields():
        for item, put in _values(message, field, value):
            if isinstance(item, str):
                size = utf8_size(item)
                if size > _MIN_TEXT_BYTES + NOTICE_BYTES:
                    yield _TrimTarget(size, item, put)
            elif isinstance(item, Message):
                if isinstance(item, Payload):
                    yield from _payload_targets(item)
                else:
                    yield from _trim_targets(item)


def _payload_targets(payload: Payload) -> Iterator[_TrimTarget]:
    size = payload.ByteSize()
    if size <= _MIN_TEXT_BYTES + NOTICE_BYTES:
        return
    yield _TrimTarget(size, "", lambda text: _set_notice(payload, text), payload.ByteSize)
    texts: list[_TrimTarget] = []
    pending, visited = deque[Payload]([payload]), 0
    while pending and visited < _MAX_VALUES:
        node = pending.popleft()
        visited += 1
        match node:
            case Struct():
                pending.extend(node.fields.values())
            case ListValue():
                pending.extend(node.values)
            case Value():
                kind = node.WhichOneof("kind")
                if kind == "string_value":
                    if len(node.string_value) > _MIN_TEXT_BYTES // 4:
                        texts.append(_text_target(node))
                elif kind is not None and kind in ("struct_value", "list_value"):
                    pending.append(getattr(node, kind))
    yield from (target for target in texts if target.size > _MIN_TEXT_BYTES + NOTICE_BYTES)


def _text_target(value: Value) -> _TrimTarget:
    return _TrimTarget(
        utf8_size(value.string_value), value.string_value, lambda text: setattr(value, "string_value", text)
    )


def _set_notice(payload: Payload, text: str) -> None:
    """Replace a payload by a notice. In an object or a list the notice is the only member."""
    match payload:
        case Struct():
            payload.Clear()
            payload.fields["cut"].string_value = text
        case ListValue():
            payload.Clear()
            payload.values.add().string_value = text
        case Value():
            payload.string_value = text


def _values(
    message: Message, field: FieldDescriptor, value: Any
) -> Iterator[tuple[Any, Callable[[str], None]]]:
    """Yield the values of a field, each with a function that replaces its text."""
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        for key in list(value):
            yield value[key], lambda text, key=key: value.__setitem__(key, text)  # type: ignore[misc]
    elif field.is_repeated:
        for index, item in enumerate(value):
            yield item, lambda text, index=index: value.__setitem__(index, text)  # type: ignore[misc]
    else:
        yield value, lambda text: setattr(message, name, text)


def _lists(message: Message) -> Iterator[Any]:
    """Yield the lists of messages in a message, at any depth except in payloads."""
    for field, value in message.ListFields():
        kind = field.message_type
        if kind is None or kind.full_name in _PAYLOADS or kind.GetOptions().map_entry:
            continue
        if field.is_repeated:
            yield value
        for item in value if field.is_repeated else (value,):
            yield from _lists(item)
