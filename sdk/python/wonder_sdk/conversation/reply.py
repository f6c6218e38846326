"""Iterators of a `Chat`: all events, or the turn that answers a message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self, TypeAlias, TypeVar

from wonder_sdk._proto.wonder import v1
from wonder_sdk.conversation.event_cursor import Item, ended_turn
from wonder_sdk.conversation.handled_cursor import HandledCursor
from wonder_sdk.errors import WonderError, from_turn
from wonder_sdk.transport.stream_queue import StreamQueue

Cancel: TypeAlias = Callable[[str], Awaitable[None]]
GiveUp: TypeAlias = Callable[["Reply"], None]

_Result = TypeVar("_Result")


class Events:
    """All items of a conversation, from `Chat.events`. Ends with the chat, and raises the chat's error."""

    def __init__(self, handled_cursor: HandledCursor) -> None:
        self.queue: StreamQueue[Item | v1.CaughtUp] = StreamQueue()
        self.has_capacity = asyncio.Event()
        self._tracker = handled_cursor.new_tracker(self, is_part=False)

    def put(self, item: Item | v1.CaughtUp) -> None:
        if self.queue.put(item):
            self._tracker.put(item)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item | v1.CaughtUp:
        self._tracker.on_next_requested()
        item = await self.queue.get()
        self._tracker.on_item_given(item)
        self.has_capacity.set()
        return item


class Reply:
    """A sent message and the turn that answers it, from `Chat.send`.

    Iterating yields the turn's items until the turn has ended. Then it raises TurnFailedError if the turn
    failed, or TurnCancelledError if another client cancelled it. After `cancel` and `give_up`, and with
    ``check=False`` in `Chat.send`, the loop ends without an error; `turn` has the outcome. A rejected message
    raises a `WonderError`. After a break, a later loop continues with the remaining items.
    """

    def __init__(
        self,
        request_id: str,
        turn_started: asyncio.Future[str],
        cancel: Cancel,
        give_up: GiveUp,
        handled_cursor: HandledCursor,
        *,
        check: bool = True,
    ) -> None:
        self.request_id = request_id
        self.is_cancelled_here = False
        """True if this client has cancelled the turn."""
        self._check = check
        self._tracker = handled_cursor.new_tracker(self, is_part=True)
        self.turn_id = ""
        """Id of the turn; empty until the server has taken the message."""
        self.turn: v1.Turn | None = None
        """The turn as it ended; None until it has, and its end was iterated over."""
        self._cancel, self._give_up = cancel, give_up
        self.queue: StreamQueue[Item] = StreamQueue()
        self._turn_started = turn_started

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        self._tracker.on_next_requested()
        item = await self.queue.get()
        self._tracker.on_item_given(item)
        self.turn = ended_turn(item) or self.turn
        return item

    def put(self, item: Item) -> None:
        """Give the next item of the turn; its last ends the reply."""
        if self.queue.put(item):
            self._tracker.put(item)
        if turn := ended_turn(item):
            self._tracker.is_over = True
            self.queue.end(self._failure(turn))

    def _failure(self, turn: v1.Turn) -> WonderError | None:
        if not self._check or turn.status is v1.TurnStatus.COMPLETED:
            return None
        if turn.status is v1.TurnStatus.CANCELLED and self.is_cancelled_here:
            return None
        return from_turn(turn)

    async def started(self) -> str:
        """Wait until the message and its turn are on the server's disk; the turn's id."""
        return await asyncio.shield(self._turn_started)

    async def cancel(self) -> None:
        """Cancel the turn. Items go on until it has ended. A turn that has ended remains as it is."""
        self.is_cancelled_here = True
        await self._cancel(await self.started())

    def give_up(self) -> None:
        """Have the turn cancelled without waiting for that, or for a connection.

        While there is none, the cancel is sent once there is one again; a message that no server has
        acknowledged is not said again, and iterating raises CallCancelledError.
        """
        self.is_cancelled_here = True
        self._give_up(self)

    async def text(self) -> str:
        """Return the agent's messages, separated by a blank line, after the turn has ended.

        Consumes the items. Raises TurnFailedError, or TurnCancelledError for every cancelled turn.
        """
        texts = []
        async for item in self:
            match item:
                case v1.Event(message_appended=v1.Message(role=v1.MessageRole.AGENT) as message):
                    texts.append(message.content)
                case _:
                    pass
        if self.turn and self.turn.status is not v1.TurnStatus.COMPLETED:
            raise from_turn(self.turn)
        return "\n\n".join(part for part in texts if part)


def quiet_future() -> asyncio.Future[_Result]:
    """Return a future whose exception need not be retrieved."""
    future: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future
