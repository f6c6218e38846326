"""Services: the stateless use cases, over the stores and clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from wonder_server.actors.directory import Directory
from wonder_server.actors.usage.budget_enforcement import Budgets
from wonder_server.actors.usage.usage_reporter import UsageReporter
from wonder_server.compose.background import open_background
from wonder_server.compose.clients import Clients
from wonder_server.compose.platform import Platform
from wonder_server.compose.stores import Stores, StoreViews
from wonder_server.core.errors import WonderError
from wonder_server.core.identity import SERVER
from wonder_server.core.tenancy.resources import DEFAULT_TENANT
from wonder_server.logs import logger
from wonder_server.ports.access import ALL_RECORDS, PerScope
from wonder_server.ports.clock import Clock
from wonder_server.ports.placement import owns_key
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
from wonder_server.services.catalog.tool_sources import ToolSources
from wonder_server.services.content.artifacts import Artifacts
from wonder_server.services.content.checkout import RepositoryAccess
from wonder_server.services.content.files import FileContents, FileLimits, collect_forever
from wonder_server.services.content.project_removals import ProjectContent, ProjectRemovals
from wonder_server.services.content.removed_commits import RemovedCommits
from wonder_server.services.content.repositories import RepositoryService
from wonder_server.services.content.request_files import FilledRequests
from wonder_server.services.history.agent_history import AgentHistory
from wonder_server.services.memory.blocks import MemoryBlockService
from wonder_server.services.memory.garbage_collection import MemoryGarbageCollector
from wonder_server.services.memory.large_contents import LargeContents
from wonder_server.services.memory.operations import MemoryOperations
from wonder_server.services.memory.reembedding import Reembedder
from wonder_server.services.memory.semantic_index import SemanticIndex
from wonder_server.services.memory.service import MemoryService
from wonder_server.services.object_reservations import ObjectReservations
from wonder_server.services.tasks.executor import Executor
from wonder_server.services.workers import WorkerPool, WorkerPools
from wonder_server.settings import Settings

_log = logger("server")

STANDARD_LIBRARY: Final = Path(__file__).parents[1] / "std"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationServices:
    """The use cases of one server."""

    library: PerScope[Library]
    artifacts: PerScope[Artifacts]
    files: PerScope[FileContents]
    request_files: FilledRequests
    repositories: RepositoryService
    memory: PerScope[MemoryService]
    memory_blocks: PerScope[MemoryBlockService]
    memory_operations: MemoryOperations
    garbage_collector: MemoryGarbageCollector
    workers: WorkerPools
    executor: Executor
    budgets: Budgets
    project_removals: ProjectRemovals


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemoryServices:
    memory: PerScope[MemoryService]
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
            platform.open_vectors(settings, stores.internal.memory.vectors, clients.embedder)
        )
        memory = await stack.enter_async_context(_open_memory(stores, clients, vectors, clock))
        library = await stack.enter_async_context(
            _open_library(settings, stores, clients, memory.garbage_collector, clock)
        )
        await _ensure_standard(library.of(SERVER), stores)
        repositories = _repositories(clients, library.of(SERVER))
        await repositories.worktrees.start()
        artifacts = _artifacts(stores, clients, library)
        files = await stack.enter_async_context(_open_files(settings, stores, library))
        request_files = FilledRequests(files.of(SERVER))
        stack.callback((workers := _worker_pools(settings, clock)).close)
        memory_blocks = stores.per_scope(lambda views: MemoryBlockService(views.memory_blocks, clock))
        budgets = Budgets(stores.of(SERVER).accounts, directory, clients.prices)

        def services(views: StoreViews) -> ActionServices:
            scope = views.scope
            own_library, own_files = library.within(scope), files.within(scope)
            return ActionServices(
                models=_model_access(clients, directory, budgets, request_files, own_library),
                memory=memory.memory.within(scope),
                history=AgentHistory(views.records),
                memory_blocks=memory_blocks.within(scope),
                network=NetworkAccess(web=clients.web, mcp=clients.mcp, policies=own_library),
                clock=clock,
                content=ContentAccess(artifacts.within(scope), repositories, own_files),
                execution=ExecutionAccess(
                    sandbox=clients.sandbox,
                    worktrees=repositories.worktrees,
                    workers=workers.of(scope.tenant or DEFAULT_TENANT),
                ),
            )

        executor = Executor(stores.per_scope(services), clock, monotonic_s=asyncio.get_running_loop().time)
        yield ApplicationServices(
            library=library,
            artifacts=artifacts,
            files=files,
            request_files=request_files,
            repositories=repositories,
            memory=memory.memory,
            memory_blocks=memory_blocks,
            memory_operations=MemoryOperations(memory.memory, clock),
            garbage_collector=memory.garbage_collector,
            workers=workers,
            executor=executor,
            budgets=budgets,
            project_removals=_project_removals(stores, (artifacts.of(SERVER), repositories.worktrees)),
        )


def _project_removals(stores: Stores, contents: tuple[ProjectContent, ...]) -> ProjectRemovals:
    return ProjectRemovals(stores.internal.removed_projects, stores.of(SERVER).catalog, contents)


def _worker_pools(settings: Settings, clock: Clock) -> WorkerPools:
    lease_ms = settings.worker_lease_seconds * 1_000
    return WorkerPools(lambda: WorkerPool(clock, lease_ms=lease_ms, reserved=ACTIONS))


@asynccontextmanager
async def _open_memory(
    stores: Stores, clients: Clients, vectors: Vectors, clock: Clock
) -> AsyncIterator[_MemoryServices]:
    """Build what agents remember with, and compute missing vectors in the background."""
    store, whole = stores.internal.memory, stores.of(SERVER)
    placement = stores.internal.placement
    owns = partial(owns_key, placement)
    large_contents = LargeContents(stores.internal.blobs, store.maintenance, owns)
    reembedder = Reembedder(
        store=store.reembedding,
        large_contents=large_contents,
        vectors=vectors,
        embedder=clients.embedder,
        owns=owns,
    )
    garbage_collector = MemoryGarbageCollector(
        maintenance=store.maintenance,
        index_residue=store.residue,
        large_contents=large_contents,
        vectors=vectors,
        agents=whole.catalog,
        owns=owns,
    )
    index = SemanticIndex(
        vectors=whole.vectors(vectors),
        source=whole.vector_source,
        embedder=clients.embedder,
        on_missing_vectors=reembedder.wake,
    )
    memory = MemoryService(memories=whole.memories, large_contents=large_contents, index=index, clock=clock)
    store.watch_lost_vectors(reembedder.wake)
    placement.watch(_WakeOnGain(reembedder))
    reembedder.start()
    try:
        yield _MemoryServices(
            memory=stores.per_scope(
                lambda views: memory.within(
                    views.memories, index.within(views.vectors(vectors), views.vector_source)
                )
            ),
            garbage_collector=garbage_collector,
        )
    finally:
        await garbage_collector.stop()
        await reembedder.close()


@dataclass(frozen=True, slots=True)
class _WakeOnGain:
    """Embeds the memories of agents that this node gains. Implements the port ``PlacementListener``."""

    reembedder: Reembedder

    def gained(self, shard: int, epoch: int) -> None:
        self.reembedder.wake()

    def lost(self, shard: int) -> None:
        return


def _model_access(
    clients: Clients, directory: Directory, budgets: Budgets, files: FilledRequests, library: Library
) -> ModelAccess:
    return ModelAccess(
        model=clients.model,
        default_profile=clients.providers.default,
        prices=clients.prices,
        usage_reporter=UsageReporter(directory),
        budgets=budgets,
        files=files,
        profiles=library,
        resolve=clients.providers.resolve,
    )


@asynccontextmanager
async def _open_library(
    settings: Settings,
    stores: Stores,
    clients: Clients,
    garbage_collector: MemoryGarbageCollector,
    clock: Clock,
) -> AsyncIterator[PerScope[Library]]:
    """Build the use cases of the catalog. On exit, end requests for lists of tools."""
    max_age_s, monotonic_s = settings.mcp_tools_max_age_seconds, asyncio.get_running_loop().time
    configured = frozenset(each.name for each in settings.mcp_servers)
    tool_sources = ToolSources(clients.mcp, max_age_s, monotonic_s, configured)
    whole = Library(
        stores.of(SERVER).catalog,
        clock,
        actions={name: kind.input_schema for name, kind in ACTIONS.items()},
        models=ModelRules(
            resolve_profile=clients.providers.resolve,
            add_model_facts=clients.prices.with_model_facts,
            max_result_bytes=settings.max_tool_result_bytes,
            providers=settings.provider_names,
        ),
        deletion_hooks=DeletionHooks(
            before_agent=[garbage_collector.before_delete], after_agent=[garbage_collector.after_delete]
        ),
        tool_sources=tool_sources,
    )
    try:
        yield stores.per_scope(
            lambda views: whole if views.scope == ALL_RECORDS else whole.within(views.catalog)
        )
    finally:
        await tool_sources.close()


def _repositories(clients: Clients, library: Library) -> RepositoryService:
    """Build the use cases of repositories. Their callers found the project through a view."""
    access = RepositoryAccess(
        repositories=clients.git.repositories,
        origins=clients.git.origins,
        workspaces=clients.git.workspaces,
        projects=library.projects,
    )
    return RepositoryService(access, release=clients.sandbox.release)


def _artifacts(stores: Stores, clients: Clients, library: PerScope[Library]) -> PerScope[Artifacts]:
    documents = clients.git.artifacts
    views = stores.of(SERVER)
    whole = Artifacts(
        views.repositories(documents), library.of(SERVER).project_id, RemovedCommits(views.catalog)
    )
    return stores.per_scope(
        lambda views: whole.within(views.repositories(documents), library.within(views.scope).project_id)
    )


@asynccontextmanager
async def _open_files(
    settings: Settings, stores: Stores, library: PerScope[Library]
) -> AsyncIterator[PerScope[FileContents]]:
    """Build the use cases of files, and remove unreferenced objects in the background."""
    owns = partial(owns_key, stores.internal.placement)
    objects = ObjectReservations(stores.internal.blobs, stores.internal.file_objects, owns)
    limits = FileLimits(max_bytes=settings.max_file_bytes, media_types=settings.media_types)
    whole = FileContents(library.of(SERVER), stores.internal.blobs, objects, limits)
    async with open_background() as background:
        background.start("files", collect_forever(objects))
        try:
            yield stores.per_scope(
                lambda views: (
                    whole if views.scope == ALL_RECORDS else whole.within(library.within(views.scope))
                )
            )
        finally:
            await objects.close()


async def _ensure_standard(library: Library, stores: Stores) -> None:
    """Update the standard library. While the disk is full, log the failure and keep the old one."""
    try:
        await library.ensure_standard(STANDARD_LIBRARY)
    except WonderError as problem:
        if stores.internal.disk_full_error() is None:
            raise
        _log.warning("standard_library_not_updated", problem=str(problem))
