"""Fixtures of catalog tests: the pinned agent of the standard library."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest_asyncio

import wonder_server
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.adapters.models.defaults import OFFLINE, resolve_profile
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.services.actions import ACTIONS
from wonder_server.services.catalog.library import Library, ModelRules

STANDARD = Path(wonder_server.__file__).parent / "std"


class FixedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


@pytest_asyncio.fixture
async def assistant() -> PinnedAgent:
    library = Library(
        MemoryCatalog(),
        FixedClock(),
        actions={name: kind.input_schema for name, kind in ACTIONS.items()},
        models=ModelRules(resolve_profile=partial(resolve_profile, default=OFFLINE)),
    )
    await library.ensure_standard(STANDARD)
    return await library.pin_agent("assistant")
