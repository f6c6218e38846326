"""The administration of principals, keys and role bindings, over the stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from wonder_server.adapters.oidc.verifier import JwtVerifier
from wonder_server.compose.background import open_background
from wonder_server.compose.services import ApplicationServices
from wonder_server.compose.stores import Stores
from wonder_server.core.errors import WonderError
from wonder_server.core.identity import SERVER, server_in
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.ports.web import Web
from wonder_server.rpc.identity.servicer import IdentityServicer
from wonder_server.services.tenancy.administration import Administration, ProjectLookup
from wonder_server.services.tenancy.changes import AccessChanges
from wonder_server.services.tenancy.logins import Logins
from wonder_server.settings import Settings

_log = logger("server")

USES_INTERVAL_S: Final = 60.0
"""Seconds between two writes of the last uses of keys."""


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The servicer of the IdentityService, and callers with tokens of issuers, if the settings name one."""

    servicer: IdentityServicer
    logins: Logins | None


@asynccontextmanager
async def open_tenancy(
    settings: Settings, stores: Stores, services: ApplicationServices, web: Web, clock: Clock
) -> AsyncIterator[Tenancy]:
    """Yield the servicer and the logins, and store the last uses of keys every minute and at the end."""
    directory, store = stores.principals, stores.internal.tenancy

    def projects_of(tenant_id: str) -> ProjectLookup:
        if not directory.tenants:
            return services.library.of(SERVER).projects
        return services.library.within(stores.tenants.scope_of(tenant_id)).projects

    async def furnish(tenant_id: str) -> None:
        # The access scope of a tenant has its projects: the new one is in that of the next step.
        await services.library.of(server_in(tenant_id)).ensure_default_project()
        await services.library.of(server_in(tenant_id)).ensure_default_agent()

    changes = AccessChanges(store, directory, clock)
    administration = Administration(changes, directory, projects_of, furnish)
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

    verifier = JwtVerifier(settings.issuers, web, asyncio.get_running_loop().time)
    logins = Logins(verifier, directory, changes, administration.tenant)
    async with open_background() as background:
        background.start("key uses", store_uses_repeatedly())
        try:
            yield Tenancy(
                servicer=IdentityServicer(administration, directory, store, store, projects_of),
                logins=logins if settings.issuers else None,
            )
        finally:
            await verifier.close()
    await store_uses()
