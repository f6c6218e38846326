"""Forks: new conversations with the beginning of another one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from wonder_server.actors.access import EntryAccess
from wonder_server.actors.conversation.conversations import Conversations, SendRequest
from wonder_server.actors.conversation.histories.new_history import Part, in_parts
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.core import ids
from wonder_server.core.conversation.model.histories.origin import ConversationOrigin
from wonder_server.core.conversation.model.histories.staging import HistoryTurn
from wonder_server.core.conversation.model.inputs import Publish, Send
from wonder_server.core.conversation.model.speakers import USER
from wonder_server.core.conversation.model.values import Conversation, Message, Move, Role, Turn
from wonder_server.core.conversation.planner import needs_moves
from wonder_server.core.conversation.planning.histories.forks import Fork, with_context
from wonder_server.core.errors import Reason, error
from wonder_server.core.frozen import replace
from wonder_server.core.idempotency import IdempotencyKey, Origin, content_key
from wonder_server.ports.records import Query
from wonder_server.ports.scoped import ScopedRecords

_PAGE: Final = 25
"""Number of turns that are read at once."""
_MAX_ROWS: Final = 10_000
"""Maximum number of messages, or of moves, of one turn that a fork copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest:
    """A fork to make: of ``source_id`` up to ``message_id``, or before it.

    ``draft`` has the fields of the fork that differ from the source, and ``given`` names them. ``send`` is a
    message for the fork. ``regenerate``: the user's message to which ``message_id`` belongs is sent again.
    """

    source_id: str
    message_id: str
    before: bool
    draft: Conversation
    given: frozenset[str]
    send: SendRequest | None = None
    regenerate: bool = False


class ConversationForks:
    """Makes forks."""

    def __init__(self, access: EntryAccess, conversations: Conversations) -> None:
        self._journals = access.journals
        self._records = access.records
        self._clock = access.clock
        self._conversations = conversations

    async def fork(self, request: ForkRequest, origin: Origin) -> tuple[Conversation, Turn | None]:
        """Make a fork. Return it, and the turn that it starts with.

        Errors: CONVERSATION_NOT_FOUND, MESSAGE_NOT_FOUND, FIELD_INVALID, AGENT_NOT_FOUND, ALREADY_EXISTS
        (``external_ref``), REQUEST_ID_REUSED; those of `Conversations.send` for a message.
        """
        creator, identity = self._conversations.creator, _identity(origin)
        fork = await creator.created_before(origin)
        turn_id = ""
        if fork is None:
            async with self._conversations.on_disk(request.source_id):
                history, draft = await self._history(request, origin)
                fork, _ = await creator.create(draft, origin, history=history)
                turn_id = history.turn_id
        if not turn_id and identity is not None:
            answered = await self._journals.completed_request(identity.scope, identity.id)
            turn_id = "" if answered is None else answered.answer.get("turn_id", "")
        return fork, await self._conversations.lookup.turn(turn_id, fork.id) if turn_id else None

    async def _history(self, request: ForkRequest, origin: Origin) -> tuple[_ForkHistory, Conversation]:
        """Return the history of the fork, and the fork without its id."""
        source = await self._conversations.open(request.source_id)
        through, resend = await self._end(source, request)
        last = await self._message_before(source.id, through + 1)
        draft = await self._draft(source, request)
        draft = replace(
            draft,
            origin=ConversationOrigin(conversation_id=source.id, message_id="" if last is None else last.id),
        )
        history = _ForkHistory(
            records=self._records,
            conversations=self._conversations,
            source=source,
            through=through,
            send_request=request.send,
            origin=origin,
            resend=resend,
        )
        return history, draft

    async def _draft(self, source: Conversation, request: ForkRequest) -> Conversation:
        """Return the fork with the fields that the request gives, and else those of the source."""
        given, draft = request.given, request.draft
        people = source.participants
        if "participants" in given:
            people = (await self._conversations.creator.resolve_participants(draft)).participants
        expire_ms = draft.expire_ms
        if "expire_time" not in given and source.expire_after_ms:
            expire_ms = self._clock.now_ms() + source.expire_after_ms
        return replace(
            draft,
            project_id=source.project_id,
            participants=people,
            title=draft.title if "title" in given else source.title,
            metadata=draft.metadata if "metadata" in given else source.metadata,
            budget=draft.budget if "budget" in given else source.budget,
            concurrent_turns=draft.concurrent_turns or source.concurrent_turns,
            expire_ms=expire_ms,
        )

    async def _end(
        self, source: Conversation, request: ForkRequest
    ) -> tuple[int, tuple[Message, Turn] | None]:
        """Return the ordinal of the last message that the fork has, and the message to send again. Errors:
        MESSAGE_NOT_FOUND, FIELD_INVALID."""
        lookup = self._conversations.lookup
        named: Message | None
        if request.message_id:
            named = await lookup.message(request.message_id, source.id, "message_id")
        else:
            named = await self._message_before(source.id, source.message_count + 1)
        if not request.regenerate:
            return (0 if named is None else named.ordinal - request.before), None
        if named is None:
            message = "The conversation has no message that could be answered again."
            raise error(Reason.FIELD_INVALID, message, field="regenerate")
        turn = await lookup.turn(named.turn_id, source.id)
        question = await self._question(turn, named)
        if question is None or turn.caller.type != USER:
            message = f"The message {named.id} answers no message of a user. Name one that does."
            raise error(Reason.FIELD_INVALID, message, field="message_id")
        return question.ordinal - 1, (question, turn)

    async def _question(self, turn: Turn, named: Message) -> Message | None:
        """Return the user's message that ``named`` is, or that it answers; None without one."""
        if named.role is Role.USER:
            return named
        messages: list[Message] = await self._records.find(_rows("messages", turn))
        messages.sort(key=lambda message: message.ordinal)
        asked = [each for each in messages if each.role is Role.USER and each.ordinal < named.ordinal]
        return asked[-1] if asked else None

    async def _message_before(self, conversation_id: str, ordinal: int) -> Message | None:
        """Return the last message before an ordinal; None without one."""
        query = Query(table="messages", actor=conversation_id, by_ordinal=True, after=(ordinal, ""), limit=1)
        found: list[Message] = await self._records.find(query)
        return found[0] if found else None


@dataclass(slots=True, kw_only=True)
class _ForkHistory:
    """The history of a fork; see `NewHistory`. ``resend`` is the user's message to send again, with its
    turn."""

    records: ScopedRecords
    conversations: Conversations
    source: Conversation
    through: int
    send_request: SendRequest | None
    origin: Origin
    resend: tuple[Message, Turn] | None
    turn_id: str = ""
    _send: Send | None = None
    _last_turn: int = 0
    _seed: str = field(default_factory=lambda: ids.random_hex(10))

    def identity(self, origin: Origin) -> IdempotencyKey | None:
        return _identity(origin)

    async def prepare(self, conversation: Conversation) -> None:
        """Prepare the message to send. Errors: those of `Conversations.send`."""
        if self.resend is not None:
            self._send = await self._again(conversation, *self.resend)
        elif self.send_request is not None:
            self._send = await self.conversations.prepare_first(conversation, self.send_request)

    async def parts(self, conversation: Conversation) -> AsyncIterator[Part]:
        fork = Fork(conversation.id, self.through, self._seed)
        after = 0
        while True:
            read, turns = await _copied(self.records, self.source.id, after, fork)
            for part in in_parts(turns):
                yield part
            if turns:
                self._last_turn = turns[-1].turn.ordinal
            if not turns or len(read) < _PAGE:
                # The messages of turns later than a whole page come after all of the fork's.
                return
            after = read[-1].ordinal

    def publication(self, conversation: Conversation) -> Publish:
        published = with_context(conversation, self.source, self.through, self._last_turn)
        return Publish(conversation=published, send=self._send)

    def published(self, outcome: Outcome) -> None:
        self.turn_id = outcome.answer.get("turn_id", "")

    async def _again(self, conversation: Conversation, message: Message, turn: Turn) -> Send:
        """Return the input that sends a message of the source again: to the same agent, by the same user."""
        request = SendRequest(
            content=message.content,
            origin=self.origin,
            agent_id=turn.agent_id,
            user_id=message.author,
            metadata=turn.metadata,
        )
        send = await self.conversations.prepare_first(conversation, request, message.parts)
        copied_id = Fork(conversation.id, self.through, self._seed).copied_id
        return replace(send, reply_to_message_id=copied_id(message.reply_to_message_id), quote=turn.quote)


def _identity(origin: Origin) -> IdempotencyKey | None:
    return content_key("conversations", origin, fork=origin.fingerprint)


async def _copied(
    records: ScopedRecords, source_id: str, after: int, fork: Fork
) -> tuple[list[Turn], list[HistoryTurn]]:
    """Return a page of turns after the ordinal ``after``, and the copies of those that the fork has."""
    query = Query(
        table="turns",
        actor=source_id,
        by_ordinal=True,
        newest_first=False,
        after=(after, "~"),
        limit=_PAGE,
    )
    turns: list[Turn] = await records.find(query)
    # A turn of one move has called no tool, unless it has not ended or is itself a copy.
    with_moves = [turn for turn in turns if needs_moves(turn)]
    queries = [_rows("messages", turn) for turn in turns] + [_rows("moves", turn) for turn in with_moves]
    found = await records.snapshot(source_id, queries) if queries else None
    if found is None:
        return turns, []
    moves: dict[str, list[Move]] = {}
    for turn, rows in zip(with_moves, found.rows[len(turns) :], strict=True):
        moves[turn.id] = sorted(rows, key=lambda move: move.sequence)
    copies = [
        fork.copy(turn, sorted(messages, key=lambda message: message.ordinal), moves.get(turn.id, []))
        for turn, messages in zip(turns, found.rows, strict=False)
    ]
    return turns, [copy for copy in copies if copy is not None]


def _rows(table: str, turn: Turn) -> Query:
    """Return the query for all messages or moves of a turn. Their order is that of their times: for that of
    their ordinals, SQLite would read all messages of the conversation."""
    return Query(table=table, actor=turn.conversation_id, parent=turn.id, newest_first=False, limit=_MAX_ROWS)
