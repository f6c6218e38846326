"""Runs over a journal in memory, and once more over files."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.actors.run_kit import RunStage, open_stage
from tests.conformance.ports.journal_subjects import JOURNALS


@pytest_asyncio.fixture(params=JOURNALS)
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[RunStage]:
    folder = request.getfixturevalue("tmp_path") if request.param == "sqlite" else None
    async with open_stage(request.param, folder) as stage:
        yield stage
