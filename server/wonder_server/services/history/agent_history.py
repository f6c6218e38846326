"""The history of a conversation for the agents in it: search, read, and large results of tools.

An agent reads only the conversation that its work belongs to, and nothing before the newest reset. Of tool
results it reads only those of its own turns. Whatever else an id names does not exist, with the same error.
Archived conversations have no turns, so no agent works in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from wonder_server.core import ids
from wonder_server.core.actor.commands import Scope
from wonder_server.core.content.parts import readable
from wonder_server.core.conversation.context.dialects import whole_result_text
from wonder_server.core.conversation.context.result_excerpts import TextPiece, piece_of
from wonder_server.core.conversation.model.speakers import author_key, author_name, speakers_of
from wonder_server.core.conversation.model.values import Conversation, Message, Move, Turn
from wonder_server.core.conversation.planning.large_results import parse_result_id
from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.core.history.text_query import text_query
from wonder_server.ports.records import Query
from wonder_server.ports.scoped import ScopedRecords
from wonder_server.services.history.message_search import MessageFilter, MessageSearch, position_of
from wonder_server.services.paging import Page, PageRequest, page_until

READ_BYTES: Final = 12 * 1024
"""Maximum size of the texts that one call of `read` returns."""
MAX_PIECE_BYTES: Final = 16 * 1024
"""Maximum size of one piece of a tool's result."""
_BEFORE_ANY: Final = ""
_AFTER_ALL: Final = "~"
"""Texts that sort before and after every id."""


class ReadMessage(NamedTuple):
    """A message with the label of its speaker. ``text`` is a piece of the content from ``start`` on."""

    message: Message
    speaker: str
    text: str
    start: int
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message that matches a search, with the label of its speaker."""

    message: Message
    speaker: str
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """The messages to read: ``limit`` from the message ``first_id`` or the number ``first`` on.

    Without both they are the newest ones. ``offset`` is the position in the text of the first.
    """

    first_id: str = ""
    first: int = 0
    limit: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class _Visible:
    """A conversation, and the ordinal of its first message that agents see."""

    conversation: Conversation
    first_ordinal: int
    turns: dict[str, Turn] = field(default_factory=dict)


class AgentHistory:
    """Reads the history for agents; the records are those of the principal that started the turn."""

    def __init__(self, records: ScopedRecords) -> None:
        self._records = records
        self._search = MessageSearch(records)

    async def search(
        self, scope: Scope, text: str, request: PageRequest, *, best_first: bool = False
    ) -> Page[FoundMessage]:
        """Return messages of the conversation that contain the words of ``text``, newest first in pages, or
        the best ones.

        Errors: FIELD_INVALID, PAGE_TOKEN_INVALID, INPUT_INVALID without a conversation,
        CONVERSATION_NOT_FOUND.
        """
        query = text_query(text)
        visible = await self._visible(scope)
        conversation_id = visible.conversation.id
        wanted = MessageFilter(conversation_id=conversation_id, first_ordinal=visible.first_ordinal)
        key = ["history", conversation_id, visible.first_ordinal, list(query.words)]
        if best_first:
            matches = await self._search.best(query, wanted, request.limit())
        else:
            after = position_of(request.cursor(key, []))
            matches = await self._search.newest(query, wanted, request.limit(), after)
        items = [
            FoundMessage(each.message, await self._speaker(visible, each.message), each.snippet)
            for each in matches.matches
        ]
        end = None if matches.next is None else list(matches.next)
        return page_until(items, end, key, lambda item: [item.message.ordinal, item.message.id])

    async def read(self, scope: Scope, request: ReadRequest) -> list[ReadMessage]:
        """Return messages of the conversation in their order, at most `READ_BYTES` of their texts.

        Errors: INPUT_INVALID without a conversation, CONVERSATION_NOT_FOUND, MESSAGE_NOT_FOUND.
        """
        visible = await self._visible(scope)
        messages = await self._messages(visible, request)
        read: list[ReadMessage] = []
        left = READ_BYTES
        for index, message in enumerate(messages):
            piece = piece_of(readable(message.content, message.parts), 0 if index else request.offset, left)
            speaker = await self._speaker(visible, message)
            read.append(ReadMessage(message, speaker, piece.text, piece.start, piece.end, piece.size))
            left -= piece.end - piece.start
            if left <= 0 or piece.end < piece.size:
                break
        return read

    async def read_result(self, scope: Scope, result_id: str, offset: int, length: int) -> TextPiece:
        """Return a piece of the text of a tool's result, of one of the agent's own calls.

        Errors: INPUT_INVALID without a conversation, or if there is no such result; NO_AGENT,
        CONVERSATION_NOT_FOUND.
        """
        if not scope.agent_id:
            raise error(Reason.NO_AGENT, "The task runs without an agent, so it has no tool results.")
        conversation = await self._conversation(scope)
        named = parse_result_id(result_id)
        move: Move | None = None
        if named is not None and ids.is_id("move", named[0]):
            move = await self._records.get("moves", named[0], conversation.id)
            move = move or await self._copied_move(named[0], conversation.id)
        if named is None or move is None or named[1] >= len(move.invocations):
            raise _no_result(result_id)
        turn: Turn | None = await self._records.get("turns", move.turn_id, conversation.id)
        result = move.invocations[named[1]].result
        is_own = turn is not None and turn.agent_id == scope.agent_id
        if turn is None or not is_own or turn.ordinal <= conversation.reset_ordinal or result is None:
            raise _no_result(result_id)
        return piece_of(whole_result_text(result), offset, min(length, MAX_PIECE_BYTES))

    # --- pieces ---------------------------------------------------------------------------------

    async def _copied_move(self, move_id: str, conversation_id: str) -> Move | None:
        """Return the copy of a move in a fork. Cut results in its history name the move of the source."""
        found = await self._records.find(Query(table="moves", actor=conversation_id, alias=move_id, limit=1))
        return found[0] if found else None

    async def _conversation(self, scope: Scope) -> Conversation:
        if not scope.conversation_id:
            raise error(
                Reason.INPUT_INVALID,
                "The task runs without a conversation, so it has no history. Set `context.conversation_id`.",
            )
        found: Conversation | None = None
        if ids.is_id("conv", scope.conversation_id):
            found = await self._records.get("conversations", scope.conversation_id, scope.conversation_id)
        if found is None or found.deleted_ms:
            raise not_found(
                Reason.CONVERSATION_NOT_FOUND, scope.conversation_id, field="context.conversation_id"
            )
        return found

    async def _visible(self, scope: Scope) -> _Visible:
        conversation = await self._conversation(scope)
        if not conversation.reset_ordinal:
            return _Visible(conversation, 0)
        # No turn is active at a reset, so all messages of later turns follow all of the earlier ones.
        after_reset = Query(
            table="turns",
            actor=conversation.id,
            by_ordinal=True,
            newest_first=False,
            after=(conversation.reset_ordinal, _AFTER_ALL),
            limit=1,
        )
        turns: list[Turn] = await self._records.find(after_reset)
        if not turns:
            return _Visible(conversation, conversation.message_count + 1)
        first = Query(
            table="messages",
            actor=conversation.id,
            parent=turns[0].id,
            by_ordinal=True,
            newest_first=False,
            limit=1,
        )
        messages: list[Message] = await self._records.find(first)
        ordinal = messages[0].ordinal if messages else conversation.message_count + 1
        return _Visible(conversation, ordinal)

    async def _messages(self, visible: _Visible, request: ReadRequest) -> Sequence[Message]:
        conversation_id, first = visible.conversation.id, request.first
        if request.first_id:
            named: Message | None = None
            if ids.is_id("msg", request.first_id):
                named = await self._records.get("messages", request.first_id, conversation_id)
            if named is None or named.ordinal < visible.first_ordinal:
                raise not_found(
                    Reason.MESSAGE_NOT_FOUND,
                    request.first_id,
                    field="message_id",
                    place=" in this conversation",
                )
            first = named.ordinal
        newest = not first
        query = Query(
            table="messages",
            actor=conversation_id,
            by_ordinal=True,
            newest_first=newest,
            after=None if newest else (max(first, visible.first_ordinal), _BEFORE_ANY),
            limit=request.limit,
            max_bytes=READ_BYTES,
        )
        found: list[Message] = await self._records.find(query)
        visible_ones = [each for each in found if each.ordinal >= visible.first_ordinal]
        return visible_ones[::-1] if newest else visible_ones

    async def _speaker(self, visible: _Visible, message: Message) -> str:
        """Return the label of the author, as in the requests of the standard assembly."""
        turn = visible.turns.get(message.turn_id)
        if turn is None:
            turn = await self._records.get("turns", message.turn_id, visible.conversation.id)
            if turn is None:
                return message.role.value
            visible.turns[message.turn_id] = turn
        speakers = speakers_of(visible.conversation.participants)
        return str(speakers.get(author_key(message, turn), author_name(message, turn))["label"])


def _no_result(result_id: str) -> WonderError:
    return error(
        Reason.INPUT_INVALID,
        f"There is no tool result '{result_id[:100]}' of yours in this conversation. Use the result_id of a "
        "notice about a cut result.",
        field="result_id",
    )
