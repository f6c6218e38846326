"""StreamTurn: a method of the ConversationService that sends a message and streams its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from grpc._cython import cygrpc  # type: ignore[attr-defined]

from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.actors.conversation.conversations import Conversations
from wonder_server.actors.conversation.turn_readers import TurnReaders
from wonder_server.actors.conversation.turn_streams import AcceptedTurn, TurnRequest, TurnStreams
from wonder_server.core.conversation.model.values import Conversation, Participant
from wonder_server.core.errors import Reason, error
from wonder_server.core.frozen import replace
from wonder_server.core.identity import Principal
from wonder_server.ports.access import ByPrincipal
from wonder_server.rpc.conversation import codec
from wonder_server.rpc.conversation.converse import StreamMethods, starts_turn
from wonder_server.rpc.conversation.parts import ConversationParts
from wonder_server.rpc.conversation.stream import part_kinds, write_stream
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.message_trimming import trim_encoded
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.rpc.shared.trace_context import trace_from_metadata

Cancel: TypeAlias = Callable[[AcceptedTurn], None]


class TurnStreamMethods(StreamMethods):
    """The method of the ConversationServicer; see ``conversation_service.proto``."""

    def __init__(self, parts: ByPrincipal[ConversationParts]) -> None:
        super().__init__(parts)
        self._turn_readers = TurnReaders()

    async def stream_turn(self, request: pb.StreamTurnRequest, context: CallContext) -> None:
        turn_request = await self._turn_request(request, trace_from_metadata(context))
        streams = TurnStreams(self._conversations)
        cancel: Cancel | None = None
        if request.on_disconnect == pb.ON_DISCONNECT_CANCEL:
            cancel = partial(_cancel, self._conversations, current_principal.get())
        # Start in a separate task: a sent message leads to a turn even if the client leaves meanwhile.
        starting = asyncio.ensure_future(streams.start(turn_request))
        try:
            accepted = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(partial(self._abandon, cancel))
            raise
        with self._turn_readers.reading(
            accepted.turn_id, None if cancel is None else partial(cancel, accepted)
        ):
            try:
                await _write_turn(streams, accepted, request, context)
            except cygrpc.ExecuteBatchError:
                # The client left during a write.
                raise asyncio.CancelledError from None

    async def _turn_request(self, request: pb.StreamTurnRequest, trace_id: str) -> TurnRequest:
        """Decode the request. Raises FIELD_INVALID, PROJECT_NOT_FOUND and the errors of messages."""
        _check_fields(request)
        draft, given = None, request.new_conversation
        if request.HasField("new_conversation"):
            draft = codec.conversation_from_proto(given, await self._own.names.project_id(given.project_id))
            draft = _with_agent(draft, request.send.agent_id)
        return TurnRequest(
            message=self._send_request(request.send, trace_id),
            conversation_id=request.conversation_id,
            draft=draft,
            at_home=not given.project_id,
            after=request.after_sequence,
        )

    def _abandon(self, cancel: Cancel | None, started: asyncio.Future[AcceptedTurn]) -> None:
        """Handle the start of a turn whose client has left."""
        if not started.cancelled() and started.exception() is None and cancel is not None:
            accepted = started.result()
            self._turn_readers.abandon(accepted.turn_id, partial(cancel, accepted))


async def _write_turn(
    streams: TurnStreams, accepted: AcceptedTurn, request: pb.StreamTurnRequest, context: CallContext
) -> None:
    """Write the responses of a turn, up to the ended turn."""
    first = pb.StreamTurnResponse(
        accepted=pb.TurnAccepted(
            conversation_id=accepted.conversation_id,
            turn_id=accepted.turn_id,
            message_id=accepted.message_id,
            sequence=accepted.sequence,
            after_sequence=accepted.after,
        )
    )
    items = await streams.attach(accepted, part_kinds(request.delta_kinds, "delta_kinds"))
    try:
        await write_stream(items, first, context.write, grouping=request.group_events)
    finally:
        items.close()
    last = pb.StreamTurnResponse(turn=codec.turn_to_proto(await streams.turn(accepted)))
    await context.write(trim_encoded(last.SerializeToString(), last))


def _cancel(conversations: Conversations, principal: Principal, accepted: AcceptedTurn) -> None:
    conversations.cancel_abandoned(accepted.conversation_id, accepted.turn_id, principal)


def _check_fields(request: pb.StreamTurnRequest) -> None:
    """Raise FIELD_INVALID for a request that names no conversation, or has an invalid value."""
    if not (request.conversation_id or request.HasField("new_conversation")):
        raise error(
            Reason.FIELD_INVALID,
            "The request names no conversation. Set conversation_id or new_conversation.",
            field="conversation_id",
        )
    if not starts_turn(request.send):
        raise error(
            Reason.FIELD_INVALID,
            "start_turn is false, so there is no turn to stream. Use SendMessage.",
            field="send.start_turn",
        )
    if request.after_sequence < 0:
        raise error(
            Reason.FIELD_INVALID,
            f"after_sequence is {request.after_sequence}. It must not be negative.",
            field="after_sequence",
        )
    if request.on_disconnect not in pb.OnDisconnect.values():
        raise error(
            Reason.FIELD_INVALID,
            f"on_disconnect {request.on_disconnect} does not exist.",
            field="on_disconnect",
        )
    part_kinds(request.delta_kinds, "delta_kinds")


def _with_agent(draft: Conversation, agent: str) -> Conversation:
    """Return the draft with the agent that answers, if it has no agent. Raises NO_AGENT without one."""
    if any(person.type == "agent" for person in draft.participants):
        return draft
    if not agent:
        raise error(
            Reason.NO_AGENT,
            "The new conversation has no agent. Set send.agent_id, or name an agent among its participants.",
            field="send.agent_id",
        )
    return replace(draft, participants=(*draft.participants, Participant(type="agent", id=agent)))
