"""Services: the stateless use cases, over the stores and clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wonder_server.actors.directory import Directory
from wonder_server.actors.usage.usage_reporter import UsageReporter
from wonder_server.compose.clients import Clients
from wonder_server.compose.platform import Platform
from wonder_server.compose.stores import Stores
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.ports.vectors import Vectors
from wonder_server.services.actions import (
    ACTIONS,
    ContentAccess,
    ExecutionAccess,
    ModelAccess,
    NetworkAccess,
)
from wonder_server.services.actions import Services as ActionServices
from wonder_server.services.catalog.library import DeletionHooks, Library, ModelRules
from wonder_server.services.content.artifacts import Artifacts
from wonder_server.services.content.checkout import RepositoryAccess
from wonder_server.services.content.repositories import RepositoryService
from wonder_server.services.memory.garbage_collection import MemoryGarbageCollector
from wonder_server.services.memory.large_contents import LargeContents
from wonder_server.services.memory.operations import MemoryOperations
from wonder_server.services.memory.reembedding import Reembedder
from wonder_server.services.memory.semantic_index import SemanticIndex
from wonder_server.services.memory.service import MemoryService
from wonder_server.services.tasks.executor import Executor
from wonder_server.services.workers import WorkerPool
from wonder_server.settings import Settings

_log = logger("server")

STANDARD_LIBRARY: Final = Path(__file__).parents[1] / "std"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationServices:
    """The use cases of one server."""

    library: Library
    artifacts: Artifacts
    repositories: RepositoryService
    memory: MemoryService
    memory_operations: MemoryOperations
    garbage_collector: MemoryGarbageCollector
    workers: WorkerPool
    executor: Executor


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemoryServices:
    memory: MemoryService
    garbage_collector: MemoryGarbageCollector


@asynccontextmanager
async def open_services(
    settings: Settings, platform: Platform, stores: Stores, clients: Clients, directory: Directory
) -> AsyncIterator[ApplicationServices]:
    """Build the use cases and update the standard library. On exit, end workers and background work.

    Errors: STORAGE_UNAVAILABLE, and the errors of a standard library that cannot be applied.
    """
    clock = platform.clock
    async with AsyncExitStack() as stack:
        vectors = await stack.enter_async_context(
            platform.open_vectors(settings, stores.memory.vectors, clients.embedder)
        )
        memory = await stack.enter_async_context(_open_memory(stores, clients, vectors, clock))
        library = _library(settings, stores, clients, memory.garbage_collector, clock)
        await _ensure_standard(library, stores)
        repositories = RepositoryService(
            RepositoryAccess(
                repositories=clients.git.repositories,
                origins=clients.git.origins,
                workspaces=clients.git.workspaces,
                projects=library.projects,
            ),
            release=clients.sandbox.release,
        )
        await repositories.worktrees.start()
        artifacts = Artifacts(clients.git.artifacts, library.project_id)
        workers = WorkerPool(clock, lease_ms=settings.worker_lease_seconds * 1_000, reserved=ACTIONS)
        stack.callback(workers.close)
        executor = Executor(
            ActionServices(
                models=ModelAccess(
                    model=clients.model,
                    default_profile=clients.providers.default,
                    prices=clients.prices,
                    usage_reporter=UsageReporter(directory),
                ),
                memory=memory.memory,
                network=NetworkAccess(web=clients.web, mcp=clients.mcp, policies=library),
                clock=clock,
                content=ContentAccess(artifacts=artifacts, repositories=repositories),
                execution=ExecutionAccess(
                    sandbox=clients.sandbox, worktrees=repositories.worktrees, workers=workers
                ),
            ),
            monotonic_s=asyncio.get_running_loop().time,
        )
        yield ApplicationServices(
            library=library,
            artifacts=artifacts,
            repositories=repositories,
            memory=memory.memory,
            memory_operations=MemoryOperations(memory.memory, clock),
            garbage_collector=memory.garbage_collector,
            workers=workers,
            executor=executor,
        )


@asynccontextmanager
async def _open_memory(
    stores: Stores, clients: Clients, vectors: Vectors, clock: Clock
) -> AsyncIterator[_MemoryServices]:
    """Build what agents remember with, and compute missing vectors in the background."""
    store = stores.memory
    large_contents = LargeContents(stores.blobs, store.maintenance)
    reembedder = Reembedder(
        store=store.reembedding,
        large_contents=large_contents,
        vectors=vectors,
        embedder=clients.embedder,
    )
    garbage_collector = MemoryGarbageCollector(
        maintenance=store.maintenance,
        index_residue=store.residue,
        large_contents=large_contents,
        vectors=vectors,
        agents=stores.catalog,
    )
    memory = MemoryService(
        memories=store.memories,
        large_contents=large_contents,
        index=SemanticIndex(
            vectors=vectors,
            source=store.vectors,
            embedder=clients.embedder,
            on_missing_vectors=reembedder.wake,
        ),
        clock=clock,
    )
    store.watch_lost_vectors(reembedder.wake)
    reembedder.start()
    try:
        yield _MemoryServices(memory=memory, garbage_collector=garbage_collector)
    finally:
        await garbage_collector.stop()
        await reembedder.close()


def _library(
    settings: Settings,
    stores: Stores,
    clients: Clients,
    garbage_collector: MemoryGarbageCollector,
    clock: Clock,
) -> Library:
    return Library(
        stores.catalog,
        clock,
        actions={name: kind.input_schema for name, kind in ACTIONS.items()},
        models=ModelRules(
            resolve_profile=clients.providers.resolve,
            add_context_window=clients.prices.with_context_window,
            providers=settings.provider_names,
        ),
        deletion_hooks=DeletionHooks(
            before_agent=[garbage_collector.before_delete], after_agent=[garbage_collector.after_delete]
        ),
    )


async def _ensure_standard(library: Library, stores: Stores) -> None:
    """Update the standard library. While the disk is full, log the failure and keep the old one."""
    try:
        await library.ensure_standard(STANDARD_LIBRARY)
    except WonderError as problem:
        if stores.disk_full_error() is None:
            raise
        _log.warning("standard_library_not_updated", problem=str(problem))
