"""The servicers of the contract, by service name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from wonder_server.compose.backups import DataBackups
from wonder_server.compose.clients import Clients
from wonder_server.compose.runtime import EntryPoints, Runtime
from wonder_server.compose.services import ApplicationServices
from wonder_server.compose.stores import Stores, StoreViews
from wonder_server.ports.backups import Backups
from wonder_server.ports.clock import Clock
from wonder_server.rpc.backup.servicer import BackupServicer
from wonder_server.rpc.conversation.parts import ConversationParts
from wonder_server.rpc.conversation.servicer import ConversationServicer
from wonder_server.rpc.coordinator.servicer import CoordinatorServicer, RunParts
from wonder_server.rpc.executor.servicer import ExecutorServicer, LocalKinds, RequestLookups
from wonder_server.rpc.file.servicer import FileServicer
from wonder_server.rpc.library.parts import LibraryParts
from wonder_server.rpc.library.servicer import LibraryServicer
from wonder_server.rpc.memory.servicer import MemoryParts, MemoryServicer
from wonder_server.settings import Settings


@asynccontextmanager
async def open_servicers(
    settings: Settings,
    clock: Clock,
    stores: Stores,
    clients: Clients,
    services: ApplicationServices,
    runtime: Runtime,
) -> AsyncIterator[Mapping[str, object]]:
    """Yield the servicers by full service name. On exit, cancel the running executions."""
    parts = _Parts(services, runtime)
    executor = ExecutorServicer(
        services.executor,
        stores.per_scope(parts.lookups),
        clock=clock,
        workers=services.workers,
        local_kinds=LocalKinds(unavailable=clients.unavailable_actions),
    )
    try:
        yield {
            "wonder.v1.BackupService": BackupServicer(_backups(settings, stores, clients)),
            "wonder.v1.ConversationService": ConversationServicer(
                stores.per_scope(parts.conversations),
                services.repositories,
                attach_timeout_s=float(settings.attach_seconds),
            ),
            "wonder.v1.CoordinatorService": CoordinatorServicer(stores.per_scope(parts.runs)),
            "wonder.v1.ExecutorService": executor,
            "wonder.v1.FileService": FileServicer(
                services.files, message_timeout_s=float(settings.request_seconds)
            ),
            "wonder.v1.LibraryService": LibraryServicer(
                stores.per_scope(parts.library), services.repositories, services.project_removals
            ),
            "wonder.v1.MemoryService": MemoryServicer(stores.per_scope(parts.memory)),
        }
    finally:
        await executor.close()


def _backups(settings: Settings, stores: Stores, clients: Clients) -> Backups:
    internal = stores.internal
    return DataBackups(
        root=settings.backup_dir if internal.databases else None,
        data=settings.data_dir,
        databases=internal.databases,
        holds=[*internal.object_holds, *clients.git.holds],
        objects_elsewhere=not internal.object_holds,
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of each servicer for one access scope."""

    services: ApplicationServices
    runtime: Runtime

    def lookups(self, views: StoreViews) -> RequestLookups:
        library = self.services.library.within(views.scope)
        return RequestLookups(library, library, self._entry_points(views).conversations.lookup)

    def conversations(self, views: StoreViews) -> ConversationParts:
        entry = self._entry_points(views)
        return ConversationParts(
            entry.conversations,
            entry.lifecycle,
            entry.agent_calls,
            entry.previews,
            entry.forks,
            entry.runs.lookup,
            self.services.library.within(views.scope),
        )

    def runs(self, views: StoreViews) -> RunParts:
        entry = self._entry_points(views)
        return RunParts(entry.runs, self.services.library.within(views.scope), entry.archive, views.accounts)

    def library(self, views: StoreViews) -> LibraryParts:
        services = self.services
        return LibraryParts(
            services.library.within(views.scope),
            services.artifacts.within(views.scope),
            views.accounts,
            self.runtime.actors.failed_hooks,
        )

    def memory(self, views: StoreViews) -> MemoryParts:
        services = self.services
        scope = views.scope
        return MemoryParts(
            memory=services.memory.within(scope),
            names=services.library.within(scope),
            blocks=services.memory_blocks.within(scope),
        )

    def _entry_points(self, views: StoreViews) -> EntryPoints:
        return self.runtime.entry_points.within(views.scope)
