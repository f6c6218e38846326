"""The registry of objects: an interrupted archiving leaves no object that no record knows."""

from __future__ import annotations

import pytest

from tests.actors.archive.archive_stage import ArchiveStage, archived, interrupted
from tests.actors.kit import CONVERSATION_ID, origin
from wonder_server.actors.archive.objects import KEPT_MS
from wonder_server.adapters.sqlite.shard.check import check_shard
from wonder_server.core.conversation.model.lifecycle_inputs import BeginDeletion, FinishDeletion
from wonder_server.core.conversation.model.values import Participant
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.ids import shard_of
from wonder_server.ports.archives import RegisteredObject
from wonder_server.ports.journal import StaleEpochError

pytestmark = pytest.mark.disk


def registration(key: str = "a" * 64, epoch: int = 0, at_ms: int = 2) -> RegisteredObject:
    return RegisteredObject(
        key=key, conversation_id=CONVERSATION_ID, archived_ms=1, registered_ms=at_ms, epoch=epoch
    )


@pytest.mark.parametrize("then", ["speak", "delete"])
async def test_the_next_sweep_removes_an_object_whose_archiving_can_no_longer_end(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    key = await interrupted(stage, monkeypatch)
    if then == "speak":
        await stage.lifecycle.join(CONVERSATION_ID, Participant(type="user", id="zoe"), origin())
    else:
        # The planner ends the deletion here, before the server removes objects.
        await stage.loop.ask(CONVERSATION_ID, BeginDeletion())
        await stage.loop.ask(CONVERSATION_ID, FinishDeletion())
    await stage.sweeper.sweep()
    assert key not in stage.blobs.contents


async def test_a_deletion_removes_the_object_of_an_interrupted_archiving(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await interrupted(stage, monkeypatch)
    await stage.lifecycle.delete(CONVERSATION_ID, version=0, origin=origin())
    assert not stage.blobs.contents and await stage.lines() == {}


async def test_a_deletion_ends_while_the_object_store_fails_and_a_sweep_removes_the_object(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await interrupted(stage, monkeypatch)

    async def fail(_: str) -> None:
        raise error(Reason.STORAGE_UNAVAILABLE, "Down.", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(stage.blobs, "delete", fail)
        await stage.lifecycle.delete(CONVERSATION_ID, version=0, origin=origin())
        await stage.sweeper.sweep()
    assert len(stage.blobs.contents) == 1 and await stage.lines() == {}
    await stage.sweeper.sweep()
    assert not stage.blobs.contents


async def test_a_registration_of_a_removed_object_stays_for_an_hour(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A former owner of the shard may write the object after its removal."""
    key = await interrupted(stage, monkeypatch)
    content = stage.blobs.contents[key]
    await stage.lifecycle.join(CONVERSATION_ID, Participant(type="user", id="zoe"), origin())
    await stage.sweeper.sweep()
    await stage.blobs.put(content)
    stage.clock.now += KEPT_MS - 1
    await stage.sweeper.sweep()
    assert not stage.blobs.contents and len(await stage.archives.registered()) == 1
    stage.clock.now += 1
    await stage.sweeper.sweep()
    assert await stage.archives.registered() == []


async def test_the_object_of_an_archived_conversation_stays(stage: ArchiveStage) -> None:
    key = await archived(stage)
    assert await stage.archives.registered() == []
    # The server stopped before it removed the registration.
    await stage.archives.register(registration(key))
    stage.clock.now += KEPT_MS
    await stage.sweeper.sweep()
    assert key in stage.blobs.contents and await stage.archives.registered() == []


async def test_an_object_whose_archiving_is_in_progress_stays(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node may be about to name it."""
    key = await interrupted(stage, monkeypatch)
    stage.clock.now += KEPT_MS
    await stage.archiver.remove_unnamed(CONVERSATION_ID)
    assert key in stage.blobs.contents and len(await stage.archives.registered()) == 1


async def test_a_sweep_leaves_the_objects_of_other_owners(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await interrupted(stage, monkeypatch)
    await stage.lifecycle.join(CONVERSATION_ID, Participant(type="user", id="zoe"), origin())
    stage.loop.lose(shard_of(CONVERSATION_ID))
    await stage.sweeper.sweep()
    assert key in stage.blobs.contents


async def test_registrations_are_kept_by_key_and_epoch(stage: ArchiveStage) -> None:
    archives, shard = stage.archives, shard_of(CONVERSATION_ID)
    first, later = registration(), registration(at_ms=3)
    await archives.register(first)
    await archives.register(later)
    assert await archives.registered(CONVERSATION_ID) == [later]
    await archives.unregister(first)
    assert await archives.registered() == [later], "it was replaced meanwhile"
    epoch = (await stage.shards.raise_epochs([shard]))[shard]
    with pytest.raises(StaleEpochError):
        await archives.register(registration(epoch=epoch - 1))
    await archives.register(registration(epoch=epoch))
    assert [each.epoch for each in await archives.registered()] == [0, epoch]
    await archives.unregister(later)
    assert [each.epoch for each in await archives.registered()] == [epoch]
    assert await archives.registered("conv_" + "0" * 26) == []


async def test_a_damaged_registration_removes_nothing_and_is_found_by_the_check(
    stage: ArchiveStage,
) -> None:
    key = await archived(stage)
    await stage.archives.register(registration("b" * 64))
    database = stage.shards.files[0].database
    await database.write(lambda c: c.execute("UPDATE archive_objects SET key = ?", (key,)))
    stage.clock.now += KEPT_MS
    await stage.sweeper.sweep()
    assert key in stage.blobs.contents and await stage.archives.registered() == []
    await stage.shards.close()
    [problem] = check_shard(database.path).problems
    assert key in str(problem)
    with pytest.raises(WonderError):
        await stage.archives.registered()
