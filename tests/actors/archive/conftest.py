"""Fixtures of the archive's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.actors.archive.archive_stage import ArchiveStage
from tests.actors.kit import CONVERSATION_ID
from tests.core.conversation.conversation_kit import new_conversation
from tests.sqlite_journals import SqliteJournals
from wonder_server.adapters.in_memory.blobs import MemoryBlobs


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[ArchiveStage]:
    shards = await SqliteJournals.open(tmp_path / "shards", 1)
    stage = ArchiveStage(shards, MemoryBlobs())
    await stage.loop.ask(CONVERSATION_ID, new_conversation(CONVERSATION_ID))
    yield stage
    await stage.loop.stop()
    await shards.close()
