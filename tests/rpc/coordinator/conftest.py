"""Fixtures of a CoordinatorService that uses the runs of a stage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.actors.run_kit import RunStage, open_stage
from tests.rpc.coordinator.coordinator_kit import SERVICE, TwoProjects
from tests.rpc.rpc_kit import serving
from tests.views import ForAll
from wonder.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from wonder_server.actors.archive.archiver import NullArchive
from wonder_server.rpc.coordinator.servicer import CoordinatorServicer, RunParts


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunStage]:
    async with open_stage(request.param, tmp_path) as stage:
        yield stage


@pytest_asyncio.fixture
async def stub(stage: RunStage) -> AsyncIterator[CoordinatorServiceStub]:
    async with serving(
        {SERVICE: CoordinatorServicer(ForAll(RunParts(stage.runs, TwoProjects(), NullArchive())))}
    ) as channel:
        yield CoordinatorServiceStub(channel)
