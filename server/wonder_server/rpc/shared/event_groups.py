"""Events that go to a reader in one message, for those who ask for it (`group_events`).

Every message costs a way through gRPC, and what an actor does leads to several events at once. To group them
costs next to nothing: the response that carries one event has it as field 1, and a group has each of its
events as field 1 too. So the encoded responses of single events, one after the other, are the encoded group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from wonder_server.actors.streaming.attachment import CaughtUp
from wonder_server.actors.streaming.hub import Item
from wonder_server.ports.journal import Event

MAX_GROUP_EVENTS = 100
MAX_GROUP_BYTES = 256 * 1024
"""In one message; clients take 4 MiB by default. One that is larger by itself comes by itself."""

_LENGTH_DELIMITED = 2


def group_events(
    items: Iterable[Item | CaughtUp], encode: Callable[[Event], bytes]
) -> Iterator[Item | CaughtUp | list[Event]]:
    """The items in their order; events that follow each other as a list, for one message (`together`)."""
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
    """One response in place of these, each with an event; ``field_number`` is where a group stands in it."""
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
