"""Methods of the ConversationService for a conversation as a whole: participants, update, end, deletion."""

from __future__ import annotations

from google.protobuf.field_mask_pb2 import FieldMask

from wonder.v1 import conversation_pb2
from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.core.conversation.model.lifecycle_inputs import Update
from wonder_server.core.conversation.model.values import Conversation
from wonder_server.core.errors import Reason, error
from wonder_server.rpc.conversation import codec
from wonder_server.rpc.conversation.parts import ConversationMethods
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.common_codec import budget_from_proto, check_text_size, metadata_from_proto
from wonder_server.rpc.shared.fields import required
from wonder_server.rpc.shared.request_keys import call_origin
from wonder_server.rpc.shared.times import from_timestamp

UPDATABLE_PATHS = ("title", "external_ref", "metadata", "budget", "expire_time", "concurrent_turns")
"""Fields that UpdateConversation can change."""


class LifecycleMethods(ConversationMethods):
    """Methods of the ConversationServicer; see ``conversation_service.proto``."""

    async def _encode(self, value: Conversation) -> conversation_pb2.Conversation:
        """Encode the conversation with its last sequence and its active turns."""
        raise NotImplementedError

    async def add_participant(
        self, request: pb.AddParticipantRequest, _context: CallContext
    ) -> pb.AddParticipantResponse:
        conversation_id = required(request.conversation_id, "conversation_id")
        participant = codec.participant_from_proto(request.participant, "participant")
        joined = await self._lifecycle.join(conversation_id, participant, call_origin(request.request_id))
        return pb.AddParticipantResponse(conversation=await self._encode(joined))

    async def remove_participant(
        self, request: pb.RemoveParticipantRequest, _context: CallContext
    ) -> pb.RemoveParticipantResponse:
        conversation_id = required(request.conversation_id, "conversation_id")
        field = request.WhichOneof("participant")
        if field is None:
            raise error(Reason.FIELD_INVALID, "Set user_id or agent_id.", field="user_id")
        key = required(getattr(request, field), field)
        left = await self._lifecycle.leave(
            conversation_id, field.removesuffix("_id"), key, call_origin(request.request_id)
        )
        return pb.RemoveParticipantResponse(conversation=await self._encode(left))

    async def update_conversation(
        self, request: pb.UpdateConversationRequest, _context: CallContext
    ) -> pb.UpdateConversationResponse:
        message = request.conversation
        change = _update_from_proto(message, request.update_mask)
        conversation_id = required(message.id, "conversation.id")
        changed = await self._lifecycle.update(conversation_id, change, call_origin(request.request_id))
        return pb.UpdateConversationResponse(conversation=await self._encode(changed))

    async def complete_conversation(
        self, request: pb.CompleteConversationRequest, _context: CallContext
    ) -> pb.CompleteConversationResponse:
        completed = await self._lifecycle.complete(
            required(request.conversation_id, "conversation_id"),
            cancel_turns=request.cancel_turns,
            version=_version(request.etag),
            origin=call_origin(request.request_id),
        )
        return pb.CompleteConversationResponse(conversation=await self._encode(completed))

    async def reopen_conversation(
        self, request: pb.ReopenConversationRequest, _context: CallContext
    ) -> pb.ReopenConversationResponse:
        opened = await self._lifecycle.reopen(
            required(request.conversation_id, "conversation_id"),
            version=_version(request.etag),
            origin=call_origin(request.request_id),
        )
        return pb.ReopenConversationResponse(conversation=await self._encode(opened))

    async def reset_conversation(
        self, request: pb.ResetConversationRequest, _context: CallContext
    ) -> pb.ResetConversationResponse:
        updated = await self._lifecycle.reset(
            required(request.conversation_id, "conversation_id"),
            keep_system_message=request.keep_system_message,
            version=_version(request.etag),
            origin=call_origin(request.request_id),
        )
        return pb.ResetConversationResponse(conversation=await self._encode(updated))

    async def delete_conversation(
        self, request: pb.DeleteConversationRequest, _context: CallContext
    ) -> pb.DeleteConversationResponse:
        await self._lifecycle.delete(
            required(request.conversation_id, "conversation_id"),
            version=_version(request.etag),
            origin=call_origin(request.request_id),
        )
        return pb.DeleteConversationResponse()


def _version(etag: str) -> int:
    """Return the version that an etag names, 0 for an empty etag, and -1, which matches none, for an invalid
    one."""
    if not etag:
        return 0
    return int(etag) if etag.isascii() and etag.isdecimal() and len(etag) < 19 and int(etag) else -1


def _update_from_proto(message: conversation_pb2.Conversation, mask: FieldMask) -> Update:
    for path in mask.paths:
        if path not in UPDATABLE_PATHS:
            raise error(
                Reason.FIELD_MASK_UNSUPPORTED,
                f"update_mask: '{path[:100]}' cannot be changed. Use one of {', '.join(UPDATABLE_PATHS)}.",
                field="update_mask",
            )
    given = set(mask.paths) or {field.name for field, _ in message.ListFields()} & {*UPDATABLE_PATHS}
    title, reference = message.title, message.external_ref
    return Update(
        title=check_text_size(title, codec.MAX_TITLE_BYTES, "conversation.title")
        if "title" in given
        else None,
        external_ref=check_text_size(reference, codec.MAX_REFERENCE_BYTES, "conversation.external_ref")
        if "external_ref" in given
        else None,
        metadata=metadata_from_proto(message.metadata, "conversation.metadata")
        if "metadata" in given
        else None,
        expire_ms=from_timestamp(message.expire_time, "conversation.expire_time")
        if "expire_time" in given
        else None,
        version=_version(message.etag),
        budget=budget_from_proto(message.budget, "conversation.budget") if "budget" in given else None,
        concurrent_turns=codec.concurrent_turns_from_proto(message, "conversation.concurrent_turns")
        if "concurrent_turns" in given
        else None,
    )
