"""Clients of the cluster: they send, repeat, cancel, answer gates, and follow streams by cursor."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from tests.actors.kit import origin
from tests.simulation.cluster import Cluster, LostError
from tests.simulation.node import Node
from tests.simulation.oracle import Ledger, ViolationError, require
from wonder_server.actors.streaming.attachment import Attachment, CaughtUp
from wonder_server.actors.streaming.items import Closed, Delta
from wonder_server.core.conversation.model.values import Conversation
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.memory.ranking import Hit
from wonder_server.ports.journal import Event

T = TypeVar("T")

PAUSE_S: Final = 0.05
Attach = Callable[[Node, int], Awaitable[Attachment]]


class Reader:
    """A client's view of one actor over all its streams: each event once, in order, and only durable ones."""

    def __init__(self, client: Client, actor_id: str, attach: Attach) -> None:
        self.actor_id = actor_id
        self.events: list[Event] = []
        self._client = client
        self._attach = attach
        self._texts: dict[str, str] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._following = asyncio.get_running_loop().create_task(self._follow())

    @property
    def cursor(self) -> int:
        return len(self.events)

    async def until(self, seen: Callable[[], T]) -> T:
        """Wait until ``seen`` returns a true value, and return it."""
        while not (found := seen()):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        return found

    def stop(self) -> None:
        """End the stream."""
        self._following.cancel()

    def values(self, kind: str) -> list[Any]:
        """Return the contents of the events of this kind."""
        return [event.emit.value for event in self.events if event.emit.kind == kind]

    async def _follow(self) -> None:
        while True:
            try:
                await self._client.request(self._read, self.actor_id)
            except WonderError as refusal:
                self._client.ledger.violated(ViolationError(f"no stream of {self.actor_id}: {refusal}"))
                return
            await self._client.pause()

    async def _read(self, node: Node) -> None:
        """Read one stream to its end. Runs in the node's process."""
        attachment = await self._attach(node, self.cursor)
        self._texts.clear()  # A stream begins with the text so far.
        try:
            while True:
                for item in await attachment.take():
                    if isinstance(item, Closed):
                        return
                    self._deliver(item)
                await self._client.linger()
        except ViolationError as problem:
            self._client.ledger.violated(problem)
        finally:
            attachment.close()

    def _deliver(self, item: object) -> None:
        if isinstance(item, Event):
            self._deliver_event(item)
        elif isinstance(item, Delta):
            self._deliver_text(item)
        elif isinstance(item, CaughtUp):
            require(item.sequence == self.cursor, f"caught up to {item.sequence} at cursor {self.cursor}")

    def _deliver_event(self, event: Event) -> None:
        expected = self.cursor + 1
        what = f"{self.actor_id}: event {event.sequence} ({event.emit.name})"
        require(event.sequence == expected, f"{what} was shown in place of {expected}")
        durable = self._client.cluster.disk.events_of(self.actor_id)
        require(len(durable) >= expected, f"{what} was shown before it was on disk")
        found = durable[expected - 1]
        require(
            found is event or found.emit == event.emit, f"{what} was shown, and {found.emit.name} is on disk"
        )
        self._client.cluster.disk.trace("shown", self.actor_id, event.sequence)
        self.events.append(event)
        self._check_text(event)
        self._notify()

    def _deliver_text(self, delta: Delta) -> None:
        text = "" if delta.attempt or not delta.offset else self._texts.get(delta.message_id, "")
        require(
            len(text) == delta.offset,
            f"{delta.message_id}: text at {delta.offset} was shown after {len(text)}",
        )
        self._texts[delta.message_id] = text + delta.text

    def _check_text(self, event: Event) -> None:
        """Check a complete message against the text that was shown of it."""
        text = self._texts.pop(event.emit.message_id, None)
        if text is not None and event.emit.kind == "message_appended":
            content = event.emit.value.content
            message = f"{event.emit.message_id} was shown as {text!r}, and is {content!r}"
            require(content.startswith(text), message)

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Client:
    """Requests of one client, each repeated until it is answered."""

    def __init__(self, name: str, cluster: Cluster, ledger: Ledger, dice: random.Random) -> None:
        self.name = name
        self.cluster = cluster
        self.ledger = ledger
        self.dice = dice
        self.readers: list[Reader] = []
        self._asked: list[Callable[[], Awaitable[object]]] = []
        """Requests that were answered, to be repeated at the end."""

    def forget_requests(self) -> None:
        """Do not repeat the requests so far: the conversation that they name is about to be deleted."""
        self._asked.clear()

    async def repeat_requests(self) -> None:
        """Send each request again, after all deaths. The ledger compares the answers."""
        for ask in self._asked:
            await ask()

    async def restore_all(self) -> None:
        """Read every conversation, so that the checks see the records of the archived ones too."""
        while away := self.ledger.disk.conversations_away():
            for conversation_id in away:
                await self.request(
                    lambda node, each=conversation_id: node.conversations.open(each),  # type: ignore[misc]
                    conversation_id,
                )
            await asyncio.sleep(1)

    async def search_memories(self, most: int = 3) -> None:
        """Search some of the memories by their contents."""
        for agent_id, content in [*self.ledger.disk.memories.contents()][:most]:

            async def search(node: Node, agent_id: str = agent_id, content: str = content) -> list[Hit]:
                return await node.memory.search(agent_id, content, limit=100)

            found = [hit.memory.content for hit in await self.request(search)]
            require(content in found, f"a search does not find the memory {content!r}")

    async def pause(self) -> None:
        await asyncio.sleep(self.dice.random() * PAUSE_S)

    async def linger(self) -> None:
        """Read slowly, at times."""
        if self.dice.random() < 0.1:
            await self.pause()

    async def request(self, work: Callable[[Node], Awaitable[T]], actor_id: str = "") -> T:
        """Send a request until it is answered. Raises refusals."""
        while True:
            try:
                return await self.cluster.call(work, actor_id)
            except LostError:
                pass
            except WonderError as problem:
                if not problem.fault.transient and problem.fault.reason is not Reason.SERVER_DRAINING:
                    raise
            await self.pause()

    async def once(self, request_id: str, work: Callable[[Node], Awaitable[object]]) -> Any:
        """Send a request with this id, at times twice at once or again later, and return its answer."""

        async def ask() -> object:
            try:
                answer = await self.request(work)
            except WonderError as refusal:
                answer = refusal.fault.reason
            self.ledger.answered(request_id, answer)
            return answer

        if self.dice.random() < 0.2:
            answer, _ = await asyncio.gather(ask(), ask())
        else:
            answer = await ask()
            if self.dice.random() < 0.2:
                await self.pause()
                await ask()
        if not isinstance(answer, Reason):
            self._asked.append(ask)
        return answer

    async def create(self, conversation: Conversation, request_id: str) -> str:
        """Create a conversation, or find the one with its external reference, and return its id."""

        async def create(node: Node) -> str:
            creator = node.conversations.creator
            return (await creator.create(conversation, origin(request_id), return_existing=True))[0].id

        return str(await self.once(request_id, create))

    def read_conversation(self, conversation_id: str) -> Reader:
        return self.read(
            conversation_id,
            lambda node, after: node.conversations.attach(conversation_id, after, tail_only=False),
        )

    def read(self, actor_id: str, attach: Attach) -> Reader:
        reader = Reader(self, actor_id, attach)
        self.readers.append(reader)
        return reader
