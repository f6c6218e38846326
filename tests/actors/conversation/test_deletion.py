"""Deletions of conversations: a repeated request gets the first answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.actors.conversation.test_conversations import Agents, ConversationStage, draft
from tests.actors.kit import TestJournal, origin, run_ready_tasks
from tests.actors.run_kit import RunStage
from tests.conformance.ports.journal_subjects import opened
from wonder_server.actors.access import ActorAccess
from wonder_server.actors.archive.archiver import NullArchive
from wonder_server.actors.conversation.conversations import Conversations
from wonder_server.actors.conversation.deletions import Deletions
from wonder_server.actors.conversation.lifecycle import ConversationLifecycle
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.idempotency import CompletedRequest
from wonder_server.core.ids import shard_of


class SlowJournal(TestJournal):
    """A journal whose lookups of requests return when the test allows it, with what they found before."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed: asyncio.Event | None = None

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None:
        found, allowed = await super().completed_request(scope, request_id), self.allowed
        if allowed is not None:
            await allowed.wait()
        return found


def lifecycle_of(stage: ConversationStage) -> ConversationLifecycle:
    shards = MemoryShards(stage.journal)
    access = ActorAccess(directory=stage.directory, journals=shards, records=shards, clock=stage.clock)
    return ConversationLifecycle(
        access=access,
        agents=Agents(),
        conversations=stage.conversations,
        deletions=Deletions(access, NullArchive()),
    )


async def test_a_deletion_that_is_sent_twice_at_once_succeeds_twice() -> None:
    journal = SlowJournal()
    stage = ConversationStage(journal)
    lifecycle = lifecycle_of(stage)
    conversation_id = (await stage.create_conversation()).id
    journal.allowed = allowed = asyncio.Event()
    deletion = lifecycle.delete(conversation_id, version=0, origin=origin("bye"))
    slow = asyncio.get_running_loop().create_task(deletion)
    await run_ready_tasks()
    journal.allowed = None
    second = asyncio.get_running_loop().create_task(
        lifecycle.delete(conversation_id, version=0, origin=origin("bye"))
    )
    await run_ready_tasks()
    allowed.set()
    await asyncio.gather(slow, second)
    assert conversation_id not in journal.actors


@pytest.mark.disk
async def test_a_creation_repeated_after_the_deletion_makes_no_second_conversation(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path, 2) as shards:
        access = RunStage(shards).access
        conversations = Conversations(access=access, agents=Agents())
        deletions = Deletions(access, NullArchive())
        lifecycle = ConversationLifecycle(
            access=access, agents=Agents(), conversations=conversations, deletions=deletions
        )
        created, _ = await conversations.creator.create(draft(external_ref="x"), origin("hello"))
        await lifecycle.delete(created.id, version=0, origin=origin())
        await refuses_repetition(conversations, created.id)
        await deletions.close()
    async with opened("sqlite", tmp_path, 2) as shards:
        conversations = Conversations(access=RunStage(shards).access, agents=Agents())
        await refuses_repetition(conversations, created.id)
        another, existed = await conversations.creator.create(draft(external_ref="x"), origin("again"))
        assert another.id != created.id and not existed


async def refuses_repetition(conversations: Conversations, conversation_id: str) -> None:
    with pytest.raises(WonderError) as refused:
        await conversations.creator.create(draft(external_ref="x"), origin("hello"))
    assert refused.value.fault.reason is Reason.CONVERSATION_NOT_FOUND
    assert refused.value.fault.field == "request_id"
    assert refused.value.fault.metadata["id"] == conversation_id
    assert "was deleted" in refused.value.fault.message
    with pytest.raises(WonderError) as reused:
        await conversations.creator.create(draft(title="other"), origin("hello"))
    assert reused.value.fault.reason is Reason.REQUEST_ID_REUSED


@pytest.mark.disk
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("files", [1, 4])
async def test_one_id_deletes_one_conversation_in_whichever_file_the_other_is(
    tmp_path: Path, files: int, at_once: bool
) -> None:
    async with opened("sqlite", tmp_path, files) as shards:
        access = RunStage(shards).access
        conversations = Conversations(access=access, agents=Agents())
        deletions = Deletions(access, NullArchive())
        lifecycle = ConversationLifecycle(
            access=access, agents=Agents(), conversations=conversations, deletions=deletions
        )
        found: dict[int, str] = {}
        same_file = ""
        while len(found) < files or not same_file:
            created = (await conversations.creator.create(draft(), origin()))[0].id
            same_file = same_file or (created if shard_of(created) % files in found else "")
            found.setdefault(shard_of(created) % files, created)
        first, *others = *found.values(), same_file
        requests = [lifecycle.delete(each, version=0, origin=origin("bye")) for each in (first, *others)]
        if at_once:
            answers = await asyncio.gather(*requests, return_exceptions=True)
        else:
            answers = [(await asyncio.gather(each, return_exceptions=True))[0] for each in requests]
        assert answers[0] is None
        for other, refused in zip(others, answers[1:], strict=True):
            assert isinstance(refused, WonderError) and refused.fault.reason is Reason.REQUEST_ID_REUSED
            assert (await conversations.lookup.get(other)).id == other
        # An anonymous caller's id is another than that of a token.
        await lifecycle.delete(others[0], version=0, origin=origin("bye", "ann"))
        await deletions.close()
