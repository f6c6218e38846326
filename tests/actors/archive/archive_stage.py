"""A stage for tests of the archive, on real shards."""

from __future__ import annotations

import pytest

from tests.actors.kit import CONVERSATION_ID, EVERYWHERE, LIMITS, FakeClock
from tests.core.conversation.conversation_kit import ASSEMBLED, agent, send, text_answer
from tests.sqlite_journals import SqliteJournals
from wonder_server.actors.access import ActorAccess
from wonder_server.actors.archive.archiver import Archiver
from wonder_server.actors.conversation.conversations import Conversations
from wonder_server.actors.conversation.deletions import Deletions
from wonder_server.actors.conversation.expiry_sweeper import ExpirySweeper
from wonder_server.actors.conversation.lifecycle import ConversationLifecycle
from wonder_server.actors.directory import Directory
from wonder_server.actors.runtime.loop import LoopPorts
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.adapters.in_memory.blobs import MemoryBlobs
from wonder_server.adapters.sqlite.shard.archives import SqliteArchives
from wonder_server.core.actor.commands import Command
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.lifecycle_inputs import Update
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import OperationKind
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Reason, error

HOUR = 3_600_000


class Agents:
    """A library of one agent."""

    async def pin_agent(self, _: str) -> PinnedAgent:
        return agent(extraction=False)


class ArchiveStage:
    """Actors on real shards, with the test as the model. ``restart`` simulates a crash and a new start."""

    def __init__(self, shards: SqliteJournals, blobs: MemoryBlobs) -> None:
        self.shards, self.blobs, self.clock = shards, blobs, FakeClock()
        self.restart()

    def restart(self) -> None:
        access = ActorAccess(
            directory=Directory(StreamHub(100, 1 << 20), self.shards),
            journals=self.shards,
            records=self.shards,
            clock=self.clock,
        )
        ports = LoopPorts(
            journal_of=self.shards.of,
            clock=self.clock,
            dispatch=self._dispatch,
            publish=lambda *_: None,
        )
        self.loop = access.directory.start_loops((CONVERSATION, RUN), ports, LIMITS, EVERYWHERE)
        self.archives = SqliteArchives(self.shards.shards)
        self.archiver = Archiver(
            directory=access.directory,
            records=self.shards,
            archives=self.archives,
            blobs=self.blobs,
            clock=self.clock,
        )
        self.conversations = Conversations(access=access, agents=Agents(), archive=self.archiver)
        deletions = Deletions(access, self.archiver)
        self.lifecycle = ConversationLifecycle(
            access=access, agents=Agents(), conversations=self.conversations, deletions=deletions
        )
        self.sweeper = ExpirySweeper(
            archiver=self.archiver,
            deletions=deletions,
            directory=access.directory,
            records=self.shards,
            clock=self.clock,
        )

    def _dispatch(self, _actor_id: str, _command: Command) -> None:
        """Do nothing: the test reports results."""

    def pending_operation(self, kind: OperationKind) -> str:
        state = self.loop.peek(CONVERSATION_ID)
        assert isinstance(state, ConversationState)
        return next(op.id for op in state.operations.values() if op.kind is kind)

    async def turn(self, text: str) -> None:
        """Run a whole turn."""
        await self.loop.ask(CONVERSATION_ID, send(f"seed {text}", text, extraction=False))
        assembly = self.pending_operation(OperationKind.ASSEMBLY)
        await self.loop.ask(CONVERSATION_ID, inputs.Succeeded(operation_id=assembly, output=ASSEMBLED))
        model = self.pending_operation(OperationKind.MODEL)
        await self.loop.ask(
            CONVERSATION_ID, inputs.ModelAnswered(operation_id=model, result=text_answer(f"To {text}."))
        )

    async def lines(self, *tables: str) -> dict[str, list[object]]:
        """Return the conversation's rows by table."""
        found: dict[str, list[object]] = {}
        async for page in self.archives.export(CONVERSATION_ID, ()):
            for table, row in page:
                found.setdefault(table, []).append(dict(row))
        return {table: rows for table, rows in found.items() if not tables or table in tables}

    async def expire(self, after_ms: int = HOUR) -> None:
        await self.loop.ask(CONVERSATION_ID, Update(expire_ms=self.clock.now + after_ms))


async def archived(stage: ArchiveStage) -> str:
    await stage.turn("turn 1")
    await stage.expire()
    stage.clock.now += HOUR
    await stage.sweeper.sweep()
    (key,) = stage.blobs.contents
    return key


async def interrupted(stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch) -> str:
    """Stop the server after it has written the object. Return the object's key."""
    await stage.turn("turn 1")
    await stage.expire()
    stage.clock.now += HOUR
    put = stage.blobs.put

    async def crash(content: bytes) -> str:
        await put(content)
        raise error(Reason.STORAGE_UNAVAILABLE, "Crashed.", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(stage.blobs, "put", crash)
        assert await stage.sweeper.sweep() == 0
    stage.restart()
    (key,) = stage.blobs.contents
    return key
