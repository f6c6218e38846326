"""Messages cut until a client with default limits can receive them.

gRPC clients refuse messages above 4 MiB unless they are told otherwise. New records are bounded when they
are written. Older ones are not, and a record joins several bounded values: a move holds every result of its
calls. Such a message is cut here, as the last step before it is sent: its longest texts first, each with a
notice that says how much is missing, then whole payloads, then the last of what it lists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from wonder_server.core.truncation import NOTICE_BYTES, notice, truncate_text, utf8_size

CLIENT_MAX_BYTES: Final = 4 << 20
"""The largest message that a client takes by default."""
MAX_MESSAGE_BYTES: Final = CLIENT_MAX_BYTES - (64 << 10)
"""The largest message that is sent; the rest is room for what is around it."""
MAX_ITEM_BYTES: Final = 3 << 20
"""The largest item of a list, and the largest event of a stream."""

_MIN_TEXT_BYTES: Final = 512
"""Texts that are shorter are never cut: ids and names are."""
_MAX_VALUES: Final = 20_000
"""Values of one payload that are looked at to find its long texts, those least deep first."""

_PAYLOADS: Final = {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}


@dataclass(slots=True)
class _TrimTarget:
    """A text or a payload (``text`` is empty) in a message, its bytes, and how it is replaced."""

    size: int
    text: str
    replace: Callable[[str], None]
    current_size: Callable[[], int] = lambda: 0
    """Bytes of a payload, whose texts may have been cut meanwhile."""


def trim_message(message: Message, max_bytes: int = MAX_ITEM_BYTES) -> bool:
    """Cut ``message`` in place to at most ``most`` bytes. Return True if something was cut.

    Bytes fields are never cut: part of a file is no file.
    """
    if message.ByteSize() <= max_bytes:
        return False
    targets = list(_trim_targets(message))
    _trim_texts(message, [place for place in targets if place.text], max_bytes)
    if message.ByteSize() > max_bytes:
        _omit_payloads(message, [place for place in targets if not place.text], max_bytes)
    if message.ByteSize() > max_bytes:
        _trim_lists(message, max_bytes)
    return True


def trim_encoded(encoded: bytes, message: Message, max_bytes: int = MAX_ITEM_BYTES) -> bytes:
    """Return ``encoded``, which is ``message``, or the message cut and encoded again if it is too large."""
    if len(encoded) <= max_bytes or not trim_message(message, max_bytes):
        return encoded
    return message.SerializeToString()


def _trim_texts(message: Message, targets: list[_TrimTarget], max_bytes: int) -> None:
    """Cut the longest texts to one length, as long as possible."""
    excess = message.ByteSize() - max_bytes
    targets.sort(key=lambda place: place.size, reverse=True)
    level, count = targets[0].size if targets else 0, 0
    while excess > 0 and count < len(targets):
        count += 1
        below = targets[count].size if count < len(targets) else _MIN_TEXT_BYTES + NOTICE_BYTES
        drop = min(level - below, -(-excess // count))
        if drop > 0:
            excess -= drop * count
            level -= drop
    for place in targets[:count]:
        if place.size > level:
            place.replace(truncate_text(place.text, level))


def _omit_payloads(message: Message, payloads: list[_TrimTarget], max_bytes: int) -> None:
    """Replace payloads by a notice, the largest first."""
    excess = message.ByteSize() - max_bytes
    for place in sorted(payloads, key=lambda place: place.current_size(), reverse=True):
        if excess <= 0:
            return
        excess -= place.current_size() - NOTICE_BYTES
        place.replace(notice(place.size, place.size).strip())


def _trim_lists(message: Message, max_bytes: int) -> None:
    """Drop the last items of the longest lists of messages."""
    while (excess := message.ByteSize() - max_bytes) > 0:
        lists = [items for items in _lists(message) if len(items)]
        if not lists:
            return
        longest = max(lists, key=lambda items: sum(item.ByteSize() for item in items))
        while excess > 0 and len(longest):
            excess -= longest[-1].ByteSize()
            del longest[-1]


def _trim_targets(message: Message) -> Iterator[_TrimTarget]:
    """Yield the long texts of a message, and its payloads as wholes, at any depth."""
    for field, value in message.ListFields():
        for item, put in _values(message, field, value):
            if isinstance(item, str):
                size = utf8_size(item)
                if size > _MIN_TEXT_BYTES + NOTICE_BYTES:
                    yield _TrimTarget(size, item, put)
            elif isinstance(item, Message):
                if item.DESCRIPTOR.full_name in _PAYLOADS:
                    yield from _payload_targets(item)
                else:
                    yield from _trim_targets(item)


def _payload_targets(payload: Any) -> Iterator[_TrimTarget]:
    size = payload.ByteSize()
    if size <= _MIN_TEXT_BYTES + NOTICE_BYTES:
        return
    yield _TrimTarget(size, "", lambda text: _set_notice(payload, text), payload.ByteSize)
    texts: list[_TrimTarget] = []
    pending, looked_at = deque([payload]), 0
    while pending and looked_at < _MAX_VALUES:
        at = pending.popleft()
        looked_at += 1
        match at.DESCRIPTOR.name:
            case "Struct":
                pending.extend(at.fields.values())
            case "ListValue":
                pending.extend(at.values)
            case _:
                kind = at.WhichOneof("kind")
                if kind == "string_value":
                    if len(at.string_value) > _MIN_TEXT_BYTES // 4:
                        texts.append(_text_target(at))
                elif kind in ("struct_value", "list_value"):
                    pending.append(getattr(at, kind))
    yield from (place for place in texts if place.size > _MIN_TEXT_BYTES + NOTICE_BYTES)


def _text_target(value: Any) -> _TrimTarget:
    return _TrimTarget(
        utf8_size(value.string_value), value.string_value, lambda text: setattr(value, "string_value", text)
    )


def _set_notice(payload: Any, text: str) -> None:
    """Put a notice in place of a payload: an object and a list hold it as their only member."""
    match payload.DESCRIPTOR.name:
        case "Struct":
            payload.Clear()
            payload.fields["cut"].string_value = text
        case "ListValue":
            payload.Clear()
            payload.values.add().string_value = text
        case _:
            payload.string_value = text


def _values(
    message: Message, field: FieldDescriptor, value: Any
) -> Iterator[tuple[Any, Callable[[str], None]]]:
    """Yield the values of a field, each with a way to replace a text."""
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
    """Yield the lists of messages in a message, at any depth; payloads are not looked into."""
    for field, value in message.ListFields():
        kind = field.message_type
        if kind is None or kind.full_name in _PAYLOADS or kind.GetOptions().map_entry:
            continue
        if field.is_repeated:
            yield value
        for item in value if field.is_repeated else (value,):
            yield from _lists(item)
