"""A story of a client that sends a message and streams its turn by one call, repeated until it has all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.actors.kit import origin
from tests.simulation.clients import Client
from tests.simulation.node import Node
from tests.simulation.oracle import ViolationError, require
from tests.simulation.stories.conversations import TURN_ENDS
from tests.simulation.stories.story import Task, draft
from wonder_server.actors.conversation.conversations import SendRequest
from wonder_server.actors.conversation.turn_streams import AcceptedTurn, TurnItems, TurnRequest, TurnStreams
from wonder_server.actors.streaming.items import Closed, Delta
from wonder_server.core.conversation.model.values import Turn, TurnStatus
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.journal import Event
from wonder_server.ports.records import EventQuery

HANGS_UP = 0.1
"""Probability that the client ends its call after each group of items."""


@dataclass
class Streamer:
    """A client with one turn in a conversation of its own, and a second one in the same conversation."""

    client: Client
    agent: str
    texts: tuple[str, ...]
    needs_workers = False
    _conversation_id: str = ""

    def results(self) -> Iterator[tuple[Task, object]]:
        """Yield nothing: the events are compared with the record."""
        yield from ()

    async def __call__(self) -> None:
        for number, text in enumerate(self.texts):
            read = _Read(self.client, f"{self.client.name}-{number}", text)
            await read.to_end(self.agent, self._conversation_id)
            self._conversation_id = read.conversation_id


@dataclass
class _Read:
    """A client's view of one turn over all its calls: each event of the turn once, in order."""

    client: Client
    marker: str
    text: str
    conversation_id: str = ""
    turn_id: str = ""
    events: list[Event] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def cursor(self) -> int:
        return self.events[-1].sequence if self.events else 0

    async def to_end(self, agent: str, conversation_id: str) -> None:
        """Call until the turn has ended, and compare what came with the record."""
        turn: Turn | None = None

        async def call(node: Node) -> Turn | None:
            try:
                return await self._call(node, agent, conversation_id)
            except ViolationError as problem:
                self.client.ledger.violated(problem)
                return None

        while turn is None:
            try:
                turn = await self.client.request(call, self.conversation_id)
            except WonderError as refusal:
                require(refusal.fault.reason is Reason.SLOW_READER, f"{self.marker} was refused: {refusal}")
            await self.client.pause()
        require(turn.status is not TurnStatus.ACTIVE, f"{turn.id} was shown as ended, and is active")
        query = EventQuery(actor=self.conversation_id, turn_id=self.turn_id, limit=500)
        recorded = [
            event.sequence
            for event in await self.client.request(
                lambda node: node.conversations.events(query), self.conversation_id
            )
        ]
        seen = [event.sequence for event in self.events]
        require(seen == recorded[: len(seen)], f"{self.turn_id} was streamed as {seen}, and is {recorded}")

    async def _call(self, node: Node, agent: str, conversation_id: str) -> Turn | None:
        """Send the message, or find its turn, and read. Return the turn at its end, None after a hang-up."""
        streams, marker = TurnStreams(node.conversations), self.marker
        message = SendRequest(content=self.text.format(marker=marker), origin=origin(marker), metadata={})
        accepted = await streams.start(
            TurnRequest(
                message=message,
                conversation_id=conversation_id,
                draft=None if conversation_id else draft(agent),
                after=self.cursor,
            )
        )
        self.client.ledger.answered(marker, (accepted.conversation_id, accepted.turn_id, accepted.sequence))
        self.client.ledger.turns[marker] = accepted.conversation_id, accepted.turn_id
        self.conversation_id, self.turn_id = accepted.conversation_id, accepted.turn_id
        items = await streams.attach(accepted)
        self.texts.clear()  # A stream begins with the text so far.
        try:
            return await self._read(streams, items)
        finally:
            items.close()

    async def _read(self, streams: TurnStreams, items: TurnItems) -> Turn | None:
        while True:
            for item in await items.take():
                if isinstance(item, Closed):
                    require(bool(self.events), f"{self.turn_id} ended without events")
                    require(self.events[-1].emit.kind in TURN_ENDS, f"{self.turn_id} has no end")
                    return await streams.turn(AcceptedTurn(self.conversation_id, self.turn_id, "", 0, 0))
                self._deliver(item)
            if self.client.dice.random() < HANGS_UP:
                return None
            await self.client.linger()

    def _deliver(self, item: object) -> None:
        if isinstance(item, Event):
            what = f"{self.turn_id}: event {item.sequence} ({item.emit.name})"
            require(item.emit.turn_id == self.turn_id, f"{what} is of another turn")
            require(item.sequence > self.cursor, f"{what} was shown after {self.cursor}")
            self.events.append(item)
            self.texts.pop(item.emit.message_id, None)
        elif isinstance(item, Delta):
            require(item.turn_id == self.turn_id, f"text of {item.turn_id} in the stream of {self.turn_id}")
            text = "" if item.attempt or not item.offset else self.texts.get(item.message_id, "")
            require(len(text) == item.offset, f"{item.message_id}: text at {item.offset} after {len(text)}")
            self.texts[item.message_id] = text + item.text
