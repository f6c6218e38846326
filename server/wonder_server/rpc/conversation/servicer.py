"""The ConversationService: decode, call the actors, encode."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol, TypeVar

from google.protobuf.message import Message as ProtoMessage

from wonder.v1 import conversation_pb2
from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.core.actor.commands import Scope, branch_of
from wonder_server.core.conversation.model.status import is_staged
from wonder_server.core.conversation.model.values import Conversation, Message, Move, Turn
from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.ports.access import ByPrincipal
from wonder_server.ports.records import EventQuery, Query, RowValue
from wonder_server.rpc.conversation import call_agent, codec, context_preview
from wonder_server.rpc.conversation.branches import BranchMethods
from wonder_server.rpc.conversation.converse import starts_turn
from wonder_server.rpc.conversation.decisions import DecisionMethods
from wonder_server.rpc.conversation.event_codec import event_to_proto
from wonder_server.rpc.conversation.histories import HistoryMethods
from wonder_server.rpc.conversation.message_chunks import message_chunks
from wonder_server.rpc.conversation.parts import ConversationParts
from wonder_server.rpc.conversation.search import SearchMethods
from wonder_server.rpc.conversation.turn_stream import TurnStreamMethods
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.common_codec import enum_names
from wonder_server.rpc.shared.fields import required
from wonder_server.rpc.shared.pages import PAGE_BYTES, ListRequest, encode_page, page_from_rows, page_request
from wonder_server.rpc.shared.request_keys import call_origin, message_origin
from wonder_server.rpc.shared.times import from_timestamp
from wonder_server.rpc.shared.trace_context import trace_from_metadata
from wonder_server.services.content.repositories import RepositoryService
from wonder_server.services.paging import PageRequest, page

MAX_MOVES_PAGE = 100

ATTACH_TIMEOUT_S = 30.0
"""Default of the time in which a client must send a stream's first message, in seconds."""


Row = TypeVar("Row", Turn, Message, Move)
M = TypeVar("M", bound=ProtoMessage)


class RowsRequest(ListRequest, Protocol):
    """A list request for the rows of one conversation or of all."""

    @property
    def conversation_id(self) -> str: ...


class ConversationServicer(HistoryMethods, TurnStreamMethods, BranchMethods, SearchMethods, DecisionMethods):
    """Methods of the ConversationService; see ``conversation_service.proto``."""

    def __init__(
        self,
        parts: ByPrincipal[ConversationParts],
        repositories: RepositoryService,
        *,
        attach_timeout_s: float = ATTACH_TIMEOUT_S,
    ) -> None:
        super().__init__(parts)
        self._repositories = repositories
        self._attach_timeout_s = attach_timeout_s

    # --- conversations ----------------------------------------------------------------------------------

    async def get_conversation(
        self, request: pb.GetConversationRequest, _context: CallContext
    ) -> pb.GetConversationResponse:
        if request.WhichOneof("key") is None:
            raise error(
                Reason.FIELD_INVALID,
                "The request names no conversation. Set conversation_id or external_ref.",
                field="conversation_id",
            )
        if request.HasField("external_ref"):
            project_id = await self._own.names.project_id(request.project_id)
            found = await self._conversations.lookup.find_by_external_ref(project_id, request.external_ref)
            if found is None and not request.project_id:
                found = await self._find_in_any_project(request.external_ref)
            if found is None:
                raise not_found(
                    Reason.CONVERSATION_NOT_FOUND,
                    request.external_ref,
                    field="external_ref",
                    noun="conversation with the external_ref",
                    place=" in the project",
                )
        else:
            found = await self._conversations.lookup.get(request.conversation_id)
        return pb.GetConversationResponse(conversation=await self._encode(found))

    async def _find_in_any_project(self, external_ref: str) -> Conversation | None:
        """Return the only conversation with this reference in any project, or None.

        Raises FIELD_INVALID if several projects have one.
        """
        found = (
            await self._conversations.lookup.list_by_external_ref(external_ref, None) if external_ref else []
        )
        if len(found) > 1:
            raise error(
                Reason.FIELD_INVALID,
                f"Several projects have a conversation with the external_ref '{external_ref[:256]}'. "
                "Set project_id.",
                field="project_id",
            )
        return found[0] if found else None

    async def list_conversations(
        self, request: pb.ListConversationsRequest, _context: CallContext
    ) -> pb.ListConversationsResponse:
        wanted = page_request(request)
        project_id = await self._own.names.project_id(request.project_id) if request.project_id else ""
        members = []
        if request.agent_id:
            members.append(("participants", await self._own.names.agent_id(request.agent_id)))
        if request.user_id:
            members.append(("participants", request.user_id))
        statuses = enum_names(
            conversation_pb2.ConversationStatus,
            "CONVERSATION_STATUS",
            request.statuses,
            "statuses",
        )
        scope = ["conversations", project_id, members, statuses]
        if request.include_archived:
            scope.append("archived")
        limit = wanted.limit()
        query = Query(
            table="conversations",
            parent=project_id,
            members=tuple(members),
            statuses=statuses,
            # Omit the conversations of delegated turns.
            fields=(("called_by", ""),)
            if request.include_archived
            else (("called_by", ""), ("archive_key", "")),
            after=_row_cursor(wanted, scope),
            limit=limit + 1,
            max_bytes=PAGE_BYTES,
        )
        found = page(await self._records.find(query), limit, scope, _by_time)
        conversations, token = await encode_page(found, self._to_proto)
        # A conversation is readable for some milliseconds before it is complete, and while it is deleted.
        hidden_ids = {item.id for item in found.items if item.deleted_ms or is_staged(item)}
        return pb.ListConversationsResponse(
            conversations=[each for each in conversations if each.id not in hidden_ids],
            next_page_token=token,
        )

    async def _encode(self, value: Conversation) -> conversation_pb2.Conversation:
        head, active = await asyncio.gather(
            self._records.head(value.id), self._conversations.lookup.active_turns(value.id)
        )
        return self._to_proto(value, head or 0, active)

    def _to_proto(
        self, value: Conversation, head: int = 0, active: Sequence[str] = ()
    ) -> conversation_pb2.Conversation:
        scope = Scope(project_id=value.project_id, conversation_id=value.id, branch=value.branch)
        branch = branch_of(scope) if value.branch or self._repositories.worktrees.has_files(scope) else ""
        return codec.conversation_to_proto(value, head, active, branch)

    async def delete_conversation(
        self, request: pb.DeleteConversationRequest, context: CallContext
    ) -> pb.DeleteConversationResponse:
        answer = await super().delete_conversation(request, context)
        await self._repositories.worktrees.delete_conversation_work(request.conversation_id)
        return answer

    # --- turns ----------------------------------------------------------------------------------

    async def send_message(
        self, request: pb.SendMessageRequest, context: CallContext
    ) -> pb.SendMessageResponse:
        conversation_id = request.conversation_id
        result = await self._conversations.send(
            conversation_id, self._send_request(request.send, trace_from_metadata(context))
        )
        turn = result.turn
        if turn is None and starts_turn(request.send):
            turn = await self._conversations.lookup.turn(result.turn_id, conversation_id)
        message = result.message or await self._conversations.lookup.message(
            result.message_id, conversation_id
        )
        return pb.SendMessageResponse(
            turn=codec.turn_to_proto(turn) if turn is not None else None,
            message=codec.message_to_proto(message),
            sequence=result.sequence,
        )

    async def call_agent(self, request: pb.CallAgentRequest, context: CallContext) -> pb.CallAgentResponse:
        origin, calls = message_origin(request), self._own.agent_calls
        try:
            call = await call_agent.request_from_proto(request, self._own.names, origin)
        except WonderError:
            # What the request names may have been deleted since it was sent first.
            turn = await calls.called_before(origin, request.timeout_ms)
            if turn is None:
                raise
        else:
            turn = await calls.call(dataclasses.replace(call, trace_id=trace_from_metadata(context)))
        return call_agent.response_to_proto(turn)

    async def preview_context(
        self, request: pb.PreviewContextRequest, _context: CallContext
    ) -> pb.PreviewContextResponse:
        send_request = self._send_request(request.send)
        return context_preview.preview_to_proto(
            await self._own.previews.preview(request.conversation_id, send_request)
        )

    async def cancel_turn(
        self, request: pb.CancelTurnRequest, _context: CallContext
    ) -> pb.CancelTurnResponse:
        turn, _ = await self._conversations.cancel(
            request.conversation_id, request.turn_id, call_origin(request.request_id)
        )
        return pb.CancelTurnResponse(turn=codec.turn_to_proto(turn))

    async def get_turn(self, request: pb.GetTurnRequest, _context: CallContext) -> pb.GetTurnResponse:
        async with self._conversations.on_disk(request.conversation_id):
            turn = await self._conversations.lookup.turn(request.turn_id, request.conversation_id)
            operations = await self._records.find(
                Query(
                    table="operations",
                    actor=turn.conversation_id,
                    parent=turn.id,
                    newest_first=False,
                    limit=200,
                )
            )
        return pb.GetTurnResponse(turn=codec.turn_to_proto(turn, operations))

    async def list_turns(self, request: pb.ListTurnsRequest, _context: CallContext) -> pb.ListTurnsResponse:
        statuses = enum_names(conversation_pb2.TurnStatus, "TURN_STATUS", request.statuses, "statuses")
        agent_id = await self._own.names.agent_id(request.agent_id) if request.agent_id else ""
        query = Query(
            table="turns",
            statuses=statuses,
            fields=(("agent_id", agent_id),) if agent_id else (),
        )
        turns, token = await self._page(request, query, MAX_MOVES_PAGE * 5, codec.turn_to_proto)
        return pb.ListTurnsResponse(turns=turns, next_page_token=token)

    async def list_messages(
        self, request: pb.ListMessagesRequest, _context: CallContext
    ) -> pb.ListMessagesResponse:
        query = Query(table="messages", parent=request.turn_id, newest_first=not request.oldest_first)
        messages, token = await self._page(request, query, MAX_MOVES_PAGE * 5, codec.message_to_proto)
        return pb.ListMessagesResponse(messages=messages, next_page_token=token)

    async def read_message(
        self, request: pb.ReadMessageRequest, _context: CallContext
    ) -> AsyncIterator[pb.ReadMessageResponse]:
        if request.offset < 0:
            raise error(
                Reason.FIELD_INVALID, f"offset is {request.offset}. It must not be negative.", field="offset"
            )
        conversation_id = required(request.conversation_id, "conversation_id")
        text = await self._conversations.whole_text(
            conversation_id, required(request.message_id, "message_id")
        )
        for piece in message_chunks(text, request.offset):
            yield piece

    async def list_moves(self, request: pb.ListMovesRequest, _context: CallContext) -> pb.ListMovesResponse:
        query = Query(table="moves", parent=request.turn_id, newest_first=not request.oldest_first)
        moves, token = await self._page(request, query, MAX_MOVES_PAGE, codec.move_to_proto)
        if request.turn_id and not (moves or request.conversation_id or request.page_token):
            # Raise TURN_NOT_FOUND: an empty list would mean that the turn exists without moves.
            await self._conversations.lookup.turn(request.turn_id)
        return pb.ListMovesResponse(moves=moves, next_page_token=token)

    async def list_events(
        self, request: pb.ListEventsRequest, _context: CallContext
    ) -> pb.ListEventsResponse:
        if request.after_sequence and not request.conversation_id:
            raise error(
                Reason.FIELD_INVALID,
                "after_sequence requires conversation_id.",
                field="after_sequence",
            )
        if request.after_sequence < 0:
            raise error(
                Reason.FIELD_INVALID,
                f"after_sequence is {request.after_sequence}. It must not be negative.",
                field="after_sequence",
            )
        wanted = page_request(request)
        project_id = await self._own.names.project_id(request.project_id) if request.project_id else ""
        query = EventQuery(
            actor=request.conversation_id,
            after_sequence=request.after_sequence,
            names=tuple(request.names),
            turn_id=request.turn_id,
            project_id=project_id,
            start_ms=from_timestamp(request.start_time, "start_time"),
            end_ms=from_timestamp(request.end_time, "end_time"),
        )
        scope = ["events", repr(query)]
        cursor = wanted.cursor(scope, [])
        limit = wanted.limit()
        found = await self._conversations.events(_paged(query, tuple(cursor) if cursor else None, limit + 1))
        events, token = await page_from_rows(
            found, limit, scope, lambda e: [e.at_ms, e.actor_id, e.sequence], event_to_proto
        )
        return pb.ListEventsResponse(events=events, next_page_token=token)

    async def _page(
        self, request: RowsRequest, query: Query, max_items: int, encode: Callable[[Row], M]
    ) -> tuple[list[M], str]:
        """Return one page of rows, of one conversation or of all, and the next page's token."""
        wanted = page_request(request)
        limit = min(wanted.limit(), max_items)
        scope = ["rows", request.conversation_id, repr(query)]
        # Moves are numbered within their turn, so the moves of a whole conversation are ordered by time.
        by_ordinal = bool(query.parent if query.table == "moves" else request.conversation_id)
        query = dataclasses.replace(
            query,
            actor=request.conversation_id,
            by_ordinal=by_ordinal,
            after=_row_cursor(wanted, scope),
            limit=limit + 1,
            max_bytes=PAGE_BYTES,
        )
        cursor: Callable[[Row], list[int | str]] = _by_ordinal if by_ordinal else _by_time
        return await page_from_rows(await self._find(query), limit, scope, cursor, encode)

    async def _find(self, query: Query) -> list[RowValue]:
        """Return the rows that match ``query``, those of an archived conversation too."""
        if not query.actor:
            return await self._records.find(query)
        async with self._conversations.on_disk(query.actor):
            await self._conversations.open(query.actor)
            return await self._records.find(query)


def _by_time(row: Conversation | Turn | Message | Move) -> list[int | str]:
    return [row.created_ms, row.id]


def _by_ordinal(row: Turn | Message | Move) -> list[int | str]:
    """Return the position of a row in its actor's order: the value of its table's column `ordinal`."""
    return [row.sequence if isinstance(row, Move) else row.ordinal, row.id]


def _row_cursor(wanted: PageRequest, scope: Sequence[object]) -> tuple[int, str] | None:
    cursor = wanted.cursor(scope, [])
    if not cursor:
        return None
    position, row_id = cursor
    return int(position), str(row_id)


def _paged(query: EventQuery, after: tuple[int, str, int] | None, limit: int) -> EventQuery:
    return dataclasses.replace(query, after=after, limit=limit, max_bytes=PAGE_BYTES)
