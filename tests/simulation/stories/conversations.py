"""Stories of conversations: hold one, and open one that others open too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.actors.kit import origin
from tests.core.conversation.conversation_kit import NOW
from tests.simulation.clients import Client, Reader
from tests.simulation.node import CALM_SWEEP_S, Node
from tests.simulation.oracle import require
from tests.simulation.outcomes import TurnRecord, only_tools, turn_record
from tests.simulation.placement import SharedCluster
from tests.simulation.stories.story import Task, draft
from wonder_server.actors.conversation.conversations import SendRequest
from wonder_server.core.conversation.model.lifecycle_inputs import Update
from wonder_server.core.conversation.model.values import Participant
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.idempotency import Origin
from wonder_server.ports.journal import Event

TURN_ENDS: Final = ("turn_completed", "turn_failed", "turn_cancelled")

TEXTS: Final = (
    "say 3 words ({marker})",
    "say 12 words ({marker})",
    f"say 1 words ({{marker}}) {5_000 * 'x'}",
    "use the tool note with {marker} is noted",
    "use the tool once with {marker}",
    "use the tool again with {marker}",
    "use the tool later with {marker}",
    "use the tool slow_later with {marker}",
    "use the tool flow_later with {marker}",
    "use the tool slow_later with {marker}\nuse the tool flow_later with {marker}-flow",
    "use the tool refused_later with {marker}",
    "use the tool colleague_later with say 4 words ({marker})",
    "use the tool flow with {marker}",
    "use the tool refused with {marker}",
    "use the tool colleague with say 4 words ({marker})",
    "use the tool join with say 2 words ({marker})",
    "use the tool once with {marker}\nuse the tool flow with {marker}-flow",
    "use the tool once with {marker}\nuse the tool flow_later with {marker}-flow\n"
    "use the tool later with {marker}-later\nuse the tool colleague with say 3 words ({marker})",
)

LONG: Final = "say 120 words ({marker})"
REDUCED: Final = (LONG, LONG, "say 3 words ({marker})")
"""Texts to an agent with a narrow context window: its history is summarized or cut."""


LATE_MS: Final = 30 * 86_400_000
"""An expiry after the end of every history."""


def is_loose(text: str) -> bool:
    """Return True if the turns of a text may take one course or another: a result in the background can come
    before or after the answer."""
    return "later with" in text


@dataclass(frozen=True)
class _Turn:
    reader: Reader
    texts: tuple[str, ...]
    marker: str
    id: str


@dataclass
class Namesake:
    """A client that opens the conversation of an external reference, as others do at the same time."""

    client: Client
    reference: str
    needs_workers = False

    def results(self) -> Iterator[tuple[Task, object]]:
        """Yield nothing: the ledger compares the references."""
        yield from ()

    async def __call__(self) -> None:
        # An expired conversation gives its reference up, and a repeated request would create another one.
        conversation = draft("colleague", external_ref=self.reference, expire_ms=NOW + LATE_MS)
        conversation_id = await self.client.create(conversation, f"{self.client.name}/create")
        known = self.client.ledger.references.setdefault(self.reference, conversation_id)
        require(known == conversation_id, f"{self.reference} is {known} and {conversation_id}")


@dataclass
class Heir:
    """A client that wants an external reference, which conversations of other clients keep until they expire.

    It creates a conversation with the reference, or gives the reference to a conversation of another shard.
    """

    client: Client
    reference: str
    needs_workers = False

    def results(self) -> Iterator[tuple[Task, object]]:
        """Yield nothing: the ledger checks who has the reference."""
        yield from ()

    async def __call__(self) -> None:
        client = self.client
        client.ledger.contested.add(self.reference)
        for number in range(client.dice.randint(1, 4)):
            # An update needs the owner of two shards, and no node may own both for long.
            if client.dice.random() < 0.5 or isinstance(client.cluster, SharedCluster):
                await self._create(f"{client.name}/create-{number}")
            else:
                await self._update(f"{client.name}/{number}")
            await client.pause()

    async def _create(self, request_id: str) -> None:
        conversation = draft("colleague", external_ref=self.reference)

        async def create(node: Node) -> object:
            return await node.conversations.creator.create(conversation, origin(request_id))

        await self._try(create)

    async def _update(self, name: str) -> None:
        conversation_id = await self.client.create(draft("colleague"), f"{name}/create")
        change = Update(external_ref=self.reference)

        async def take(node: Node) -> object:
            return await node.lifecycle.update(conversation_id, change, origin(f"{name}/take"))

        await self._try(take)

    async def _try(self, work: Callable[[Node], Awaitable[object]]) -> None:
        """Send a request until it is answered. A refusal is no answer to keep: the reference may be free
        later."""
        try:
            await self.client.request(work)
        except WonderError as refusal:
            require(refusal.fault.reason is Reason.ALREADY_EXISTS, f"{self.reference}: {refusal}")


@dataclass
class Talker:
    """A client that holds a conversation."""

    client: Client
    agent: str
    texts: Sequence[str]
    meddles: bool
    """True for a client that also cancels turns, and changes and deletes the conversation."""
    in_order: bool = False
    """True for a client that waits for the end of each turn, so that a turn depends on those before it."""
    needs_workers = False
    _turns: list[_Turn] = field(default_factory=list)
    """The turns to compare with those of a history without faults."""

    async def __call__(self) -> None:
        client, dice = self.client, self.client.dice
        conversation_id = await client.create(draft(self.agent), f"{client.name}/create")
        reader = client.read_conversation(conversation_id)
        async with asyncio.TaskGroup() as group:
            for number, text in enumerate(self.texts):
                marker = f"{client.name}-{number}"
                texts = tuple(self.texts[: number + 1]) if self.in_order else (text,)
                turn = group.create_task(self._turn(conversation_id, reader, texts, marker))
                if self.in_order or dice.random() < 0.7:
                    await turn
                if client.cluster.weather.expire_after_ms and dice.random() < 0.7:
                    await self._wait_until_archived(conversation_id)
        if self.meddles and dice.random() < 0.5:
            await self._change(conversation_id, reader)

    def results(self) -> Iterator[tuple[Task, TurnRecord]]:
        """Yield the record of each turn that was not disturbed by its client."""
        for turn in self._turns:
            record = turn_record(turn.reader.events, turn.id, turn.marker)
            task = Task(self.agent, turn.texts)
            yield task, only_tools(record) if is_loose(turn.texts[-1]) else record

    async def _change(self, conversation_id: str, reader: Reader) -> None:
        """Change the whole conversation in every way, and delete it, at times."""
        self._turns.clear()  # Completing the conversation ends the work that follows its turns.
        name = self.client.name
        user = Participant(type="user", id="zoe")
        await self._change_once(
            f"{name}/join", lambda node, key: node.lifecycle.join(conversation_id, user, key)
        )
        await self._complete(conversation_id, name)
        await self._change_once(
            f"{name}/reset",
            lambda node, key: node.lifecycle.reset(
                conversation_id, keep_system_message=True, version=0, origin=key
            ),
        )
        if self.client.dice.random() < 0.5:
            await self._turn(conversation_id, reader, TEXTS[:1], f"{name}-again")
        else:
            reader.stop()
            self.client.forget_requests()
            await self._change_once(
                f"{name}/delete",
                lambda node, key: node.lifecycle.delete(conversation_id, version=0, origin=key),
            )
            self.client.ledger.delete(conversation_id)

    async def _complete(self, conversation_id: str, name: str) -> None:
        """Complete the conversation, with its turns in progress, and reopen it."""
        await self._change_once(
            f"{name}/complete",
            lambda node, key: node.lifecycle.complete(
                conversation_id, cancel_turns=True, version=0, origin=key
            ),
        )
        await self._change_once(
            f"{name}/reopen",
            lambda node, key: node.lifecycle.reopen(conversation_id, version=0, origin=key),
        )

    async def _change_once(
        self, request_id: str, change: Callable[[Node, Origin], Awaitable[object]]
    ) -> None:
        """Make a change once. Its answer is the version of the conversation after it or later, so only its
        success is compared."""

        async def ask(node: Node) -> str:
            await change(node, origin(request_id))
            return "done"

        answer = await self.client.once(request_id, ask)
        require(answer == "done", f"{request_id} was refused: {answer}")

    async def _wait_until_archived(self, conversation_id: str) -> None:
        """Wait until the conversation is archived, or until a sweep must have seen it expired."""
        pause_s = 0.05
        while pause_s < 2 * CALM_SWEEP_S:
            found = await self.client.request(lambda node: node.conversations.lookup.get(conversation_id))
            if found.archive_key:
                return
            await asyncio.sleep(pause_s)
            pause_s *= 1.5

    async def _turn(self, conversation_id: str, reader: Reader, texts: tuple[str, ...], marker: str) -> None:
        client = self.client
        message = SendRequest(content=texts[-1].format(marker=marker), origin=origin(marker), metadata={})

        async def send(node: Node) -> tuple[str, str, int]:
            sent = await node.conversations.send(conversation_id, message)
            return sent.turn_id, sent.message_id, sent.sequence

        turn_id, _, sequence = await client.once(marker, send)
        client.ledger.turns[marker] = conversation_id, turn_id
        if self.meddles and client.dice.random() < 0.2:
            await client.pause()
            if len(self.texts) == 1 and client.dice.random() < 0.5:
                await self._complete(conversation_id, marker)
            else:
                await self._cancel(conversation_id, turn_id, marker)
        else:
            self._turns.append(_Turn(reader, texts, marker, turn_id))
        ended = await reader.until(lambda: end_of(reader, turn_id))
        require(ended.sequence > sequence, f"{turn_id} ended before it was sent")

    async def _cancel(self, conversation_id: str, turn_id: str, marker: str) -> None:
        request_id = f"{marker}/cancel"

        async def cancel(node: Node) -> int:
            return (await node.conversations.cancel(conversation_id, turn_id, origin(request_id)))[1]

        await self.client.once(request_id, cancel)


def end_of(reader: Reader, turn_id: str) -> Event | None:
    """Return the event that ended a turn, or None."""
    return next(
        (e for e in reader.events if e.emit.turn_id == turn_id and e.emit.kind in TURN_ENDS),
        None,
    )
