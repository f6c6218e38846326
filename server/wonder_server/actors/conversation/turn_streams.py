"""The stream of one turn, for a client that sends a message and waits for the turn's end (feature M14)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from wonder_server.actors.conversation.conversations import Conversations, SendRequest
from wonder_server.actors.conversation.lookup import conversation_not_found
from wonder_server.actors.streaming.attachment import Attachment, CaughtUp, beyond_last_event
from wonder_server.actors.streaming.items import Closed, Delta, Item, KeepAlive, PartKind
from wonder_server.core import ids
from wonder_server.core.conversation.model.event_payloads import TURN_ENDED
from wonder_server.core.conversation.model.values import Conversation, Turn, TurnStatus
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.journal import Event
from wonder_server.ports.placement import owner_moved
from wonder_server.ports.records import EventQuery

RESUME_AFTER_MS: Final = 1000

_END_NAMES: Final = ("turn.completed", "turn.failed", "turn.cancelled")

_NOT_OVER = (TurnStatus.ACTIVE, TurnStatus.QUEUED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """A message and the conversation that it goes to: an existing one, or one to create from ``draft``.

    ``after`` is the sequence of the last event that the client has seen, 0 for none. ``at_home``: the draft
    names no project.
    """

    message: SendRequest
    conversation_id: str = ""
    draft: Conversation | None = None
    at_home: bool = False
    after: int = 0


@dataclass(frozen=True, slots=True)
class AcceptedTurn:
    """A turn that a message has started, now or in an earlier call. Its stream begins after ``after``."""

    conversation_id: str
    turn_id: str
    message_id: str
    sequence: int
    after: int


class TurnStreams:
    """Starts turns and streams them. It has no state: a repeated request finds its turn in the record."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def start(self, request: TurnRequest) -> AcceptedTurn:
        """Send the message, unless it was sent before. Create its conversation, unless it exists.

        A message that is refused creates no conversation. Errors: those of `Conversations.send` and
        `ConversationCreator.create`, CURSOR_OUT_OF_RANGE.
        """
        conversation_id, message = request.conversation_id, request.message
        if request.draft is not None:
            created, _ = await self._conversations.creator.create(
                request.draft,
                message.origin,
                return_existing=True,
                use_home_project=request.at_home,
                check=lambda draft: self._check(draft, request),
            )
            conversation_id = created.id
        if request.after:
            # Refuse a cursor beyond the last event before anything is sent.
            attachment = await self._conversations.attach(conversation_id, request.after, tail_only=False)
            attachment.close()
        sent = await self._conversations.send(conversation_id, message)
        after = max(request.after, sent.sequence - 1)
        return AcceptedTurn(conversation_id, sent.turn_id, sent.message_id, sent.sequence, after)

    async def _check(self, draft: Conversation, request: TurnRequest) -> None:
        """Check a request before its conversation is created."""
        if request.after:
            raise beyond_last_event(request.after, 0)
        await self._conversations.check_first_message(draft, request.message)

    async def attach(self, accepted: AcceptedTurn, kinds: Collection[PartKind] = ()) -> TurnItems:
        """Attach a reader to the turn. ``kinds`` as in `Conversations.attach`."""
        conversation_id = accepted.conversation_id
        attachment = await self._conversations.attach(
            conversation_id, accepted.after, tail_only=False, kinds=kinds
        )
        try:
            has_ended = await self._has_seen_end(accepted)
        except BaseException:
            attachment.close()
            raise
        return TurnItems(attachment, accepted.turn_id, conversation_id, has_ended=has_ended)

    async def turn(self, accepted: AcceptedTurn) -> Turn:
        """Return the turn as it is now. Errors: CONVERSATION_NOT_FOUND."""
        conversation_id = accepted.conversation_id
        async with self._conversations.on_disk(conversation_id):
            try:
                return await self._conversations.lookup.turn(accepted.turn_id, conversation_id)
            except WonderError as problem:
                if problem.fault.reason is not Reason.TURN_NOT_FOUND:
                    raise
                # The conversation was deleted since the message was accepted.
                raise conversation_not_found(conversation_id) from None

    async def _has_seen_end(self, accepted: AcceptedTurn) -> bool:
        """Return True if the cursor is at the event that ends the turn, or beyond."""
        if accepted.after < accepted.sequence or (await self.turn(accepted)).status in _NOT_OVER:
            return False
        end = EventQuery(
            actor=accepted.conversation_id,
            turn_id=accepted.turn_id,
            after_sequence=accepted.after,
            names=_END_NAMES,
            limit=1,
        )
        return not await self._conversations.events(end)


class TurnItems:
    """The items of one turn, from a reader of its conversation. The last is a `Closed` after the turn's end.

    A stream that cannot continue raises instead: SERVER_DRAINING, OWNER_MOVED, SLOW_READER,
    CONVERSATION_NOT_FOUND. ``has_ended``: the reader has seen the turn's end already.
    """

    def __init__(
        self, attachment: Attachment, turn_id: str, conversation_id: str, *, has_ended: bool
    ) -> None:
        self._attachment = attachment
        self._turn_id = turn_id
        self._conversation_id = conversation_id
        self._has_ended = has_ended
        self._loop = asyncio.get_running_loop()
        self._last_returned = self._loop.time()

    @property
    def sequence(self) -> int:
        """Sequence of the last event of the conversation that was read: the cursor."""
        return self._attachment.sequence

    async def take(self) -> Sequence[Item | CaughtUp]:
        """Wait for the turn's next items and return them, in order."""
        if self._has_ended:
            return (Closed("ended"),)
        while True:
            items = list(self._own(await self._attachment.take()))
            if not items and self._is_silent():
                # Items of other turns came meanwhile, so that the attachment sends no sign of life.
                items.append(KeepAlive())
            if items:
                self._last_returned = self._loop.time()
                return items

    def close(self) -> None:
        """Close the reader's view."""
        self._attachment.close()

    def _is_silent(self) -> bool:
        return self._loop.time() - self._last_returned >= self._attachment.keep_alive_after_s

    def _own(self, items: Sequence[Item | CaughtUp]) -> Iterator[Item]:
        for item in items:
            if isinstance(item, Delta):
                if item.turn_id == self._turn_id:
                    yield item
            elif isinstance(item, Event):
                if item.emit.turn_id == self._turn_id:
                    yield item
                    if item.emit.kind in TURN_ENDED:
                        yield Closed("ended")
                        return
            elif isinstance(item, Closed):
                raise self._problem(item.reason)
            elif isinstance(item, KeepAlive):
                yield item

    def _problem(self, reason: str) -> WonderError:
        """Return the error of a stream that ends before its turn."""
        cursor = str(self.sequence)
        if reason == "slow":
            return error(
                Reason.SLOW_READER,
                "The client reads too slowly. Repeat the call with the same request_id, "
                f"after sequence {cursor}.",
                resume_after_sequence=cursor,
            )
        if reason == "moved":
            moved = owner_moved(ids.shard_of(self._conversation_id))
            moved.fault.metadata["resume_after_sequence"] = cursor
            return moved
        if reason == "deleted":
            return conversation_not_found(self._conversation_id)
        return error(
            Reason.SERVER_DRAINING,
            "The server is shutting down; the turn continues after its restart. "
            f"Repeat the call with the same request_id, after sequence {cursor}.",
            retry_after_ms=RESUME_AFTER_MS,
            resume_after_sequence=cursor,
        )
