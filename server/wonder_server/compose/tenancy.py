"""The administration of principals, keys and role bindings, over the stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from wonder_server.compose.background import open_background
from wonder_server.compose.services import ApplicationServices
from wonder_server.compose.stores import Stores
from wonder_server.core.errors import WonderError
from wonder_server.core.identity import SERVER
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.rpc.identity.servicer import IdentityServicer
from wonder_server.services.tenancy.administration import Administration

_log = logger("server")

USES_INTERVAL_S: Final = 60.0
"""Seconds between two writes of the last uses of keys."""


@asynccontextmanager
async def open_tenancy(
    stores: Stores, services: ApplicationServices, clock: Clock
) -> AsyncIterator[IdentityServicer]:
    """Yield the servicer, and store the last uses of keys every minute and at the end."""
    directory, store = stores.principals, stores.internal.tenancy
    projects = stores.per_scope(lambda views: services.library.within(views.scope).projects)
    whole = services.library.of(SERVER).projects
    administration = Administration(store, directory, whole, clock)

    async def store_uses() -> None:
        uses = directory.take_uses()
        if uses:
            try:
                await store.touch(uses)
            except WonderError as problem:
                _log.warning("key_uses_not_stored", problem=str(problem))

    async def store_uses_repeatedly() -> None:
        while True:
            await asyncio.sleep(USES_INTERVAL_S)
            await store_uses()

    background = open_background()
    async with background as tasks:
        tasks.start("key uses", store_uses_repeatedly())
        yield IdentityServicer(administration, directory, store, store, projects)
    await store_uses()
