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

from wonder_server.core.cuts import NOTICE_BYTES, cut_text, notice, size_of

CLIENT_BYTES: Final = 4 << 20
"""The largest message that a client takes by default."""
MESSAGE_BYTES: Final = CLIENT_BYTES - (64 << 10)
"""The largest message that is sent; the rest is room for what is around it."""
ITEM_BYTES: Final = 3 << 20
"""The largest item of a list, and the largest event of a stream."""

_SHORTEST: Final = 512
"""Texts that are shorter are never cut: ids and names are."""
_MOST_PLACES: Final = 20_000
"""Values of one payload that are looked at to find its long texts, those least deep first."""

_PAYLOADS: Final = {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}


@dataclass(slots=True)
class _Place:
    """A text or a payload (``text`` is empty) in a message, its bytes, and how it is replaced."""

    size: int
    text: str
    replace: Callable[[str], None]
    now: Callable[[], int] = lambda: 0
    """Bytes of a payload, whose texts may have been cut meanwhile."""


def fit(message: Message, most: int = ITEM_BYTES) -> bool:
    """Cut ``message`` in place to at most ``most`` bytes. Return True if something was cut.

    Bytes fields are never cut: part of a file is no file.
    """
    if message.ByteSize() <= most:
        return False
    places = list(_places(message))
    _cut_texts(message, [place for place in places if place.text], most)
    if message.ByteSize() > most:
        _leave_out(message, [place for place in places if not place.text], most)
    if message.ByteSize() > most:
        _cut_lists(message, most)
    return True


def fitted(encoded: bytes, message: Message, most: int = ITEM_BYTES) -> bytes:
    """Return ``encoded``, which is ``message``, or the message cut and encoded again if it is too large."""
    if len(encoded) <= most or not fit(message, most):
        return encoded
    return message.SerializeToString()


def _cut_texts(message: Message, places: list[_Place], most: int) -> None:
    """Cut the longest texts to one length, as long as possible."""
    excess = message.ByteSize() - most
    places.sort(key=lambda place: place.size, reverse=True)
    level, count = places[0].size if places else 0, 0
    while excess > 0 and count < len(places):
        count += 1
        below = places[count].size if count < len(places) else _SHORTEST + NOTICE_BYTES
        drop = min(level - below, -(-excess // count))
        if drop > 0:
            excess -= drop * count
            level -= drop
    for place in places[:count]:
        if place.size > level:
            place.replace(cut_text(place.text, level))


def _leave_out(message: Message, payloads: list[_Place], most: int) -> None:
    """Replace payloads by a notice, the largest first."""
    excess = message.ByteSize() - most
    for place in sorted(payloads, key=lambda place: place.now(), reverse=True):
        if excess <= 0:
            return
        excess -= place.now() - NOTICE_BYTES
        place.replace(notice(place.size, place.size).strip())


def _cut_lists(message: Message, most: int) -> None:
    """Drop the last items of the longest lists of messages."""
    while (excess := message.ByteSize() - most) > 0:
        lists = [items for items in _lists(message) if len(items)]
        if not lists:
            return
        longest = max(lists, key=lambda items: sum(item.ByteSize() for item in items))
        while excess > 0 and len(longest):
            excess -= longest[-1].ByteSize()
            del longest[-1]


def _places(message: Message) -> Iterator[_Place]:
    """Yield the long texts of a message, and its payloads as wholes, at any depth."""
    for field, value in message.ListFields():
        for item, put in _values(message, field, value):
            if isinstance(item, str):
                size = size_of(item)
                if size > _SHORTEST + NOTICE_BYTES:
                    yield _Place(size, item, put)
            elif isinstance(item, Message):
                if item.DESCRIPTOR.full_name in _PAYLOADS:
                    yield from _in_payload(item)
                else:
                    yield from _places(item)


def _in_payload(payload: Any) -> Iterator[_Place]:
    size = payload.ByteSize()
    if size <= _SHORTEST + NOTICE_BYTES:
        return
    yield _Place(size, "", lambda text: _say(payload, text), payload.ByteSize)
    texts: list[_Place] = []
    pending, looked_at = deque([payload]), 0
    while pending and looked_at < _MOST_PLACES:
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
                    if len(at.string_value) > _SHORTEST // 4:
                        texts.append(_text_of(at))
                elif kind in ("struct_value", "list_value"):
                    pending.append(getattr(at, kind))
    yield from (place for place in texts if place.size > _SHORTEST + NOTICE_BYTES)


def _text_of(value: Any) -> _Place:
    return _Place(
        size_of(value.string_value), value.string_value, lambda text: setattr(value, "string_value", text)
    )


def _say(payload: Any, text: str) -> None:
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
