"""Fixtures of the actors' tests: no log output, and runs over a journal in memory and over files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from tests.actors.run_kit import RunStage, open_stage
from tests.conformance.ports.journal_subjects import JOURNALS


@pytest.fixture(autouse=True)
def _without_logs() -> Iterator[None]:
    with capture_logs():
        yield


@pytest_asyncio.fixture(params=JOURNALS)
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[RunStage]:
    folder = request.getfixturevalue("tmp_path") if request.param == "sqlite" else None
    async with open_stage(request.param, folder) as stage:
        yield stage
