"""Stores: the journals, the catalog, the memories and the objects of a server.

`open_stores` opens them in the data folder. The rest of the server reaches what clients store through
``stores.of(principal)``, the views of one access scope. A test can open stores in memory instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.faiss.vectors import FaissVectors
from wonder_server.adapters.files.blobs import FileBlobs
from wonder_server.adapters.files.disk_space import DiskSpaceGuard, free_bytes
from wonder_server.adapters.placement.local import LocalPlacement
from wonder_server.adapters.s3.blobs import S3Blobs, S3Config
from wonder_server.adapters.scoped.catalog import CatalogView
from wonder_server.adapters.scoped.memories import (
    AgentCheck,
    MemoriesView,
    MemoryBlocksView,
    RepositoriesView,
    VectorSourceView,
    VectorsView,
)
from wonder_server.adapters.scoped.records import AccountsView, JournalsView, RecordsView
from wonder_server.adapters.sqlite.catalog.files import SqliteFileObjects
from wonder_server.adapters.sqlite.catalog.removed_projects import SqliteRemovedProjects
from wonder_server.adapters.sqlite.catalog.store import SqliteCatalog
from wonder_server.adapters.sqlite.catalog.tenancy import SqliteTenancy
from wonder_server.adapters.sqlite.database import Database
from wonder_server.adapters.sqlite.memory.blocks import SqliteMemoryBlocks
from wonder_server.adapters.sqlite.memory.embeddings import SqliteReembedding
from wonder_server.adapters.sqlite.memory.maintenance import SqliteMemoryMaintenance
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.adapters.sqlite.shard.archives import SqliteArchives
from wonder_server.adapters.sqlite.shard.shards import SqliteShards
from wonder_server.adapters.sqlite.shard.usage import SqliteAccounts
from wonder_server.adapters.sqlite.statistics import SqliteStatistics
from wonder_server.compose.background import open_background
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.errors import WonderError
from wonder_server.core.identity import Principal
from wonder_server.logs import logger
from wonder_server.ports.access import AccessScope, PerScope, ScopeOf, all_records
from wonder_server.ports.accounts import Accounts
from wonder_server.ports.archives import Archives
from wonder_server.ports.blobs import Blobs, UnreferencedObjects
from wonder_server.ports.catalog import CatalogStore, RemovedProjects
from wonder_server.ports.embedder import Embedder
from wonder_server.ports.failpoints import NO_FAILPOINTS, Failpoints
from wonder_server.ports.holds import Holds
from wonder_server.ports.journal import Journals
from wonder_server.ports.memories import IndexResidue, Memories, MemoryMaintenance
from wonder_server.ports.memory_blocks import MemoryBlocks
from wonder_server.ports.placement import Placement
from wonder_server.ports.records import Records
from wonder_server.ports.repositories import Repositories
from wonder_server.ports.scoped import (
    ScopedAccounts,
    ScopedCatalog,
    ScopedJournals,
    ScopedMemories,
    ScopedMemoryBlocks,
    ScopedRecords,
    ScopedRepositories,
    ScopedVectors,
    ScopedVectorSource,
)
from wonder_server.ports.statistics import StoreStatistics
from wonder_server.ports.tenancy import Audit, TenancyStore
from wonder_server.ports.vectors import Reembedding, Vectors, VectorSource
from wonder_server.record.journals import StoredJournals
from wonder_server.rpc.server.call_slots import ExternalBlobs
from wonder_server.services.tenancy.directory import PrincipalDirectory
from wonder_server.services.tenancy.scopes import PrincipalScopes
from wonder_server.services.tenancy.tenants import TenantIndex
from wonder_server.settings import Settings

_log = logger("server")

T = TypeVar("T")

DISK_CHECK_INTERVAL_S: Final = 1.0
"""Seconds between two checks of the free space on the disk."""

VECTOR_CACHE_BYTES: Final = 512 << 20
"""Maximum total size of the vector indexes in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUpkeep:
    """The parts of the store of memories for the server's own work."""

    vectors: VectorSource
    """All vectors, from which the indexes are built."""
    maintenance: MemoryMaintenance
    residue: IndexResidue
    reembedding: Reembedding
    watch_lost_vectors: Callable[[Callable[[], object]], None]
    """Set the function that the store calls after it dropped damaged vectors."""


class StoredTenants(TenancyStore, Audit, Protocol):
    """The store of principals, keys and role bindings, and the audit of their changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalStores:
    """Ports of the server's own work: the loops, archiving, and the upkeep of memories. No request reaches
    them."""

    journals: Journals
    """The journals of the loops."""
    archives: Archives
    placement: Placement
    """The owners of shards; opening it made this node the owner of its shards."""
    memory: MemoryUpkeep
    blobs: Blobs
    file_objects: UnreferencedObjects
    """The objects of files that no file refers to."""
    removed_projects: RemovedProjects
    tenancy: StoredTenants
    disk_full_error: Callable[[], WonderError | None]
    """Return STORAGE_UNAVAILABLE while the disk is full, else None."""
    statistics: StoreStatistics | None = None
    """Numbers for metrics; None if the stores have none."""
    databases: Sequence[Database] = ()
    """The databases of the data folder, for backups."""
    object_holds: Sequence[Holds] = ()
    """The objects of the data folder; none if a bucket has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAdapters:
    """The open stores, by their ports. Only `Stores` reads them."""

    records: Records
    accounts: Accounts
    catalog: CatalogStore
    memories: Memories
    memory_blocks: MemoryBlocks
    internal: InternalStores


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreViews:
    """Views of all stores for one access scope."""

    scope: AccessScope
    journals: ScopedJournals
    records: ScopedRecords
    accounts: ScopedAccounts
    catalog: ScopedCatalog
    memories: ScopedMemories
    memory_blocks: ScopedMemoryBlocks
    vector_source: ScopedVectorSource

    def vectors(self, vectors: Vectors) -> ScopedVectors:
        """Return a view of the vector indexes, which are no store: the server builds them."""
        return VectorsView(vectors, AgentCheck(self.catalog, self.scope))

    def repositories(self, repositories: Repositories) -> ScopedRepositories:
        """Return a view of the documents, whose repositories have the ids of projects as names."""
        return RepositoriesView(repositories, self.scope)


class Stores:
    """The stores of a server. ``scope_of`` returns the access scope of a caller.

    ``principals`` are those of the store of tenants, in memory; ``tenants`` has what each of them owns.
    """

    def __init__(
        self,
        adapters: StoreAdapters,
        scope_of: ScopeOf = all_records,
        principals: PrincipalDirectory | None = None,
        tenants: TenantIndex | None = None,
    ) -> None:
        self.principals = principals or PrincipalDirectory()
        self.tenants = tenants or TenantIndex()
        self._adapters = adapters
        self._scope_of = scope_of
        self._views = PerScope(self._open_views, scope_of)

    def of(self, principal: Principal) -> StoreViews:
        """Return the views of a principal."""
        return self._views.of(principal)

    def per_scope(self, build: Callable[[StoreViews], T]) -> PerScope[T]:
        """Return a service that is reached by principal, built once over the views of each access scope."""
        return PerScope(lambda scope: build(self._views.within(scope)), self._scope_of)

    @property
    def internal(self) -> InternalStores:
        """The ports of the server's own work."""
        return self._adapters.internal

    def _open_views(self, scope: AccessScope) -> StoreViews:
        adapters = self._adapters
        records = RecordsView(adapters.records, scope)
        catalog = CatalogView(adapters.catalog, scope, self.tenants.apply)
        check = AgentCheck(catalog, scope)
        return StoreViews(
            scope=scope,
            journals=JournalsView(adapters.internal.journals, records),
            records=records,
            accounts=AccountsView(adapters.accounts, catalog, records, scope),
            catalog=catalog,
            memories=MemoriesView(adapters.memories, check),
            memory_blocks=MemoryBlocksView(adapters.memory_blocks, check),
            vector_source=VectorSourceView(adapters.internal.memory.vectors, check),
        )


@asynccontextmanager
async def open_stores(
    settings: Settings, egress: Egress, failpoints: Failpoints = NO_FAILPOINTS
) -> AsyncIterator[Stores]:
    """Open the stores of the data folder and watch its disk. Errors: STORAGE_UNAVAILABLE."""
    data = settings.data_dir
    disk_space = DiskSpaceGuard(data, settings.disk_reserve_bytes)
    disk_space.update()
    async with AsyncExitStack() as stack:
        shards = await SqliteShards.open(data / "shards", settings.shard_count)
        stack.push_async_callback(shards.close)
        if shards.file_count != settings.shard_count:
            _log.warning("shard_count_ignored", shards=shards.file_count, asked=settings.shard_count)
        # A folder with actors must not get an empty catalog or memory store in place of a lost one.
        is_used = await shards.has_actors()
        catalog = await SqliteCatalog.open(data / "catalog.db", must_exist=is_used)
        stack.push_async_callback(catalog.close)
        memories = await SqliteMemories.open(data / "memory.db", must_exist=is_used)
        stack.push_async_callback(memories.close)
        blobs = await stack.enter_async_context(open_blobs(settings, egress))
        databases = [*shards.databases, catalog.database, memories.database]
        for database in databases:
            database.failpoints = failpoints
        journals = StoredJournals.on(shards.files, (CONVERSATION, RUN))
        await _reserve_disk_space(settings, disk_space, databases)
        background = await stack.enter_async_context(open_background())
        background.start("disk", watch_disk(disk_space, data, databases))
        tenancy, principals = SqliteTenancy(catalog), PrincipalDirectory()
        principals.load(await tenancy.load())
        tenants, names = TenantIndex(), await catalog.names()
        tenants.load(names.projects, names.libraries)
        yield Stores(
            StoreAdapters(
                records=journals,
                accounts=SqliteAccounts(shards),
                catalog=catalog,
                memories=memories,
                memory_blocks=SqliteMemoryBlocks(memories.database),
                internal=InternalStores(
                    journals=journals,
                    archives=SqliteArchives(shards),
                    placement=await LocalPlacement.open(journals),
                    memory=sqlite_memory_upkeep(memories),
                    blobs=blobs,
                    file_objects=SqliteFileObjects(catalog.database),
                    removed_projects=SqliteRemovedProjects(catalog.database),
                    tenancy=tenancy,
                    disk_full_error=disk_space.write_rejection,
                    statistics=SqliteStatistics(
                        shards.databases, {"catalog": catalog.database, "memory": memories.database}
                    ),
                    databases=databases,
                    object_holds=[blobs] if isinstance(blobs, FileBlobs) else [],
                ),
            ),
            PrincipalScopes(principals, tenants).scope_of,
            principals,
            tenants,
        )


def sqlite_memory_upkeep(memories: SqliteMemories) -> MemoryUpkeep:
    """Return the ports of an open SQLite store of memories for the server's own work."""

    def watch_lost_vectors(on_lost: Callable[[], object]) -> None:
        memories.on_lost_vectors = on_lost

    maintenance = SqliteMemoryMaintenance(memories)
    return MemoryUpkeep(
        vectors=memories,
        maintenance=maintenance,
        residue=maintenance,
        reembedding=SqliteReembedding(memories),
        watch_lost_vectors=watch_lost_vectors,
    )


@asynccontextmanager
async def open_vectors(
    settings: Settings, source: VectorSource, embedder: Embedder
) -> AsyncIterator[Vectors]:
    """Yield FAISS indexes over the stored vectors, with snapshots in the data folder."""
    vectors = FaissVectors(
        source,
        embedder.name,
        embedder.dimensions,
        max_bytes=VECTOR_CACHE_BYTES,
        folder=settings.data_dir / "vectors",
    )
    try:
        yield vectors
    finally:
        await vectors.close()


@asynccontextmanager
async def open_blobs(settings: Settings, egress: Egress) -> AsyncIterator[Blobs]:
    """Yield the store of objects: a bucket, or the folder ``blobs`` if the settings name no bucket."""
    if not settings.s3_endpoint:
        yield await FileBlobs.open(settings.data_dir / "blobs")
        return
    blobs = S3Blobs(
        S3Config(
            endpoint=settings.s3_endpoint,
            bucket=settings.s3_bucket,
            region=settings.s3_region,
            access_key=settings.s3_access_key,
            secret_key=settings.s3_secret_key,
        ),
        dialer=egress.dialer,
    )
    try:
        yield ExternalBlobs(blobs)
    finally:
        await blobs.close()


async def _reserve_disk_space(
    settings: Settings, disk_space: DiskSpaceGuard, databases: Sequence[Database]
) -> None:
    for database in databases:
        database.write_rejection = disk_space.write_rejection
        if settings.disk_reserve_bytes:
            await database.limit_log(disk_space.max_log_bytes())
            available = 0 if disk_space.write_rejection() else free_bytes(settings.data_dir)
            await database.overwrite_within(available)
    if disk_space.write_rejection():
        await _free_space(settings.data_dir, databases)


async def watch_disk(disk_space: DiskSpaceGuard, data: Path, databases: Sequence[Database]) -> None:
    """Check the free space every second.

    If space is short, keep the logs of the stores short and fold them, which needs some space itself. If the
    disk is full, also return the space of deleted records to the file system.
    """
    while True:
        await asyncio.sleep(DISK_CHECK_INTERVAL_S)
        is_full, max_log_bytes = disk_space.update(), disk_space.max_log_bytes()
        for database in databases:
            await database.limit_log(max_log_bytes)
            await database.overwrite_within(0 if is_full else free_bytes(data))
        if is_full:
            await _free_space(data, databases)
        elif disk_space.should_checkpoint(sum(database.log_bytes() for database in databases)):
            await checkpoint_logs(data, sorted(databases, key=Database.log_bytes))


async def _free_space(data: Path, databases: Sequence[Database]) -> None:
    """Fold the logs, the smallest first, and return the space of deleted records to the file system.

    A start on a full disk does it too, so that the first deletion finds space for its log.
    """
    logs = sorted(databases, key=Database.log_bytes)
    await checkpoint_logs(data, logs)
    for database in logs:
        await _shrink(data, database)


async def checkpoint_logs(data: Path, databases: Sequence[Database]) -> None:
    """Fold the logs in the given order. Pass the smallest first: each frees space for the next."""
    for database in databases:
        try:
            if database.log_bytes():
                await database.checkpoint(free_bytes(data))
        except WonderError as problem:
            _log.warning("store_not_shrunk", store=database.path.name, problem=str(problem))


async def _shrink(data: Path, database: Database) -> None:
    try:
        freed = await database.shrink(free_bytes(data))
    except WonderError as problem:
        _log.warning("store_not_shrunk", store=database.path.name, problem=str(problem))
    else:
        if freed:
            _log.info("store_shrunk", store=database.path.name, bytes=freed)
