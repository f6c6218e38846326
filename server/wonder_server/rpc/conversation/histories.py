"""Methods of the ConversationService that create conversations, also with a history: create and fork."""

from __future__ import annotations

import asyncio
from typing import Final

from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.actors.conversation.conversations import SendRequest
from wonder_server.actors.conversation.histories.forks import ForkRequest
from wonder_server.actors.conversation.histories.imports import (
    MAX_HISTORY_MESSAGES,
    ImportedHistory,
    MessageToImport,
)
from wonder_server.actors.conversation.histories.new_history import NewHistory
from wonder_server.core.conversation.planning.histories.imports import HistoryCall
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.ids import is_id
from wonder_server.rpc.conversation import codec
from wonder_server.rpc.conversation.converse import StreamMethods, starts_turn
from wonder_server.rpc.server.authorization import resolve_user
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.common_codec import check_text_size
from wonder_server.rpc.shared.fields import required
from wonder_server.rpc.shared.payload import struct_to_dict, value_to_json
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.rpc.shared.request_keys import message_origin
from wonder_server.rpc.shared.times import from_timestamp
from wonder_server.rpc.shared.trace_context import trace_from_metadata

MAX_CALLS: Final = 128
"""Maximum number of tool calls of one imported message."""
MAX_CALL_ID_BYTES: Final = 128
MAX_TOOL_NAME_BYTES: Final = 64

_AT_ONCE: Final = 200
"""Number of messages that are decoded before other work gets its turn."""
_FORK_FIELDS: Final = (
    "title",
    "external_ref",
    "participants",
    "metadata",
    "budget",
    "expire_time",
    "concurrent_turns",
)


class HistoryMethods(StreamMethods):
    """Methods of the ConversationServicer; see ``conversation_service.proto``."""

    async def create_conversation(
        self, request: pb.CreateConversationRequest, _context: CallContext
    ) -> pb.CreateConversationResponse:
        origin = message_origin(request)
        creator = self._conversations.creator
        try:
            project_id = await self._own.names.project_id(request.conversation.project_id)
        except WonderError:
            # The project may have been deleted since the request was sent first.
            before = None
            if not request.validate_only:
                before = await creator.created_before(origin)
            if before is None:
                raise
            return pb.CreateConversationResponse(conversation=await self._encode(before))
        draft = codec.conversation_from_proto(request.conversation, project_id)
        at_home = not request.conversation.project_id
        history = await self._imported(request)
        if request.validate_only:
            draft = await creator.resolve_participants(draft, use_home_project=at_home)
            if history is not None:
                await history.prepare(draft)
            return pb.CreateConversationResponse(conversation=codec.conversation_to_proto(draft, 0))
        created, existed = await creator.create(
            draft,
            origin,
            return_existing=request.return_existing,
            use_home_project=at_home,
            history=history,
        )
        return pb.CreateConversationResponse(conversation=await self._encode(created), existed=existed)

    async def fork_conversation(
        self, request: pb.ForkConversationRequest, context: CallContext
    ) -> pb.ForkConversationResponse:
        wanted = await self._fork_request(request, trace_from_metadata(context))
        fork, turn = await self._own.forks.fork(wanted, message_origin(request))
        return pb.ForkConversationResponse(
            conversation=await self._encode(fork),
            turn=codec.turn_to_proto(turn) if turn is not None else None,
        )

    async def _fork_request(self, request: pb.ForkConversationRequest, trace_id: str) -> ForkRequest:
        """Decode the request. Raises FIELD_INVALID, PROJECT_NOT_FOUND."""
        source_id = required(request.conversation_id, "conversation_id")
        given = {field.name for field, _ in request.conversation.ListFields()} & {*_FORK_FIELDS}
        if request.before and not (request.message_id and not request.regenerate):
            message = "before is set, but message_id is empty, or regenerate is set. Set message_id alone."
            raise error(Reason.FIELD_INVALID, message, field="before")
        project_id = request.conversation.project_id
        if project_id:
            source = await self._conversations.lookup.get(source_id)
            if await self._own.names.project_id(project_id) != source.project_id:
                message = "A fork is in the project of its source. Leave project_id empty."
                raise error(Reason.FIELD_INVALID, message, field="conversation.project_id")
        return ForkRequest(
            source_id=source_id,
            message_id=request.message_id and required(request.message_id, "message_id"),
            before=request.before,
            draft=codec.conversation_from_proto(request.conversation, ""),
            given=frozenset(given),
            send=self._first_message(request.send, trace_id) if request.HasField("send") else None,
            regenerate=request.regenerate,
        )

    def _first_message(self, send: pb.ConverseSend, trace_id: str) -> SendRequest:
        if not starts_turn(send):
            message = "start_turn is false. Fork without `send`, then post the message with SendMessage."
            raise error(Reason.FIELD_INVALID, message, field="send.start_turn")
        if send.reply_to_message_id:
            message = "The messages of the fork have no ids yet. Leave it empty."
            raise error(Reason.FIELD_INVALID, message, field="send.reply_to_message_id")
        return self._send_request(send, trace_id)

    async def _imported(self, request: pb.CreateConversationRequest) -> NewHistory | None:
        """Decode the history of a new conversation; None without messages. Raises LIMIT_EXCEEDED,
        FIELD_INVALID, PERMISSION_DENIED."""
        count = len(request.messages)
        if not count:
            return None
        if count > MAX_HISTORY_MESSAGES:
            raise error(
                Reason.LIMIT_EXCEEDED,
                f"There are {count} messages; the maximum is {MAX_HISTORY_MESSAGES}. Import the newest.",
                field="messages",
                limit=str(MAX_HISTORY_MESSAGES),
            )
        messages: list[MessageToImport] = []
        for index, message in enumerate(request.messages):
            messages.append(_message_from_proto(message, f"messages[{index}]"))
            if index % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        return ImportedHistory(
            self._conversations.files,
            messages,
            current_principal.get().text,
            self._conversations.clock.now_ms(),
        )


def _message_from_proto(message: pb.HistoryMessage, place: str) -> MessageToImport:
    speaker = message.WhichOneof("speaker")
    if speaker is None:
        text = f"{place} has no speaker. Set user_id, agent_id or other_agent."
        raise error(Reason.FIELD_INVALID, text, field=f"{place}.user_id")
    where = f"{place}.{speaker}"
    name = check_text_size(getattr(message, speaker), codec.MAX_USER_BYTES, where)
    if speaker == "user_id":
        name = resolve_user(name, where)
    if speaker == "other_agent" and (not name.strip() or is_id("agt", name)):
        raise error(Reason.FIELD_INVALID, f"{where} is no name of another agent.", field=where)
    if message.tool_calls and speaker == "user_id":
        text = f"{place} is of a user, who calls no tools."
        raise error(Reason.FIELD_INVALID, text, field=f"{place}.tool_calls")
    return MessageToImport(
        speaker=speaker.removesuffix("_id"),
        name=name,
        content=message.content,
        parts=codec.parts_from_proto(message.parts),
        calls=_calls_from_proto(message, f"{place}.tool_calls"),
        at_ms=from_timestamp(message.create_time, f"{place}.create_time"),
    )


def _calls_from_proto(message: pb.HistoryMessage, place: str) -> tuple[HistoryCall, ...]:
    if len(message.tool_calls) > MAX_CALLS:
        raise error(
            Reason.LIMIT_EXCEEDED,
            f"{place} has {len(message.tool_calls)} calls; the maximum is {MAX_CALLS}.",
            field=place,
            limit=str(MAX_CALLS),
        )
    calls = tuple(
        [_call_from_proto(call, f"{place}[{index}]") for index, call in enumerate(message.tool_calls)]
    )
    if len({call.id for call in calls}) < len(calls):
        raise error(Reason.FIELD_INVALID, f"{place} has two calls with one id.", field=place)
    return calls


def _call_from_proto(call: pb.HistoryToolCall, place: str) -> HistoryCall:
    outcome = call.WhichOneof("outcome")
    return HistoryCall(
        id=check_text_size(required(call.id, f"{place}.id"), MAX_CALL_ID_BYTES, f"{place}.id"),
        name=check_text_size(
            required(call.tool_name, f"{place}.tool_name"), MAX_TOOL_NAME_BYTES, f"{place}.tool_name"
        ),
        arguments=struct_to_dict(call.input, f"{place}.input"),
        result=value_to_json(call.result, f"{place}.result") if outcome == "result" else None,
        failure=call.error if outcome == "error" else None,
        answered=outcome is not None,
    )
