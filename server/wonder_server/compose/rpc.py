"""The servicers of the contract, by service name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from wonder_server.compose.clients import Clients
from wonder_server.compose.runtime import Runtime
from wonder_server.compose.services import ApplicationServices
from wonder_server.compose.stores import Stores
from wonder_server.ports.clock import Clock
from wonder_server.rpc.conversation.servicer import ConversationParts, ConversationServicer
from wonder_server.rpc.coordinator.servicer import CoordinatorServicer
from wonder_server.rpc.executor.servicer import ExecutorServicer, LocalKinds, RequestLookups
from wonder_server.rpc.library.servicer import LibraryServicer
from wonder_server.rpc.memory.servicer import MemoryServicer
from wonder_server.rpc.server.authorization import ScopeGrants
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
    grants = ScopeGrants.from_settings(settings)
    library = services.library
    executor = ExecutorServicer(
        services.executor,
        RequestLookups(library, library, runtime.conversations.lookup),
        clock=clock,
        workers=services.workers,
        local_kinds=LocalKinds(unavailable=clients.unavailable_actions),
        grants=grants,
    )
    try:
        yield {
            "wonder.v1.ConversationService": ConversationServicer(
                ConversationParts(
                    runtime.conversations,
                    runtime.lifecycle,
                    runtime.agent_calls,
                    runtime.previews,
                    runtime.runs.lookup,
                ),
                library,
                services.repositories,
                grants=grants,
                attach_timeout_s=float(settings.attach_seconds),
            ),
            "wonder.v1.CoordinatorService": CoordinatorServicer(
                runtime.runs, library, runtime.actors.archiver, grants
            ),
            "wonder.v1.ExecutorService": executor,
            "wonder.v1.LibraryService": LibraryServicer(
                library, services.artifacts, stores.accounts, services.repositories, grants
            ),
            "wonder.v1.MemoryService": MemoryServicer(services.memory, library, grants),
        }
    finally:
        await executor.close()
