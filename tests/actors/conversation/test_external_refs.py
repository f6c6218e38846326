"""External references that an update takes: one owner gives them away, one at a time."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.actors.conversation.test_conversations import Agents, ConversationStage, draft, send_request
from tests.actors.kit import origin, run_ready_tasks
from wonder_server.actors.access import ActorAccess
from wonder_server.actors.archive.archiver import NullArchive
from wonder_server.actors.conversation.deletions import Deletions
from wonder_server.actors.conversation.lifecycle import ConversationLifecycle
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.core.conversation.model.lifecycle_inputs import Update
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.ids import shard_of
from wonder_server.ports.journal import reference_home


class ReferenceStage(ConversationStage):
    """A stage with the entry point that updates conversations."""

    def __init__(self) -> None:
        super().__init__()
        shards = MemoryShards(self.journal)
        access = ActorAccess(directory=self.directory, journals=shards, records=shards, clock=self.clock)
        self.lifecycle = ConversationLifecycle(
            access=access,
            agents=Agents(),
            conversations=self.conversations,
            deletions=Deletions(access, NullArchive()),
        )

    async def take(self, conversation_id: str, reference: str, request_id: str = "") -> str:
        change = Update(external_ref=reference)
        return (await self.lifecycle.update(conversation_id, change, origin(request_id))).external_ref


def elsewhere(project_id: str, shard: int) -> str:
    """Return a reference whose home is another shard."""
    names = (f"ref-{number}" for number in range(100))
    return next(name for name in names if shard_of(reference_home(project_id, name)) != shard)


async def test_only_the_owner_of_its_home_gives_a_reference_away() -> None:
    stage = ReferenceStage()
    value = await stage.create_conversation()
    reference = elsewhere(value.project_id, shard_of(value.id))
    stage.directory.lost(shard_of(reference_home(value.project_id, reference)))
    for _ in range(2):
        with pytest.raises(WonderError) as refused:
            await stage.take(value.id, reference, "again")
        assert refused.value.fault.reason is Reason.OWNER_MOVED
    assert (await stage.conversations.lookup.get(value.id)).external_ref == ""
    # Fields without a home of their own still change.
    titled = await stage.lifecycle.update(value.id, Update(title="New"), origin())
    assert titled.title == "New"


async def test_a_reference_is_taken_once_and_a_repeated_request_finds_its_answer() -> None:
    stage = ReferenceStage()
    one, two = await stage.create_conversation(), await stage.create_conversation()
    reference = elsewhere(one.project_id, shard_of(one.id))
    assert await stage.take(one.id, reference, "r1") == reference
    assert await stage.take(one.id, reference, "r1") == reference
    with pytest.raises(WonderError) as refused:
        await stage.take(two.id, reference)
    assert refused.value.fault.reason is Reason.ALREADY_EXISTS
    assert refused.value.fault.metadata["id"] == one.id
    assert await stage.take(one.id, "") == ""
    assert await stage.take(two.id, reference) == reference


async def test_the_lock_of_a_reference_covers_the_commit_of_a_cancelled_update() -> None:
    """A store of several files could not refuse the creation: it would check another file."""
    stage = ReferenceStage()
    value = await stage.create_conversation()
    reference = elsewhere(value.project_id, shard_of(value.id))
    stage.journal.hold()
    update = asyncio.ensure_future(stage.take(value.id, reference))
    await run_ready_tasks()
    assert stage.journal.held == 1
    update.cancel()
    creation = asyncio.ensure_future(
        stage.conversations.creator.create(draft(external_ref=reference), origin())
    )
    await run_ready_tasks()
    assert stage.journal.held == 1, "the creation waits for the update"
    stage.journal.release()
    with contextlib.suppress(asyncio.CancelledError):
        await update
    assert update.cancelled()
    with pytest.raises(WonderError) as refused:
        await creation
    assert refused.value.fault.metadata["id"] == value.id


async def test_an_expired_conversation_gives_its_reference_up() -> None:
    stage = ReferenceStage()
    creator = stage.conversations.creator
    soon = stage.clock.now_ms() + 1000
    old, _ = await creator.create(draft(external_ref="ref", expire_ms=soon), origin())
    assert (await creator.create(draft(external_ref="ref"), origin(), return_existing=True)) == (old, True)
    stage.clock.now += 1000
    new, existed = await creator.create(draft(external_ref="ref"), origin(), return_existing=True)
    assert not existed and new.id != old.id
    old = await stage.conversations.lookup.get(old.id)
    assert (old.external_ref, old.former_external_ref, old.version) == ("", "ref", 2)
    assert old.updated_by == origin().principal.text
    with pytest.raises(WonderError) as refused:
        await creator.create(draft(external_ref="ref"), origin())
    assert refused.value.fault.metadata["id"] == new.id


async def test_an_expired_conversation_with_an_active_turn_keeps_its_reference() -> None:
    stage = ReferenceStage()
    value = await stage.create_conversation(external_ref="ref", expire_ms=stage.clock.now_ms() + 1000)
    sent = await stage.conversations.send(value.id, send_request())
    stage.clock.now += 5000
    creator = stage.conversations.creator
    found, existed = await creator.create(draft(external_ref="ref"), origin(), return_existing=True)
    assert existed and found.id == value.id
    await stage.conversations.cancel(value.id, sent.turn_id, origin())
    found, existed = await creator.create(draft(external_ref="ref"), origin(), return_existing=True)
    assert not existed and found.id != value.id
