"""Fixtures of worker tests: a clock that moves by hand and a pool on it."""

from __future__ import annotations

import pytest

from tests.services.workers.workers_kit import (
    LEASE_S,
    Time,
)
from wonder_server.services.workers import (
    WorkerPool,
)


@pytest.fixture
async def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


@pytest.fixture
async def pool(time: Time) -> WorkerPool:
    return WorkerPool(time, lease_ms=int(LEASE_S * 1000))
