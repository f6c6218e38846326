"""Reads of a conversation that expires and is archived at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from tests.actors.archive.archive_stage import HOUR, ArchiveStage
from tests.actors.kit import CONVERSATION_ID
from tests.core.conversation.conversation_kit import new_conversation
from tests.sqlite_journals import SqliteJournal, SqliteJournals
from wonder_server.actors.conversation.conversations import Conversations
from wonder_server.actors.runs.lookup import RunLookup
from wonder_server.adapters.in_memory.blobs import MemoryBlobs
from wonder_server.adapters.sqlite.shard.shard import SqliteShard
from wonder_server.adapters.sqlite.shard.shards import SqliteShards
from wonder_server.core.actor.changes import Erase, Put
from wonder_server.core.actor.commands import Scope
from wonder_server.core.coordinator.model.values import Run
from wonder_server.ports.journal import Commit, Event
from wonder_server.ports.records import EventQuery, Head, Query, RowValue
from wonder_server.record.encoding import Known

pytestmark = pytest.mark.disk

Hook = Callable[[], Awaitable[object]]


class InterruptedJournal(SqliteJournal):
    """The journal on one shard file, which calls a function before its first erasure."""

    def __init__(self, shard: SqliteShard, journals: InterruptedJournals) -> None:
        super().__init__(shard)
        self._journals = journals

    def submit(self, commits: Sequence[Commit]) -> asyncio.Future[tuple[Known, Known]]:
        hook = self._journals.before_erasure
        if hook is not None and any(isinstance(change, Erase) for each in commits for change in each.changes):
            self._journals.before_erasure = None
            hook()
        return super().submit(commits)


class InterruptedJournals(SqliteJournals):
    """Journals of which the next read waits for a function that runs first."""

    before_read: Hook | None = None
    before_erasure: Callable[[], None] | None = None

    def __init__(self, shards: SqliteShards) -> None:
        super().__init__(shards)
        self.own[:] = [InterruptedJournal(shard, self) for shard in shards.files]

    async def find(self, query: Query) -> list[RowValue]:
        await self._interrupt()
        return await super().find(query)

    async def events(self, prefix: str, query: EventQuery) -> list[Event]:
        await self._interrupt()
        return await super().events(prefix, query)

    async def heads(self, actors: Sequence[str]) -> dict[str, Head]:
        await self._interrupt()
        return await super().heads(actors)

    async def _interrupt(self) -> None:
        hook, self.before_read = self.before_read, None
        if hook is not None:
            await hook()


@pytest_asyncio.fixture
async def shards(tmp_path: Path) -> AsyncIterator[InterruptedJournals]:
    opened = InterruptedJournals(await SqliteShards.open(tmp_path / "shards", 1))
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def expired(shards: InterruptedJournals) -> AsyncIterator[ArchiveStage]:
    """A stage with an expired conversation that the next sweep archives."""
    stage = ArchiveStage(shards, MemoryBlobs())
    await stage.loop.ask(CONVERSATION_ID, new_conversation(CONVERSATION_ID))
    await stage.turn("turn 1")
    await stage.expire()
    stage.clock.now += HOUR
    yield stage
    await stage.loop.stop()


async def list_messages(conversations: Conversations) -> list[RowValue]:
    async with conversations.on_disk(CONVERSATION_ID):
        await conversations.open(CONVERSATION_ID)
        return await conversations.lookup.records.find(Query(table="messages", actor=CONVERSATION_ID))


async def list_events(conversations: Conversations) -> list[Event]:
    return await conversations.events(EventQuery(actor=CONVERSATION_ID))


@pytest.mark.parametrize("read", [list_messages, list_events])
async def test_a_record_is_not_archived_between_the_check_and_the_read(
    expired: ArchiveStage,
    shards: InterruptedJournals,
    read: Callable[[Conversations], Awaitable[Sequence[object]]],
) -> None:
    whole = await read(expired.conversations)
    assert len(whole) >= 2
    archived = []

    async def archive() -> None:
        archived.append(await expired.archiver.archive(CONVERSATION_ID))

    shards.before_read = archive
    assert (await read(expired.conversations))[: len(whole)] == whole
    assert archived == [False] and not expired.blobs.contents
    # Without a reader, the next sweep archives it.
    assert await expired.archiver.archive(CONVERSATION_ID)
    assert (await read(expired.conversations))[: len(whole)] == whole


async def test_a_read_that_begins_during_the_erasure_restores_the_record(
    expired: ArchiveStage, shards: InterruptedJournals
) -> None:
    erased = asyncio.Event()
    reads: list[asyncio.Task[list[RowValue]]] = []

    def begin_read() -> None:
        shards.before_read = erased.wait
        reads.append(asyncio.create_task(list_messages(expired.conversations)))

    shards.before_erasure = begin_read
    assert await expired.archiver.archive(CONVERSATION_ID)
    erased.set()
    (read,) = reads
    assert len(await read) == 2


async def test_a_run_that_is_erased_while_runs_are_listed_is_left_out(shards: InterruptedJournals) -> None:
    kept, erased = "run_0000000000000001", "run_0000000000000002"
    for run_id in (kept, erased):
        run = Run(id=run_id, workflow_ref="ref", workflow_id="flow", scope=Scope())
        await shards.of(run_id).commit([Commit(run_id, changes=[Put("runs", run_id, run)])])

    async def erase() -> None:
        await shards.of(erased).commit([Commit(erased, changes=[Erase(whole=True)])])

    async def flush(_: str) -> None:
        raise AssertionError("a list writes nothing")

    lookup = RunLookup(shards, shards, flush)

    async def erase_before_heads() -> None:
        shards.before_read = erase

    shards.before_read = erase_before_heads
    assert [view.run.id for view in await lookup.views(Query(table="runs"))] == [kept]
