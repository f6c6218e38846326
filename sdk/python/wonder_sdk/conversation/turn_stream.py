"""`TurnStream`: one call that sends a message and streams its turn, and survives lost connections."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator

import betterproto2

from wonder_sdk._proto import stubs
from wonder_sdk._proto.wonder import v1
from wonder_sdk.conversation.event_cursor import EventCursor, GapError, Item
from wonder_sdk.errors import UnavailableError, WonderError, from_turn
from wonder_sdk.transport.reconnect import Backoff, ReconnectPolicy

FIRST_TIMEOUT_MS = 10_000
"""Maximum time in which a message that no server has acknowledged is repeated."""


class TurnStream:
    """A sent message and the turn that answers it, from `Client.stream_turn`.

    The message is sent when the iteration begins. Iterating yields the turn's items until the turn has
    ended. Then it raises TurnFailedError or TurnCancelledError, unless the turn completed or ``check`` is
    False. After a lost connection the stream continues behind the last item: the ``request_id`` makes the
    server find the turn. A program that has stored `request_id` and `cursor` continues in the same way after
    a crash of its own.
    """

    def __init__(
        self,
        stub: stubs.ConversationServiceStub,
        request: v1.StreamTurnRequest,
        event_cursor: EventCursor,
        reconnect: ReconnectPolicy,
        *,
        check: bool,
    ) -> None:
        self._stub, self._request, self._event_cursor = stub, request, event_cursor
        self._reconnect, self._check = reconnect, check
        self.request_id = request.send.request_id if request.send is not None else ""
        self.conversation_id = request.conversation_id or ""
        """Id of the conversation; empty until the server has created it."""
        self.turn_id = ""
        """Id of the turn; empty until the server has taken the message."""
        self.turn: v1.Turn | None = None
        """The turn as it ended; None until it has."""
        self.cursor = event_cursor.cursor
        """Sequence of the last event that the program has handled: it has requested the item after it."""
        self._items = self._read()

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        return await anext(self._items)

    async def aclose(self) -> None:
        """End the stream. The turn continues, unless ``cancel_on_disconnect`` was set."""
        await self._items.aclose()

    async def text(self) -> str:
        """Return the agent's messages, separated by a blank line, after the turn has ended.

        Consumes the items. Raises TurnFailedError and TurnCancelledError.
        """
        texts = []
        async for item in self:
            match item:
                case v1.Event(message_appended=v1.Message(role=v1.MessageRole.AGENT) as message):
                    texts.append(message.content)
                case _:
                    pass
        if self.turn is not None and self.turn.status is not v1.TurnStatus.COMPLETED:
            raise from_turn(self.turn)
        return "\n\n".join(text for text in texts if text)

    async def _read(self) -> AsyncGenerator[Item, None]:
        timeout_ms = min(self._reconnect.timeout_ms, FIRST_TIMEOUT_MS)
        first = Backoff(dataclasses.replace(self._reconnect, timeout_ms=timeout_ms))
        backoff = Backoff(self._reconnect)
        while True:
            self._request.after_sequence = self._event_cursor.cursor
            call = self._stub.stream_turn(self._request)
            problem: WonderError = UnavailableError("The server ended the stream before the turn.")
            try:
                async for response in call:
                    for item in self._accept(response):
                        backoff.reset()
                        yield item
                        if isinstance(item, v1.Event):
                            self.cursor = item.sequence
                    if self.turn is not None:
                        break
            except GapError as gap:
                problem = UnavailableError(f"The stream has a gap: {gap}.")
            except WonderError as error:
                problem = error
            finally:
                call.cancel()
            if self.turn is not None:
                break
            await (backoff if self.turn_id else first).wait_after(problem)
        if self._check and self.turn.status is not v1.TurnStatus.COMPLETED:
            raise from_turn(self.turn)

    def _accept(self, response: v1.StreamTurnResponse) -> list[Item]:
        """Return the new items of a response. Raises `GapError`."""
        match betterproto2.which_one_of(response, "item"):
            case "accepted", v1.TurnAccepted() as accepted:
                self.conversation_id, self.turn_id = accepted.conversation_id, accepted.turn_id
                return []
            case "turn", v1.Turn() as turn:
                self.turn = turn
                return []
            case _:
                return [*self._event_cursor.accept(response)]
