"""The ConversationService: decode, ask the actors, encode."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

from wonder.v1 import conversation_pb2
from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.actors.attachment import Attachment
from wonder_server.actors.conversations import Conversations, Said, Saying
from wonder_server.actors.previews import Previews
from wonder_server.actors.rooms import Rooms
from wonder_server.actors.run_lookup import RunLookup
from wonder_server.actors.service_calls import ServiceCalls
from wonder_server.actors.streams import Reply
from wonder_server.core.commands import Scope, branch_of
from wonder_server.core.conversation.values import Conversation, Message, Move, Turn
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.logs import logger
from wonder_server.ports.records import EventQuery, Query
from wonder_server.rpc import agent_calls, previews
from wonder_server.rpc import conversation_codec as codec
from wonder_server.rpc.branches import BranchMethods
from wonder_server.rpc.calls import Requests
from wonder_server.rpc.common_codec import metadata_of, sized, words
from wonder_server.rpc.conversation_stream import say
from wonder_server.rpc.event_codec import event
from wonder_server.rpc.faults import fault_to_proto
from wonder_server.rpc.fields import required
from wonder_server.rpc.message_pieces import pieces
from wonder_server.rpc.names import Names
from wonder_server.rpc.once import request_key
from wonder_server.rpc.pages import PAGE_BYTES, encoded, encoded_page
from wonder_server.rpc.rights import NO_RIGHTS, Rights
from wonder_server.rpc.rooms import RoomMethods
from wonder_server.rpc.times import from_timestamp
from wonder_server.rpc.traces import brought
from wonder_server.services.paging import PageRequest, page
from wonder_server.services.repos import Repos

_log = logger("rpc")

MAX_MOVES_PAGE = 100

ATTACH_S = 30.0
"""Seconds that a client has for the first message of a stream, unless the settings say otherwise."""


class ConversationServicer(RoomMethods, BranchMethods):
    """See ``conversation_service.proto``. RPCs that are not here answer NOT_IMPLEMENTED."""

    def __init__(
        self,
        conversations: Conversations,
        rooms: Rooms,
        calls: ServiceCalls,
        names: Names,
        previews: Previews,
        repos: Repos,
        runs: RunLookup,
        rights: Rights = NO_RIGHTS,
        attach_s: float = ATTACH_S,
    ) -> None:
        super().__init__(rooms)
        self._repos = repos
        self._runs = runs
        self._rights = rights
        self._attach_s = attach_s
        self._conversations = conversations
        self._calls = calls
        self._previews = previews
        self._records = conversations.records
        self._names = names

    # --- rooms ----------------------------------------------------------------------------------

    async def create_conversation(
        self, request: pb.CreateConversationRequest, _context: Any
    ) -> pb.CreateConversationResponse:
        project_id = await self._names.project_id(request.conversation.project_id)
        draft = codec.draft(request.conversation, project_id)
        at_home = not request.conversation.project_id
        if request.validate_only:
            draft = await self._conversations.settled(draft, at_home=at_home)
            return pb.CreateConversationResponse(conversation=codec.conversation(draft, 0))
        created, existed = await self._conversations.create(
            draft, request_key(request.request_id), return_existing=request.return_existing, at_home=at_home
        )
        return pb.CreateConversationResponse(conversation=await self._encode(created), existed=existed)

    async def get_conversation(
        self, request: pb.GetConversationRequest, _context: Any
    ) -> pb.GetConversationResponse:
        if request.WhichOneof("key") is None:
            raise error(
                Reason.FIELD_INVALID,
                "Name the conversation by id or external_ref.",
                field="conversation_id",
            )
        if request.HasField("external_ref"):
            project_id = await self._names.project_id(request.project_id)
            found = await self._conversations.by_reference(project_id, request.external_ref)
            if found is None and not request.project_id:
                found = await self._only(request.external_ref)
            if found is None:
                raise error(
                    Reason.CONVERSATION_NOT_FOUND,
                    "No conversation of the project has this external_ref.",
                    field="external_ref",
                )
        else:
            found = await self._conversations.get(request.conversation_id)
        return pb.GetConversationResponse(conversation=await self._encode(found))

    async def _only(self, external_ref: str) -> Conversation | None:
        """The conversation of this name, whose project was not named. FIELD_INVALID if there are several."""
        found = await self._conversations.references(external_ref, None) if external_ref else []
        if len(found) > 1:
            raise error(
                Reason.FIELD_INVALID,
                "Several projects have a conversation with this external_ref: name the project.",
                field="project_id",
            )
        return found[0] if found else None

    async def list_conversations(
        self, request: pb.ListConversationsRequest, _context: Any
    ) -> pb.ListConversationsResponse:
        wanted = PageRequest(size=request.page_size, token=request.page_token)
        project_id = await self._names.project_id(request.project_id) if request.project_id else ""
        members = []
        if request.agent_id:
            members.append(("participants", await self._names.agent_id(request.agent_id)))
        if request.user_id:
            members.append(("participants", request.user_id))
        statuses = words(
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
            # Not those that were made for one delegated turn.
            fields=(("called_by", ""),) if request.include_archived else (("called_by", ""), ("archive", "")),
            after=_after(wanted, scope),
            limit=limit + 1,
            most_bytes=PAGE_BYTES,
        )
        found = page(await self._records.find(query), limit, scope, _by_time)
        shown, token = await encoded(found, self._shown)
        # What is being deleted is still there for some milliseconds.
        gone = {item.id for item in found.items if item.deleted_ms}
        return pb.ListConversationsResponse(
            conversations=[each for each in shown if each.id not in gone], next_page_token=token
        )

    async def _encode(self, value: Conversation) -> conversation_pb2.Conversation:
        head, active = await asyncio.gather(
            self._records.head(value.id), self._conversations.active_turns(value.id)
        )
        return self._shown(value, head or 0, active)

    def _shown(
        self, value: Conversation, head: int = 0, active: Sequence[str] = ()
    ) -> conversation_pb2.Conversation:
        scope = Scope(project_id=value.project_id, conversation_id=value.id, branch=value.branch)
        branch = branch_of(scope) if value.branch or self._repos.has_begun(scope) else ""
        return codec.conversation(value, head, active, branch)

    async def delete_conversation(
        self, request: pb.DeleteConversationRequest, context: Any
    ) -> pb.DeleteConversationResponse:
        answer = await super().delete_conversation(request, context)
        await self._repos.forget_conversation(request.conversation_id)
        return answer

    # --- turns ----------------------------------------------------------------------------------

    async def send_message(self, request: pb.SendMessageRequest, context: Any) -> pb.SendMessageResponse:
        conversation_id = request.conversation_id
        taken = await self._conversations.send(conversation_id, self._saying(request.send, brought(context)))
        turn = taken.turn or await self._conversations.turn(taken.turn_id, conversation_id)
        message = taken.message or await self._conversations.message(taken.message_id, conversation_id)
        return pb.SendMessageResponse(
            turn=codec.turn(turn), message=codec.message(message), sequence=taken.sequence
        )

    async def call_agent(self, request: pb.CallAgentRequest, context: Any) -> pb.CallAgentResponse:
        asked = await agent_calls.decode(request, self._names, self._rights)
        asked = dataclasses.replace(asked, trace_id=brought(context))
        return agent_calls.encode(await self._calls.call(asked))

    async def preview_context(
        self, request: pb.PreviewContextRequest, _context: Any
    ) -> pb.PreviewContextResponse:
        saying = self._saying(request.send)
        return previews.encode(await self._previews.preview(request.conversation_id, saying))

    async def cancel_turn(self, request: pb.CancelTurnRequest, _context: Any) -> pb.CancelTurnResponse:
        turn, _ = await self._conversations.cancel(
            request.conversation_id, request.turn_id, request_key(request.request_id)
        )
        return pb.CancelTurnResponse(turn=codec.turn(turn))

    async def get_turn(self, request: pb.GetTurnRequest, _context: Any) -> pb.GetTurnResponse:
        if request.conversation_id:
            await self._conversations.awake(request.conversation_id)
        turn = await self._conversations.turn(request.turn_id, request.conversation_id)
        operations = await self._records.find(
            Query(
                table="operations",
                actor=turn.conversation_id,
                parent=turn.id,
                newest_first=False,
                limit=200,
            )
        )
        return pb.GetTurnResponse(turn=codec.turn(turn, operations))

    async def list_turns(self, request: pb.ListTurnsRequest, _context: Any) -> pb.ListTurnsResponse:
        statuses = words(conversation_pb2.TurnStatus, "TURN_STATUS", request.statuses, "statuses")
        agent_id = await self._names.agent_id(request.agent_id) if request.agent_id else ""
        query = Query(
            table="turns",
            statuses=statuses,
            fields=(("agent_id", agent_id),) if agent_id else (),
        )
        turns, token = await self._page(request, query, MAX_MOVES_PAGE * 5, codec.turn)
        return pb.ListTurnsResponse(turns=turns, next_page_token=token)

    async def list_messages(self, request: pb.ListMessagesRequest, _context: Any) -> pb.ListMessagesResponse:
        query = Query(table="messages", parent=request.turn_id, newest_first=not request.oldest_first)
        messages, token = await self._page(request, query, MAX_MOVES_PAGE * 5, codec.message)
        return pb.ListMessagesResponse(messages=messages, next_page_token=token)

    async def read_message(
        self, request: pb.ReadMessageRequest, _context: Any
    ) -> AsyncIterator[pb.ReadMessageResponse]:
        if request.offset < 0:
            raise error(Reason.FIELD_INVALID, "An offset is not negative.", field="offset")
        conversation_id = required(request.conversation_id, "conversation_id")
        text = await self._conversations.whole_text(
            conversation_id, required(request.message_id, "message_id")
        )
        for piece in pieces(text, request.offset):
            yield piece

    async def list_moves(self, request: pb.ListMovesRequest, _context: Any) -> pb.ListMovesResponse:
        query = Query(table="moves", parent=request.turn_id, newest_first=not request.oldest_first)
        moves, token = await self._page(request, query, MAX_MOVES_PAGE, codec.move)
        if request.turn_id and not (moves or request.conversation_id or request.page_token):
            # It may have none yet; but if it is not there, an empty list would be taken for that.
            await self._conversations.turn(request.turn_id)
        return pb.ListMovesResponse(moves=moves, next_page_token=token)

    async def list_events(self, request: pb.ListEventsRequest, _context: Any) -> pb.ListEventsResponse:
        if request.after_sequence and not request.conversation_id:
            raise error(
                Reason.FIELD_INVALID,
                "after_sequence needs conversation_id.",
                field="after_sequence",
            )
        if request.after_sequence < 0:
            raise error(Reason.FIELD_INVALID, "A sequence is not negative.", field="after_sequence")
        wanted = PageRequest(size=request.page_size, token=request.page_token)
        project_id = await self._names.project_id(request.project_id) if request.project_id else ""
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
        events, token = await encoded_page(
            found, limit, scope, lambda e: [e.at_ms, e.actor_id, e.sequence], event
        )
        return pb.ListEventsResponse(events=events, next_page_token=token)

    async def _page(
        self, request: Any, query: Query, most: int, encode: Callable[[Any], Any]
    ) -> tuple[list[Any], str]:
        """One page of a conversation's rows, or of all conversations', and the next one's token."""
        if request.conversation_id:
            await self._conversations.open(request.conversation_id)
        wanted = PageRequest(size=request.page_size, token=request.page_token)
        limit = min(wanted.limit(), most)
        scope = ["rows", request.conversation_id, repr(query)]
        # Moves are numbered within their turn, so a whole conversation's are ordered by time.
        by_ordinal = bool(query.parent if query.table == "moves" else request.conversation_id)
        query = dataclasses.replace(
            query,
            actor=request.conversation_id,
            by_ordinal=by_ordinal,
            after=_after(wanted, scope),
            limit=limit + 1,
            most_bytes=PAGE_BYTES,
        )
        cursor: Callable[[Any], list[Any]] = _by_ordinal if by_ordinal else _by_time
        return await encoded_page(await self._records.find(query), limit, scope, cursor, encode)

    def _saying(self, send: pb.ConverseSend, trace_id: str = "") -> Saying:
        user_id = sized(send.user_id, codec.MAX_USER, "user_id")
        return Saying(
            content=send.content,
            reply_to_message_id=send.reply_to_message_id,
            request_id=request_key(send.request_id),
            agent_id=send.agent_id,
            user_id=self._rights.user(user_id, "user_id"),
            metadata=metadata_of(send.metadata, "metadata"),
            trace_id=trace_id,
        )

    # --- streams --------------------------------------------------------------------------------

    async def subscribe(self, request: pb.SubscribeRequest, context: Any) -> None:
        attachment, attached = await self._attach(request.attach)
        try:
            await say(attachment, attached, context.write, group_events=request.attach.group_events)
        finally:
            attachment.close()

    async def converse(self, requests: Requests, context: Any) -> None:
        first = await self._first(requests)
        if first is None or first.WhichOneof("intent") != "attach":
            raise error(Reason.NOT_ATTACHED, "The first message of a stream is `attach`.", field="attach")
        attachment, attached = await self._attach(first.attach)
        conversation_id, trace_id = first.attach.conversation_id, brought(context)
        reader = asyncio.create_task(self._listen(requests, attachment, conversation_id, trace_id))
        try:
            await say(attachment, attached, context.write, group_events=first.attach.group_events)
        finally:
            reader.cancel()
            attachment.close()

    async def _first(self, requests: Requests) -> pb.ConverseRequest | None:
        """Return the first message of a stream, None if it ends first. NOT_ATTACHED past the deadline."""
        try:
            async with asyncio.timeout(self._attach_s):
                return cast(pb.ConverseRequest | None, await anext(requests, None))
        except TimeoutError:
            raise error(
                Reason.NOT_ATTACHED,
                f"The stream sent no `attach` within {self._attach_s:g} s.",
                field="attach",
            ) from None

    async def _attach(self, attach: pb.ConverseAttach) -> tuple[Attachment, pb.ConverseAttached]:
        if attach.after_sequence < 0:
            raise error(Reason.FIELD_INVALID, "A sequence is not negative.", field="attach.after_sequence")
        attachment = await self._conversations.attach(
            attach.conversation_id, attach.after_sequence, tail_only=attach.tail_only
        )
        try:
            conversation = await self._conversations.get(attach.conversation_id)
            attached = pb.ConverseAttached(
                conversation=await self._encode(conversation), last_sequence=attachment.head
            )
        except BaseException:
            attachment.close()
            raise
        return attachment, attached

    async def _listen(
        self,
        requests: Requests,
        attachment: Attachment,
        conversation_id: str,
        trace_id: str,
    ) -> None:
        """Take what the client says, in order. A half-closed stream stays open: its reader may listen on."""
        while True:
            request_id = ""
            try:
                try:
                    request: Any = await anext(requests)
                except StopAsyncIteration:
                    return
                intent = request.WhichOneof("intent")
                if intent in ("send", "cancel"):
                    request_id = getattr(request, intent).request_id
                    await self._obey(request, request_id, attachment, conversation_id, trace_id)
                elif intent == "detach":
                    attachment.subscription.close("detached")
                    return
                elif intent != "ack":
                    raise error(
                        Reason.FIELD_INVALID,
                        "After `attach` a client sends `send`, `cancel`, `ack` or `detach`.",
                        field=intent or "intent",
                    )
            except WonderError as problem:
                requests.note(problem)
                refused = pb.ConverseRefused(request_id=request_id, error=fault_to_proto(problem.fault))
                attachment.subscription.push(_reply(refused=refused))
            except Exception:
                # The reader hears of it by a refusal; a dead reader would leave it waiting.
                _log.exception("conversation_stream_failed", conversation=conversation_id)
                fault = Fault(reason=Reason.INTERNAL, message="Something went wrong inside the server.")
                refused = pb.ConverseRefused(request_id=request_id, error=fault_to_proto(fault))
                attachment.subscription.push(_reply(refused=refused))
                return

    async def _obey(
        self,
        request: pb.ConverseRequest,
        request_id: str,
        attachment: Attachment,
        conversation_id: str,
        trace_id: str,
    ) -> None:
        if not request_id:
            raise error(
                Reason.FIELD_INVALID,
                "Give a request_id: the answer names it.",
                field=f"{request.WhichOneof('intent')}.request_id",
            )
        if request.HasField("send"):
            taken = await self._conversations.send(conversation_id, self._saying(request.send, trace_id))
            attachment.subscription.push(_sent(request_id, taken))
            return
        turn, sequence = await self._conversations.cancel(
            conversation_id, request.cancel.turn_id, request_key(request_id)
        )
        cancelled = pb.ConverseCancelled(request_id=request_id, turn_id=turn.id, sequence=sequence)
        attachment.subscription.push(_reply(cancelled=cancelled))


def _sent(request_id: str, taken: Said) -> Reply:
    reply = pb.ConverseResponse()
    sent = reply.sent
    sent.request_id = request_id
    sent.turn_id = taken.turn_id
    sent.message_id = taken.message_id
    sent.sequence = taken.sequence
    return Reply(reply.SerializeToString())


def _reply(**item: Any) -> Reply:
    return Reply(pb.ConverseResponse(**item).SerializeToString())


def _by_time(row: Any) -> list[Any]:
    return [row.created_ms, row.id]


def _by_ordinal(row: Turn | Message | Move) -> list[Any]:
    """The place of a row in its actor's order: what the column `ordinal` of its table holds."""
    return [row.sequence if isinstance(row, Move) else row.ordinal, row.id]


def _after(wanted: PageRequest, scope: list[Any]) -> tuple[int, str] | None:
    cursor = wanted.cursor(scope, [])
    if not cursor:
        return None
    position, row_id = cursor
    return int(position), str(row_id)


def _paged(query: EventQuery, after: tuple[int, str, int] | None, limit: int) -> EventQuery:
    return dataclasses.replace(query, after=after, limit=limit, most_bytes=PAGE_BYTES)
