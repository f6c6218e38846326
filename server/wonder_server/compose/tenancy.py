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
from wonder_server.core.identity import server_in
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.rpc.identity.servicer import IdentityServicer
from wonder_server.services.tenancy.administration import Administration, ProjectLookup

_log = logger("server")

USES_INTERVAL_S: Final = 60.0
"""Seconds between two writes of the last uses of keys."""


@asynccontextmanager
async def open_tenancy(
    stores: Stores, services: ApplicationServices, clock: Clock
) -> AsyncIterator[IdentityServicer]:
    """Yield the servicer, and store the last uses of keys every minute and at the end."""
    directory, store = stores.principals, stores.internal.tenancy

    def projects_of(tenant_id: str) -> ProjectLookup:
        return services.library.of(server_in(tenant_id)).projects

    async def furnish(tenant_id: str) -> None:
        # The access scope of a tenant has its projects: the new one is in that of the next step.
        await services.library.of(server_in(tenant_id)).ensure_default_project()
        await services.library.of(server_in(tenant_id)).ensure_default_agent()

    administration = Administration(store, directory, projects_of, furnish, clock)
    for tenant_id in directory.tenants:
        await furnish(tenant_id)

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
        yield IdentityServicer(administration, directory, store, store, projects_of)
    await store_uses()
