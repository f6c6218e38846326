"""What a `Chat` gives to those who wait: everything, or the one turn that answers a message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeAlias

from wonder_sdk._proto.wonder import v1
from wonder_sdk.errors import from_fault
from wonder_sdk.mailbox import Mailbox
from wonder_sdk.record import Item, ended_turn

Cancel: TypeAlias = Callable[[str], Awaitable[None]]
GiveUp: TypeAlias = Callable[["Reply"], None]


class Events:
    """Everything on a conversation, from `Chat.events`. Ends with the chat; raises if that fails."""

    def __init__(self) -> None:
        self.mailbox: Mailbox[Item | v1.CaughtUp] = Mailbox()
        self.has_room = asyncio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item | v1.CaughtUp:
        item = await self.mailbox.get()
        self.has_room.set()
        return item


class Reply:
    """One message that was sent, and the turn that answers it, from `Chat.send`.

    Iterated, it gives that turn's items until the turn has ended: completed, failed or cancelled. If
    the message is refused, it raises a `WonderError` instead. A loop that breaks off leaves the rest to
    a later loop.
    """

    def __init__(self, request_id: str, taken: asyncio.Future[str], cancel: Cancel, give_up: GiveUp) -> None:
        self.request_id = request_id
        self.turn_id = ""
        """Id of the turn; empty until the server has taken the message."""
        self.turn: v1.Turn | None = None
        """The turn as it ended; None until it has, and its end was iterated over."""
        self._cancel, self._give_up = cancel, give_up
        self.mailbox: Mailbox[Item] = Mailbox()
        self._taken = taken

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        item = await self.mailbox.get()
        self.turn = ended_turn(item) or self.turn
        return item

    async def started(self) -> str:
        """Wait until the message and its turn are on the server's disk; the turn's id."""
        return await asyncio.shield(self._taken)

    async def cancel(self) -> None:
        """Cancel the turn. Items go on until it has ended."""
        await self._cancel(await self.started())

    def give_up(self) -> None:
        """Have the turn cancelled without waiting for that, or for a connection.

        While there is none, the cancel is sent once there is one again; a message that no server has
        acknowledged is not said again, and iterating raises CallCancelledError.
        """
        self._give_up(self)

    async def text(self) -> str:
        """What the agent said, once the turn has ended: its messages, a blank line between them.

        Consumes the items. Raises the turn's error as a `WonderError` if it failed or was cancelled.
        """
        said = []
        async for item in self:
            match item:
                case v1.Event(message_appended=v1.Message(role=v1.MessageRole.AGENT) as message):
                    said.append(message.content)
                case _:
                    pass
        if self.turn and self.turn.error:
            raise from_fault(self.turn.error)
        return "\n\n".join(part for part in said if part)


def quiet_future() -> asyncio.Future[Any]:
    """A future whose exception nobody is obliged to look at."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future
