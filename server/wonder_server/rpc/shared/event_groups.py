"""Groups of events that a reader gets in one message (`group_events`).

Sending a message through gRPC costs much more than adding an event to one, and one input of an actor often
leads to several events. A response carries a single event in field 1, and a group of events carries each
event in field 1 too. So the concatenated encoded responses are the encoded group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from wonder_server.actors.streaming.attachment import CaughtUp
from wonder_server.actors.streaming.items import Item
from wonder_server.ports.journal import Event

MAX_GROUP_EVENTS = 100
MAX_GROUP_BYTES = 256 * 1024
"""Maximum size of a group; clients accept messages of 4 MiB by default. A larger event is sent alone."""

_LENGTH_DELIMITED = 2


def group_events(
    items: Iterable[Item | CaughtUp], encode: Callable[[Event], bytes]
) -> Iterator[Item | CaughtUp | list[Event]]:
    """Yield the items in order, with consecutive events as one list for `join_encoded`."""
    group: list[Event] = []
    size = 0
    for item in items:
        wire = encode(item) if isinstance(item, Event) else b""
        if group and (not wire or len(group) == MAX_GROUP_EVENTS or size + len(wire) > MAX_GROUP_BYTES):
            yield group
            group, size = [], 0
        if isinstance(item, Event):
            group.append(item)
            size += len(wire)
        else:
            yield item
    if group:
        yield group


def join_encoded(responses: Iterable[bytes], field_number: int) -> bytes:
    """Return one encoded response in place of several that carry one event each.

    ``field_number`` is the number of the field that holds a group.
    """
    first, *others = responses
    if not others:
        return first
    group = b"".join((first, *others))
    return _varint(field_number << 3 | _LENGTH_DELIMITED) + _varint(len(group)) + group


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
