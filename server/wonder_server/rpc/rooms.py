"""The part of the ConversationService that concerns a conversation as a whole: who takes part, its end."""

from __future__ import annotations

from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask

from wonder.v1 import conversation_pb2
from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.actors.rooms import Rooms
from wonder_server.core.conversation.room_inputs import Revise
from wonder_server.core.conversation.values import Conversation
from wonder_server.core.errors import Reason, error
from wonder_server.rpc import conversation_codec as codec
from wonder_server.rpc.common_codec import budget_of, metadata_of, sized
from wonder_server.rpc.fields import required
from wonder_server.rpc.once import request_key
from wonder_server.rpc.times import from_timestamp

PATHS = ("title", "external_ref", "metadata", "budget", "expire_time")
"""What UpdateConversation changes."""


class RoomMethods:
    """Methods of the ConversationServicer; see ``conversation_service.proto``."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def _encode(self, value: Conversation) -> conversation_pb2.Conversation:
        """The conversation, with where its record ends and what is active."""
        raise NotImplementedError

    async def add_participant(
        self, request: pb.AddParticipantRequest, _context: Any
    ) -> pb.AddParticipantResponse:
        room = required(request.conversation_id, "conversation_id")
        newcomer = codec.newcomer(request.participant, "participant")
        joined = await self._rooms.join(room, newcomer, request_key(request.request_id))
        return pb.AddParticipantResponse(conversation=await self._encode(joined))

    async def remove_participant(
        self, request: pb.RemoveParticipantRequest, _context: Any
    ) -> pb.RemoveParticipantResponse:
        room = required(request.conversation_id, "conversation_id")
        who = request.WhichOneof("participant")
        if who is None:
            raise error(Reason.FIELD_INVALID, "Name a user or an agent.", field="user_id")
        key = required(getattr(request, who), who)
        left = await self._rooms.leave(room, who.removesuffix("_id"), key, request_key(request.request_id))
        return pb.RemoveParticipantResponse(conversation=await self._encode(left))

    async def update_conversation(
        self, request: pb.UpdateConversationRequest, _context: Any
    ) -> pb.UpdateConversationResponse:
        message = request.conversation
        change = _revision(message, request.update_mask)
        room = required(message.id, "conversation.id")
        changed = await self._rooms.revise(room, change, request_key(request.request_id))
        return pb.UpdateConversationResponse(conversation=await self._encode(changed))

    async def complete_conversation(
        self, request: pb.CompleteConversationRequest, _context: Any
    ) -> pb.CompleteConversationResponse:
        completed = await self._rooms.complete(
            required(request.conversation_id, "conversation_id"),
            cancel_turns=request.cancel_turns,
            version=_version(request.etag),
            request_id=request_key(request.request_id),
        )
        return pb.CompleteConversationResponse(conversation=await self._encode(completed))

    async def reopen_conversation(
        self, request: pb.ReopenConversationRequest, _context: Any
    ) -> pb.ReopenConversationResponse:
        opened = await self._rooms.reopen(
            required(request.conversation_id, "conversation_id"),
            version=_version(request.etag),
            request_id=request_key(request.request_id),
        )
        return pb.ReopenConversationResponse(conversation=await self._encode(opened))

    async def reset_conversation(
        self, request: pb.ResetConversationRequest, _context: Any
    ) -> pb.ResetConversationResponse:
        anew = await self._rooms.reset(
            required(request.conversation_id, "conversation_id"),
            keep_system_message=request.keep_system_message,
            version=_version(request.etag),
            request_id=request_key(request.request_id),
        )
        return pb.ResetConversationResponse(conversation=await self._encode(anew))

    async def delete_conversation(
        self, request: pb.DeleteConversationRequest, _context: Any
    ) -> pb.DeleteConversationResponse:
        await self._rooms.delete(
            required(request.conversation_id, "conversation_id"),
            version=_version(request.etag),
            request_id=request_key(request.request_id),
        )
        return pb.DeleteConversationResponse()


def _version(etag: str) -> int:
    """The version that an etag names, 0 for any; one that no conversation has for what is no etag."""
    if not etag:
        return 0
    return int(etag) if etag.isascii() and etag.isdecimal() and len(etag) < 19 and int(etag) else -1


def _revision(message: conversation_pb2.Conversation, mask: FieldMask) -> Revise:
    for path in mask.paths:
        if path not in PATHS:
            raise error(
                Reason.FIELD_MASK_UNSUPPORTED,
                f"'{path[:100]}' cannot be changed; what can: {', '.join(PATHS)}.",
                field="update_mask",
            )
    given = set(mask.paths) or {field.name for field, _ in message.ListFields()} & {*PATHS}
    title, reference = message.title, message.external_ref
    return Revise(
        title=sized(title, codec.MAX_TITLE, "conversation.title") if "title" in given else None,
        external_ref=sized(reference, codec.MAX_REFERENCE, "conversation.external_ref")
        if "external_ref" in given
        else None,
        metadata=metadata_of(message.metadata, "conversation.metadata") if "metadata" in given else None,
        expire_ms=from_timestamp(message.expire_time, "conversation.expire_time")
        if "expire_time" in given
        else None,
        version=_version(message.etag),
        budget=budget_of(message.budget, "conversation.budget") if "budget" in given else None,
    )
