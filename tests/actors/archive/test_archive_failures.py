"""Lost, damaged and unreachable archive objects, and interrupted restores."""

from __future__ import annotations

import zlib

import pytest

from tests.actors.archive.archive_stage import HOUR, ArchiveStage, archived
from tests.actors.kit import CONVERSATION_ID
from wonder_server.actors.archive.archiver import unpack
from wonder_server.actors.runs.replay import replay
from wonder_server.core.actor.queries import ActorQuery, Forget
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.errors import Reason, WonderError, error

pytestmark = pytest.mark.disk


@pytest.mark.parametrize("loss", ["gone", "damaged"])
async def test_a_lost_or_damaged_object_is_reported_and_nothing_changes(
    stage: ArchiveStage, loss: str
) -> None:
    key = await archived(stage)
    whole = stage.blobs.contents[key]
    if loss == "gone":
        del stage.blobs.contents[key]
    else:
        stage.blobs.contents[key] = whole[:-1] + b"x"
    for _ in range(2):
        with pytest.raises(WonderError) as problem:
            await stage.conversations.open(CONVERSATION_ID)
        assert problem.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    # The conversation is readable, and is restored once its object is back.
    assert (await stage.conversations.lookup.get(CONVERSATION_ID)).archive_key == key
    stage.blobs.contents[key] = whole
    assert (await stage.conversations.open(CONVERSATION_ID)).turn_count == 1


def pack_lines(*lines: str) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress("\n".join(lines).encode() + b"\n") + packer.flush()


HEADER = '{"format": "wonder-conversation", "version": 1, "id": "c", "runs": []}'


@pytest.mark.parametrize(
    "content",
    [
        b"", b"no gzip", pack_lines(""), pack_lines("{}"), pack_lines(HEADER),
        pack_lines(HEADER, '{"lines": 1}'),
        pack_lines(HEADER, '["turns", {"id": "x"}]', '{"lines": 2}'), pack_lines("[]", '{"lines": 0}'),
        pack_lines('{"format": "other", "version": 1}', '{"lines": 0}'),
        pack_lines(HEADER, '{"lines": 0}')[:-9],
        pack_lines(HEADER.replace('"version": 1', '"version": 99'), '{"lines": 0}'),
    ],
)  # fmt: skip
def test_an_incomplete_archive_is_rejected(content: bytes) -> None:
    with pytest.raises(WonderError) as problem:
        list(unpack(content, version=3))
    assert problem.value.fault.reason is Reason.STORAGE_UNAVAILABLE


def test_a_complete_archive_is_read() -> None:
    whole = pack_lines(HEADER, '["turns", {"id": "x"}]', '{"lines": 1}')
    assert list(unpack(whole, version=1)) == [("turns", {"id": "x"})]


async def test_a_failing_object_store_changes_nothing(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.turn("turn 1")
    await stage.expire()
    stage.clock.now += HOUR

    async def full(_: bytes) -> str:
        raise error(Reason.STORAGE_UNAVAILABLE, "Full.", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(stage.blobs, "put", full)
        assert await stage.sweeper.sweep() == 0
    assert len((await stage.lines())["turns"]) == 1
    # The next sweep archives it.
    assert await stage.sweeper.sweep() == 1
    assert (await stage.conversations.open(CONVERSATION_ID)).turn_count == 1


async def test_an_interrupted_restore_is_repeated(
    stage: ArchiveStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crash after the rows are restored and before the conversation is active again."""
    key = await archived(stage)

    class Crash(Exception):
        pass

    def crash(actor_id: str, query: ActorQuery) -> object:
        if isinstance(query, Forget):
            raise Crash
        return answer(actor_id, query)

    answer = stage.loop.query
    monkeypatch.setattr(stage.loop, "query", crash)
    with pytest.raises(Crash):
        await stage.conversations.open(CONVERSATION_ID)
    assert key in stage.blobs.contents
    stage.restart()
    assert await stage.sweeper.sweep() == 0
    assert (await stage.conversations.open(CONVERSATION_ID)).turn_count == 1
    assert not stage.blobs.contents
    entries = await stage.shards.of(CONVERSATION_ID).entries(CONVERSATION_ID, 0, 1000)
    assert replay(CONVERSATION, entries).difference is None
