"""A whole server behind its contract, opened and closed as one context."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from wonder_server.actors.directory import Directory
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.compose.background import open_background
from wonder_server.compose.clients import open_egress
from wonder_server.compose.platform import Platform
from wonder_server.compose.rpc import open_servicers
from wonder_server.compose.runtime import Runtime, Sweepers, open_runtime, open_sweepers
from wonder_server.compose.services import ApplicationServices, open_services
from wonder_server.compose.stores import Stores
from wonder_server.compose.tenancy import open_tenancy
from wonder_server.core import ids
from wonder_server.core.errors import WonderError
from wonder_server.core.identity import SERVER
from wonder_server.rpc.server.server import CallNumbers
from wonder_server.services.content.worktree_recovery import remove_orphaned_worktrees
from wonder_server.services.tenancy.directory import PrincipalDirectory
from wonder_server.services.tenancy.logins import Logins
from wonder_server.services.tenancy.visibility import Visibility
from wonder_server.services.workers import WorkerPools
from wonder_server.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A started server. `open_application` makes it."""

    settings: Settings
    servicers: Mapping[str, object]
    """Servicers by full service name."""
    stores: Stores
    services: ApplicationServices
    runtime: Runtime
    sweepers: Sweepers
    logins: Logins | None
    """Callers with tokens of issuers; None if the settings name no issuer."""

    @property
    def visibility(self) -> Visibility:
        """The rule about what a refused caller may know."""
        return Visibility(self.stores)

    @property
    def principals(self) -> PrincipalDirectory:
        """The stored principals, with their keys."""
        return self.stores.principals

    def disk_full_error(self) -> WonderError | None:
        """Return STORAGE_UNAVAILABLE while the disk is full, else None."""
        return self.stores.internal.disk_full_error()

    @asynccontextmanager
    async def metrics(self, calls: Callable[[], CallNumbers]) -> AsyncIterator[None]:
        """Serve metrics until exit, if the settings name an address. ``calls`` returns those of the server in
        front. Raises OSError if the address or a file cannot be used."""
        if not self.settings.metrics_address:
            yield
            return
        from wonder_server.compose.telemetry.metrics import Metrics, open_metrics

        statistics = self.stores.internal.statistics
        metrics = Metrics(self.runtime.actors, self.services.workers, statistics, calls)
        async with open_metrics(self.settings, metrics):
            yield

    async def drain(self, grace_seconds: float) -> None:
        """Notify readers and workers, then stop the work. Pending operations stay in the outbox.

        Workers have half of the time to finish, the rest of the server the other half. Call it before the
        context ends. Raises TimeoutError.
        """
        actors = self.runtime.actors
        actors.streams.drain()
        await _drain_workers(self.services.workers, grace_seconds / 2)
        async with asyncio.timeout(grace_seconds / 2):
            await self.sweepers.stop()
            await actors.handlers.stop()
            await actors.loops.stop()


@asynccontextmanager
async def open_application(
    settings: Settings, platform: Platform | None = None
) -> AsyncIterator[Application]:
    """Open stores, clients and services, resume unfinished actors, and yield the application.

    Everything is closed in reverse order on exit, and also if the start fails. Without a ``platform``, the
    application uses that of a server in production.
    """
    platform = platform or Platform()
    clock = platform.clock
    platform.tune_interpreter()
    async with AsyncExitStack() as stack:
        stack.enter_context(ids.entropy_from(platform.entropy))
        egress = await stack.enter_async_context(open_egress())
        stores = await stack.enter_async_context(platform.open_stores(settings, egress, platform.failpoints))
        clients = await stack.enter_async_context(
            platform.open_clients(settings, egress, platform.new_executor)
        )
        streams = StreamHub(settings.max_stream_backlog_events, settings.max_stream_backlog_bytes)
        directory = Directory(streams, stores.of(SERVER).records)
        services = await stack.enter_async_context(
            open_services(settings, platform, stores, clients, directory)
        )
        runtime = await stack.enter_async_context(
            open_runtime(settings, platform, stores, clients, services, directory)
        )
        tenancy = await stack.enter_async_context(
            open_tenancy(settings, stores, services, clients.web, clock)
        )
        servicers = await stack.enter_async_context(
            open_servicers(settings, clock, stores, clients, services, runtime)
        )
        background = await stack.enter_async_context(open_background())
        background.start(
            "leftovers", remove_orphaned_worktrees(services.repositories.worktrees, stores.of(SERVER).records)
        )
        background.start("removed projects", services.project_removals.finish())
        background.start("resumption", directory.resume(runtime.actors.handlers))
        services.garbage_collector.start()
        background.start("preload", asyncio.to_thread(clients.preload))
        sweepers = await stack.enter_async_context(open_sweepers(settings, clock, stores, services, runtime))
        yield Application(
            settings=settings,
            servicers={**servicers, "wonder.v1.IdentityService": tenancy.servicer},
            stores=stores,
            services=services,
            runtime=runtime,
            sweepers=sweepers,
            logins=tenancy.logins,
        )


async def _drain_workers(workers: WorkerPools, seconds: float) -> None:
    """Wait until the workers have finished their assignments: some may not be executed again."""
    workers.drain(int(seconds * 1_000))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await workers.wait_until_idle()
