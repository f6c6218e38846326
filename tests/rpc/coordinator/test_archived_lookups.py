"""Lookups of archived runs: they need the conversation_id; an id alone is not enough."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from grpc import aio

from tests.actors.run_kit import open_stage
from tests.rpc.coordinator.coordinator_kit import (
    ABSENT,
    CONVERSATION,
    SERVICE,
    TURN,
    TwoProjects,
    get,
    listed,
    start,
)
from tests.rpc.rpc_kit import serving
from tests.views import ForAll
from wonder.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from wonder_server.rpc.coordinator.servicer import CoordinatorServicer, RunParts


class EmptyArchive:
    """An empty archive. ``asked`` records the conversations of each lookup."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ensure_restored(self, conversation_id: str) -> None:
        self.asked.append(conversation_id)

    @asynccontextmanager
    async def on_disk(self, conversation_id: str) -> AsyncIterator[None]:
        if conversation_id:
            await self.ensure_restored(conversation_id)
        yield

    async def discard_archived(self, conversation_id: str) -> None:
        raise AssertionError(conversation_id)

    async def remove_unnamed(self, conversation_id: str) -> None:
        raise AssertionError(conversation_id)


async def test_a_request_with_the_conversation_id_restores_an_archived_conversation(
    tmp_path: Path,
) -> None:
    archive = EmptyArchive()
    async with (
        open_stage("memory", tmp_path) as stage,
        serving(
            {SERVICE: CoordinatorServicer(ForAll(RunParts(stage.runs, TwoProjects(), archive)))}
        ) as channel,
    ):
        stub = CoordinatorServiceStub(channel)
        with pytest.raises(aio.AioRpcError, match=r"is archived\. Call ListRuns with its conversation_id"):
            await get(stub, ABSENT)
        with pytest.raises(aio.AioRpcError, match=r"There is no run .x."):
            await get(stub, "x")
        with pytest.raises(aio.AioRpcError, match="Set conversation_id too"):
            await start(stub, context={"turn_id": TURN})
        assert await listed(stub) == [] and not archive.asked
        with pytest.raises(aio.AioRpcError, match=r"There is no turn .* in this conversation"):
            await start(stub, context={"turn_id": TURN, "conversation_id": CONVERSATION})
        assert await listed(stub, conversation_id=CONVERSATION) == []
        assert archive.asked == [CONVERSATION, CONVERSATION]
