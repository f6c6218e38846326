"""Search in messages."""

from __future__ import annotations

from contextlib import nullcontext

from wonder.v1 import conversation_service_pb2 as pb
from wonder_server.core.errors import Reason, error
from wonder_server.core.history.text_query import TextQuery, text_query
from wonder_server.core.json_types import JsonValue
from wonder_server.rpc.conversation import codec
from wonder_server.rpc.conversation.parts import ConversationMethods
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.common_codec import check_text_size
from wonder_server.rpc.shared.fields import bounded
from wonder_server.rpc.shared.pages import encode_page, page_request
from wonder_server.rpc.shared.times import from_timestamp
from wonder_server.services.history.message_search import (
    MessageFilter,
    MessageMatch,
    MessageSearch,
    position_of,
)
from wonder_server.services.paging import Page, PageRequest, page_until

_MAX_OFFSET = 1_000_000


class SearchMethods(ConversationMethods):
    """The method SearchMessages of the ConversationServicer."""

    async def search_messages(
        self, request: pb.SearchMessagesRequest, _context: CallContext
    ) -> pb.SearchMessagesResponse:
        query, wanted = text_query(request.query), await self._message_filter(request)
        best_first = _is_best_first(request.order)
        scope = ["search", best_first, repr(wanted), list(query.words)]
        asked = page_request(request)
        conversation_id = wanted.conversation_id
        async with self._conversations.on_disk(conversation_id) if conversation_id else nullcontext():
            if conversation_id:
                await self._conversations.open(conversation_id)
            search = MessageSearch(self._records)
            if best_first:
                found, complete = await _best(search, query, wanted, asked, scope)
            else:
                found, complete = await _newest(search, query, wanted, asked, scope), True
        matches, token = await encode_page(found, _match_to_proto)
        return pb.SearchMessagesResponse(matches=matches, next_page_token=token, older_omitted=not complete)

    async def _message_filter(self, request: pb.SearchMessagesRequest) -> MessageFilter:
        names = self._own.names
        return MessageFilter(
            conversation_id=bounded(request.conversation_id, "conversation_id"),
            project_id=await names.project_id(request.project_id) if request.project_id else "",
            agent_id=await names.agent_id(request.agent_id) if request.agent_id else "",
            user_id=check_text_size(request.user_id, codec.MAX_USER_BYTES, "user_id"),
            start_ms=from_timestamp(request.start_time, "start_time"),
            end_ms=from_timestamp(request.end_time, "end_time"),
        )


def _is_best_first(order: pb.MessageOrder) -> bool:
    if order not in pb.MessageOrder.values():
        raise error(Reason.FIELD_INVALID, f"order is {order}, which is no MessageOrder.", field="order")
    return order == pb.MESSAGE_ORDER_BEST


async def _newest(
    search: MessageSearch, query: TextQuery, wanted: MessageFilter, asked: PageRequest, scope: list[JsonValue]
) -> Page[MessageMatch]:
    after = position_of(asked.cursor(scope, []))
    found = await search.newest(query, wanted, asked.limit(), after)

    def cursor(match: MessageMatch) -> JsonValue:
        message = match.message
        return [message.ordinal if wanted.conversation_id else 0, message.id]

    end = None if found.next is None else list(found.next)
    return page_until(found.matches, end, scope, cursor)


async def _best(
    search: MessageSearch, query: TextQuery, wanted: MessageFilter, asked: PageRequest, scope: list[JsonValue]
) -> tuple[Page[MessageMatch], bool]:
    """Return a page of matches by score, and True if all messages were ranked.

    The token has the number of the matches before the page and the id of the newest one that the first page
    ranked, so that messages which arrive meanwhile move no match to another page.
    """
    offset, before = position_of(asked.cursor(scope, [])) or (0, "")
    if not 0 <= offset <= _MAX_OFFSET:
        raise error(Reason.PAGE_TOKEN_INVALID, "page_token is not valid for this list.", field="page_token")
    limit = asked.limit()
    found = await search.best(query, wanted, limit + 1, offset, before)
    places = {match.message.id: offset + index for index, match in enumerate(found.matches, 1)}
    newest = before or found.newest_id

    def cursor(match: MessageMatch) -> JsonValue:
        return [places[match.message.id], newest]

    items = found.matches[:limit]
    end = cursor(items[-1]) if len(found.matches) > limit else None
    return page_until(items, end, scope, cursor), found.complete


def _match_to_proto(match: MessageMatch) -> pb.MessageMatch:
    message = codec.message_to_proto(match.message)
    return pb.MessageMatch(message=message, snippet=match.snippet, score=match.score)
