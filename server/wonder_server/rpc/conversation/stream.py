"""Encoding of a conversation's stream: Converse, Subscribe and StreamTurn use the same field numbers.

An event goes to many readers and is encoded once; the event keeps its encoded bytes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol, assert_never

from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.actors.streaming.attachment import CaughtUp
from wonder_server.actors.streaming.items import (
    Closed,
    Delta,
    Item,
    KeepAlive,
    NodeProgress,
    Part,
    PartKind,
    Reply,
)
from wonder_server.core.errors import Reason, error
from wonder_server.ports.journal import Event
from wonder_server.rpc.conversation.event_codec import set_event
from wonder_server.rpc.shared.event_groups import group_events, join_encoded
from wonder_server.rpc.shared.message_trimming import trim_encoded
from wonder_server.rpc.shared.stream_frames import draining, heartbeat, slow_reader

_DELTA_KINDS = {
    PartKind.REASONING: pb.DELTA_KIND_REASONING,
    PartKind.ARGUMENTS: pb.DELTA_KIND_TOOL_ARGUMENTS,
}
_PART_KINDS = {encoded: kind for kind, encoded in _DELTA_KINDS.items()}

Write = Callable[[bytes], Awaitable[None]]


class ItemSource(Protocol):
    """The items of one stream: an `Attachment`, or a part of its items."""

    @property
    def sequence(self) -> int:
        """Sequence of the last event that `take` has returned or left out: the cursor."""
        ...

    async def take(self) -> Sequence[Item | CaughtUp]: ...


_GROUP_FIELD_NUMBER = pb.ConverseResponse.EVENTS_FIELD_NUMBER

_END_REASONS = {
    "draining": pb.STREAM_END_REASON_DRAINING,
    "detached": pb.STREAM_END_REASON_DETACHED,
    "deleted": pb.STREAM_END_REASON_DELETED,
    "moved": pb.STREAM_END_REASON_MOVED,
}


def part_kinds(delta_kinds: Sequence[pb.DeltaKind], field: str) -> frozenset[PartKind]:
    """Decode the kinds of deltas that a client asks for beside text. Raises FIELD_INVALID."""
    for index, kind in enumerate(delta_kinds):
        if kind not in _PART_KINDS:
            names = " and ".join(map(pb.DeltaKind.Name, _PART_KINDS))
            raise error(
                Reason.FIELD_INVALID,
                f"{field}[{index}] is {kind}. Use {names}, or leave it empty: text always comes.",
                field=f"{field}[{index}]",
            )
    return frozenset(_PART_KINDS[kind] for kind in delta_kinds)


async def write_stream(
    attachment: ItemSource,
    first: pb.ConverseResponse | pb.StreamTurnResponse,
    write: Write,
    *,
    grouping: bool = False,
) -> None:
    """Write the ``first`` response, and all items of a client's stream up to its end. Raises SLOW_READER.

    ``grouping`` sends consecutive events in one message. Every token of every stream passes through this
    function, so it does no avoidable work.
    """
    await write(trim_encoded(first.SerializeToString(), first))
    while True:
        items = await attachment.take()
        for item in group_events(items, _encode_event) if grouping and len(items) > 1 else items:
            if type(item) is Delta and not item.attempt:
                await write(item.wire or _encode_delta(item))
                continue
            if type(item) is Event:
                await write(item.wire or _encode_event(item))
                continue
            if isinstance(item, list):
                await write(join_encoded(map(_encode_event, item), _GROUP_FIELD_NUMBER))
                continue
            for frame in _item_frames(attachment, item):
                await write(frame)
            if type(item) is Closed:
                return


def _item_frames(attachment: ItemSource, item: Item | CaughtUp) -> Iterator[bytes]:
    match item:
        case Event():
            yield _encode_event(item)
        case Delta():
            if item.restarted:
                yield _encode_restart(item)
            if item.text or item.part is not None:
                yield _encode_delta(item)
        case Reply():
            yield item.wire
        case CaughtUp():
            yield _encode(pb.ConverseResponse(caught_up=pb.CaughtUp(sequence=item.sequence)))
        case NodeProgress():
            pass  # Only runs have progress.
        case KeepAlive():
            yield _encode(pb.ConverseResponse(heartbeat=heartbeat(attachment.sequence)))
        case Closed():
            yield from _closing_frames(attachment, item.reason)
        case _:
            assert_never(item)


def _encode_event(event: Event) -> bytes:
    if event.wire is None:
        response = pb.ConverseResponse()
        set_event(response.event, event)
        event.wire = trim_encoded(response.SerializeToString(), response)
    return event.wire


def _encode_restart(delta: Delta) -> bytes:
    restarted = pb.MessageRestarted(message_id=delta.message_id, turn_id=delta.turn_id, attempt=delta.attempt)
    return _encode(pb.ConverseResponse(message_restarted=restarted))


def _encode_delta(delta: Delta) -> bytes:
    if delta.wire is None:
        response = pb.ConverseResponse()
        piece = response.delta
        piece.message_id = delta.message_id
        piece.turn_id = delta.turn_id
        piece.offset = delta.offset
        piece.text = delta.text
        if delta.part is not None:
            _set_part(piece, delta.part)
        delta.wire = response.SerializeToString()
    return delta.wire


def _set_part(piece: pb.MessageDelta, part: Part) -> None:
    piece.kind = _DELTA_KINDS[part.kind]
    if part.kind is PartKind.ARGUMENTS:
        piece.tool_call_index = part.index
        piece.tool_call_id = part.call_id
        piece.tool_name = part.name


def _closing_frames(attachment: ItemSource, reason: str) -> list[bytes]:
    if reason == "ended":
        return []  # The end of a turn: its caller writes the last response.
    if reason == "slow":
        raise slow_reader(attachment.sequence)
    end = pb.StreamEnd(reason=_END_REASONS[reason], resume_after_sequence=attachment.sequence)
    frames = [_encode(pb.ConverseResponse(end=end))]
    if reason == "draining":
        frames.insert(0, _encode(pb.ConverseResponse(draining=draining("turns in progress"))))
    return frames


def _encode(response: pb.ConverseResponse) -> bytes:
    return trim_encoded(response.SerializeToString(), response)
