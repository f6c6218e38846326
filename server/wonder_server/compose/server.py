"""A server, put together from its settings."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from wonder_server.actors.archive.archiver import Archiver
from wonder_server.actors.conversation.call_agent import AgentCallService
from wonder_server.actors.conversation.context_preview import ContextPreviews
from wonder_server.actors.conversation.conversations import Conversations
from wonder_server.actors.conversation.expiry_sweeper import ExpirySweeper
from wonder_server.actors.conversation.lifecycle import ConversationLifecycle
from wonder_server.actors.dispatch.dry_run import DryRuns
from wonder_server.actors.dispatch.handlers import Handlers
from wonder_server.actors.runs.consolidation import ConsolidationRuns
from wonder_server.actors.runs.runs import Runs
from wonder_server.actors.runtime.loop import Loop
from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.actors.usage.agent_budgets import AgentBudgets
from wonder_server.actors.usage.usage_reporter import UsageReporter
from wonder_server.adapters.faiss.vectors import FaissVectors
from wonder_server.adapters.files.blobs import FileBlobs
from wonder_server.adapters.files.disk_space import DiskSpaceGuard, free_bytes
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import GIT_ENVIRONMENT, Git, ThreadPool
from wonder_server.adapters.git.workspaces import GitWorkspaces
from wonder_server.adapters.in_memory.journal import MemoryJournal
from wonder_server.adapters.mcp.servers import McpServers, ServerConfig
from wonder_server.adapters.models.bounded import BoundedModel, Bounds
from wonder_server.adapters.models.common.endpoints import missing_key
from wonder_server.adapters.models.defaults import default_profile, resolve_profile
from wonder_server.adapters.models.prices import LiteLLMPrices
from wonder_server.adapters.s3.blobs import S3Blobs
from wonder_server.adapters.sqlite.catalog.store import SqliteCatalog
from wonder_server.adapters.sqlite.memory.embeddings import SqliteReembedding
from wonder_server.adapters.sqlite.memory.maintenance import SqliteMemoryMaintenance
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.adapters.sqlite.shard.archives import SqliteArchives
from wonder_server.adapters.sqlite.shard.shards import SqliteShards
from wonder_server.adapters.sqlite.shard.usage import SqliteAccounts
from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.compose.clock import SystemClock
from wonder_server.compose.parts import (
    log_failure,
    make_egress,
    make_embedder,
    make_endpoints,
    make_model,
    make_origins,
    make_sandbox,
    open_blobs,
    pack_daily,
    preload,
    watch_disk,
)
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.blobs import Blobs
from wonder_server.ports.embedder import Embedder
from wonder_server.rpc.conversation.servicer import ConversationParts, ConversationServicer
from wonder_server.rpc.coordinator.servicer import CoordinatorServicer
from wonder_server.rpc.executor.servicer import ExecutorServicer, LocalKinds, RequestLookups
from wonder_server.rpc.library.servicer import LibraryServicer
from wonder_server.rpc.memory.servicer import MemoryServicer
from wonder_server.rpc.server.authorization import ScopeGrants
from wonder_server.rpc.server.call_slots import ExternalBlobs
from wonder_server.services.actions import ACTIONS, Services
from wonder_server.services.catalog.library import Library
from wonder_server.services.content.artifacts import Artifacts
from wonder_server.services.content.repositories import RepositoryService
from wonder_server.services.content.worktree_recovery import remove_orphaned_worktrees
from wonder_server.services.memory.garbage_collection import MemoryGarbageCollector
from wonder_server.services.memory.large_contents import LargeContents
from wonder_server.services.memory.operations import MemoryOperations
from wonder_server.services.memory.reembedding import Reembedder
from wonder_server.services.memory.retention import Retention
from wonder_server.services.memory.service import MemoryService
from wonder_server.services.tasks.executor import Executor
from wonder_server.services.workers import WorkerPool
from wonder_server.settings import Settings, inherited_environment

_log = logger("server")

STANDARD_LIBRARY: Final = Path(__file__).parents[1] / "std"

VECTOR_CACHE_BYTES: Final = 512 << 20
"""What the loaded vector indexes may take together."""

SWITCH_INTERVAL_S: Final = 0.003
"""Every SQLite call lets go of the interpreter lock, and a busy event loop gives it back this late. Shorter
costs more switches than it saves waiting, as writes come in few statements: at 1 ms a turn takes a sixth more
of the processor. At Python's usual 5 ms tokens of other streams wait longer for nothing."""


GC_THRESHOLDS: Final = (20_000, 5, 200)
"""When the garbage collector looks for cycles. Planners make many values and hardly ever a cycle: at Python's
usual 700 it takes a tenth of the event loop's time. The second number bounds the pause: with 20, a collection
beside 5,000 runs took up to 370 ms on a busy machine, in which no token went out."""


GIT_THREADS: Final = 8
"""Commands of git that run at once."""

LOCAL_GIT_THREADS: Final = 4
"""Repositories in folders of the host that are copied or merged into at once."""

REMOTE_GIT_THREADS: Final = 16
"""Repositories on other machines that are copied or pushed to at once. Most of these threads wait for the
network."""


class Application:
    """One server's inside. ``start`` opens the stores and takes up what was left."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._streams = StreamHub(settings.max_stream_backlog_events, settings.max_stream_backlog_bytes)
        provider_environment = settings.provider_environment()
        self._providers = make_endpoints(settings)
        self._profile = default_profile(provider_environment, self._providers)
        if problem := missing_key(self._profile.provider, self._providers):
            _log.warning("default_model_unavailable", model=settings.model_choice, reason=problem)
        self._prices = LiteLLMPrices()
        self._workers = WorkerPool(
            self._clock, lease_ms=settings.worker_lease_seconds * 1_000, reserved=ACTIONS
        )
        self._egress = make_egress()
        self._model = make_model(settings, self._providers, self._egress)
        self._web = GuardedWeb(self._egress.dialer)
        self._bounded_model = BoundedModel(
            self._model,
            Bounds(
                text=settings.max_message_bytes,
                arguments=settings.max_tool_arguments_bytes,
                raw=settings.max_raw_answer_bytes,
                answer=settings.max_answer_bytes,
            ),
        )
        self._mcp = McpServers([ServerConfig(**asdict(each)) for each in settings.mcp_servers], self._web)
        self._git = Git(inherited_environment(GIT_ENVIRONMENT))
        self._git_pool = ThreadPool(GIT_THREADS, "git")
        self._local_git_pool = ThreadPool(LOCAL_GIT_THREADS, "git-near")
        self._remote_git_pool = ThreadPool(REMOTE_GIT_THREADS, "git-far")
        self._budgets = AgentBudgets()
        self._sandbox = make_sandbox(settings, self._egress)
        self._blobs: FileBlobs | S3Blobs | None = None
        self._disk_space = DiskSpaceGuard(settings.data_dir, settings.disk_reserve_bytes)
        self._background: list[asyncio.Task[None]] = []
        self._servicers: dict[str, object] = {}
        self._executions: ExecutorServicer | None = None
        self._stores: list[SqliteShards | SqliteCatalog | SqliteMemories] = []
        self._vectors: FaissVectors | None = None
        self._embedder: Embedder | None = None
        self._reembedder: Reembedder | None = None
        self._garbage_collector: MemoryGarbageCollector | None = None
        self._retention: Retention | None = None
        self._handlers: Handlers | None = None
        self._loop: Loop | None = None
        self._lifecycle: ConversationLifecycle | None = None
        self._sweeper: ExpirySweeper | None = None

    @property
    def servicers(self) -> Mapping[str, object]:
        """Servicers by full service name; filled by `start`."""
        return self._servicers

    def disk_full_error(self) -> WonderError | None:
        """STORAGE_UNAVAILABLE for what needs room, while the disk has none."""
        return self._disk_space.write_rejection()

    async def start(self) -> None:
        """Open the stores, make sure of the standard library, hand out what the outboxes hold."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._sandbox.probe()
        gc.set_threshold(*GC_THRESHOLDS)
        shards, catalog, memories, blobs = await self._open_stores()
        memory, garbage_collector = self._memory_service(memories, blobs, catalog)
        library = self._library(catalog, garbage_collector)
        await self._ensure_standard(library)
        artifacts = await self._artifacts(library)
        repos = await self._repos(library)
        usage_reporter = UsageReporter()
        executor = Executor(
            Services(
                model=self._model,
                memory=memory,
                clock=self._clock,
                default_profile=self._profile,
                web=self._web,
                mcp=self._mcp,
                policies=library,
                workers=self._workers,
                prices=self._prices,
                usage_reporter=usage_reporter,
                artifacts=artifacts,
                repositories=repos,
                worktrees=repos,
                sandbox=self._sandbox,
            )
        )
        self._budgets = AgentBudgets(SqliteAccounts(shards))
        handlers = Handlers(
            tasks=executor,
            model=self._bounded_model,
            prices=self._prices,
            memory=MemoryOperations(memory, self._clock),
            streams=self._streams,
            agents=library,
            records=shards,
            clock=self._clock,
            budgets=self._budgets,
        )
        loop = Loop(
            (CONVERSATION, RUN),
            shards.of,
            self._clock,
            dispatch=handlers.dispatch,
            publish=self._streams.publish,
            idle_limit=self._settings.max_idle_actors,
            idle_bytes=self._settings.max_idle_actor_bytes,
        )
        archiver = Archiver(loop=loop, records=shards, archives=SqliteArchives(shards), blobs=blobs)
        handlers.attach(loop, archiver)
        usage_reporter.attach(loop)
        self._handlers, self._loop = handlers, loop
        self._build_servicers(library, artifacts, repos, memory, executor, loop, shards, archiver)
        self._start_background("leftovers", remove_orphaned_worktrees(repos, shards))
        await self._resume(loop, handlers, shards)
        garbage_collector.start()
        self._start_background("preload", asyncio.to_thread(preload))
        await self._start_sweepers()

    async def drain(self, grace_seconds: float) -> None:
        """Tell readers and workers, stop the work; what was under way stays in the outbox."""
        self._streams.drain()
        await self._drain_workers(grace_seconds / 2)
        async with asyncio.timeout(grace_seconds / 2):
            await self._stop_sweepers()
            if self._handlers is not None:
                await self._handlers.stop()
            if self._loop is not None:
                await self._loop.stop()

    async def close(self) -> None:
        """Close the stores."""
        await self._stop_sweepers()
        if self._handlers is not None:
            await self._handlers.stop()
        if self._loop is not None:
            await self._loop.stop()
        if self._executions is not None:
            await self._executions.close()
        self._workers.close()
        await self._sandbox.close()
        await self._mcp.close()
        await self._web.close()
        await self._model.close()
        for task in self._background:
            task.cancel()
        self._git.stop()
        await self._remote_git_pool.close()
        await self._local_git_pool.close()
        await self._git_pool.close()
        if self._garbage_collector is not None:
            await self._garbage_collector.stop()
        if self._reembedder is not None:
            await self._reembedder.close()
        if self._embedder is not None:
            await self._embedder.close()
        if self._vectors is not None:
            await self._vectors.close()
        await self._egress.close()
        for store in self._stores:
            await store.close()
        if isinstance(self._blobs, S3Blobs):
            await self._blobs.close()

    # --- pieces ---------------------------------------------------------------------------------

    async def _drain_workers(self, seconds: float) -> None:
        """What workers have in hand may come to its end: not all of it may be done again."""
        self._workers.drain(int(seconds * 1_000))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._workers.wait_until_idle()

    async def _start_sweepers(self) -> None:
        if self._sweeper is not None:
            await self._sweeper.recover()
            self._sweeper.start()
        if self._retention is not None:
            self._retention.start()

    async def _stop_sweepers(self) -> None:
        if self._sweeper is not None:
            await self._sweeper.stop()
        if self._retention is not None:
            await self._retention.stop()
        if self._lifecycle is not None:
            await self._lifecycle.close()

    async def _unavailable_actions(self) -> dict[str, str]:
        """Kinds of action that cannot be carried out on this machine, and why."""
        problem = await asyncio.shield(self._sandbox.probe())
        return {"shell": problem.fault.message} if problem is not None else {}

    async def _open_stores(self) -> tuple[SqliteShards, SqliteCatalog, SqliteMemories, Blobs]:
        """Open what the folder holds, and watch its disk."""
        data = self._settings.data_dir
        self._disk_space.update()
        row_types = {**RUN.row_types, **CONVERSATION.row_types}
        shards = await SqliteShards.open(data / "shards", self._settings.shard_count, row_types)
        self._stores.append(shards)
        if shards.count != self._settings.shard_count:
            _log.warning("shard_count_ignored", shards=shards.count, asked=self._settings.shard_count)
        # A store that is lost must not come back as an empty one.
        is_used = await shards.has_actors()
        catalog = await SqliteCatalog.open(data / "catalog.db", must_exist=is_used)
        self._stores.append(catalog)
        memories = await SqliteMemories.open(data / "memory.db", must_exist=is_used)
        self._stores.append(memories)
        self._blobs = blobs = await open_blobs(self._settings, self._egress.dialer)
        databases = [*shards.databases, catalog.database, memories.database]
        for database in databases:
            database.write_rejection = self._disk_space.write_rejection
            if self._settings.disk_reserve_bytes:
                await database.limit_log(self._settings.disk_reserve_bytes // 2)
                await database.overwrite_within(0 if self._disk_space.write_rejection() else free_bytes(data))
        self._start_background("disk", watch_disk(self._disk_space, data, databases))
        outside = ExternalBlobs(blobs) if isinstance(blobs, S3Blobs) else blobs
        return shards, catalog, memories, outside

    async def _ensure_standard(self, library: Library) -> None:
        try:
            await library.ensure_standard(STANDARD_LIBRARY)
        except WonderError as problem:
            if self._disk_space.write_rejection() is None:
                raise
            _log.warning("standard_library_not_updated", problem=str(problem))

    def _start_background(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Do it in the background, until the server ends."""
        self._background.append(asyncio.create_task(log_failure(name, work)))

    def _resolve_profile(self, profile: ModelProfile) -> ModelProfile:
        return resolve_profile(profile, self._profile, self._providers)

    def _library(self, catalog: SqliteCatalog, garbage_collector: MemoryGarbageCollector) -> Library:
        return Library(
            catalog,
            self._clock,
            actions={name: kind.input_schema for name, kind in ACTIONS.items()},
            providers=self._settings.provider_names,
            resolve_profile=self._resolve_profile,
            add_context_window=self._prices.with_context_window,
            before_agent_delete=[garbage_collector.before_delete],
            after_agent_delete=[garbage_collector.after_delete],
        )

    async def _artifacts(self, library: Library) -> Artifacts:
        problem = await self._git_pool.run(self._git.probe)
        if problem:
            _log.warning("git_unavailable", why=problem)
        repositories = GitRepositories(self._git, self._git_pool, self._settings.data_dir / "artifacts")
        await repositories.remove_leftovers()
        self._start_background("packing", pack_daily(repositories))
        return Artifacts(repositories, library.project_id)

    async def _repos(self, library: Library) -> RepositoryService:
        data = self._settings.data_dir
        repositories = GitRepositories(self._git, self._git_pool, data / "repositories")
        await repositories.remove_leftovers()
        self._start_background("packing", pack_daily(repositories))
        workspaces = GitWorkspaces(
            repositories, self._git_pool, data / "worktrees", self._settings.worktree_bytes
        )
        await workspaces.remove_leftovers()
        repos = RepositoryService(
            repositories=repositories,
            origins=make_origins(
                self._settings, repositories, self._local_git_pool, self._remote_git_pool, self._egress
            ),
            workspaces=workspaces,
            projects=library.projects,
            release=self._sandbox.release,
        )
        await repos.start()
        return repos

    def _memory_service(
        self, memories: SqliteMemories, blobs: Blobs, catalog: SqliteCatalog
    ) -> tuple[MemoryService, MemoryGarbageCollector]:
        self._embedder = embedder = make_embedder(self._settings, self._egress)
        notes = SqliteMemoryMaintenance(memories)
        overflow = LargeContents(blobs, notes)
        self._vectors = FaissVectors(
            memories,
            embedder.name,
            embedder.dimensions,
            max_bytes=VECTOR_CACHE_BYTES,
            folder=self._settings.data_dir / "vectors",
        )
        self._reembedder = Reembedder(
            store=SqliteReembedding(memories),
            large_contents=overflow,
            vectors=self._vectors,
            embedder=embedder,
        )
        memories.on_lost_vectors = self._reembedder.wake
        self._reembedder.start()
        self._garbage_collector = MemoryGarbageCollector(
            maintenance=notes,
            index_residue=notes,
            large_contents=overflow,
            vectors=self._vectors,
            agents=catalog,
        )
        service = MemoryService(
            memories=memories,
            large_contents=overflow,
            source=memories,
            vectors=self._vectors,
            embedder=embedder,
            clock=self._clock,
            on_missing_vectors=self._reembedder.wake,
        )
        return service, self._garbage_collector

    def _build_servicers(
        self,
        library: Library,
        artifacts: Artifacts,
        repos: RepositoryService,
        memory: MemoryService,
        executor: Executor,
        loop: Loop,
        shards: SqliteShards,
        archiver: Archiver,
    ) -> None:
        conversations = Conversations(
            loop=loop,
            journals=shards,
            records=shards,
            streams=self._streams,
            agents=library,
            clock=self._clock,
            archive=archiver,
            expire_after_ms=self._settings.conversation_ttl_seconds * 1_000,
            budgets=self._budgets,
        )
        self._lifecycle = lifecycle = ConversationLifecycle(
            loop=loop,
            journals=shards,
            records=shards,
            streams=self._streams,
            agents=library,
            conversations=conversations,
        )
        dry_runs = DryRuns(executor, self._clock, MemoryJournal)
        previews = ContextPreviews(conversations, dry_runs, self._clock)
        every_s = self._settings.sweep_interval_seconds
        self._sweeper = ExpirySweeper(
            archiver=archiver, lifecycle=lifecycle, records=shards, clock=self._clock, interval_s=every_s
        )
        agent_calls = AgentCallService(
            loop=loop,
            journals=shards,
            conversations=conversations,
            streams=self._streams,
            agents=library,
            clock=self._clock,
            budgets=self._budgets,
        )
        runs = Runs(
            loop=loop,
            journals=shards,
            records=shards,
            streams=self._streams,
            workflows=library,
            clock=self._clock,
            branches=repos,
        )
        self._retention = self._build_retention(memory, library, runs)
        rights = ScopeGrants.from_settings(self._settings)
        self._executions = ExecutorServicer(
            executor,
            RequestLookups(library, library, conversations),
            clock=self._clock,
            local_kinds=LocalKinds(unavailable=self._unavailable_actions),
            workers=self._workers,
            grants=rights,
        )
        self._servicers.update(
            {
                "wonder.v1.ConversationService": self._conversation_servicer(
                    ConversationParts(conversations, lifecycle, agent_calls, previews, runs.lookup),
                    library,
                    repos,
                    rights,
                ),
                "wonder.v1.CoordinatorService": CoordinatorServicer(runs, library, archiver, rights),
                "wonder.v1.ExecutorService": self._executions,
                "wonder.v1.LibraryService": LibraryServicer(
                    library, artifacts, SqliteAccounts(shards), repos, rights
                ),
                "wonder.v1.MemoryService": MemoryServicer(memory, library, rights),
            }
        )

    def _conversation_servicer(
        self, parts: ConversationParts, library: Library, repos: RepositoryService, grants: ScopeGrants
    ) -> ConversationServicer:
        return ConversationServicer(
            parts,
            library,
            repos,
            grants=grants,
            attach_timeout_s=float(self._settings.attach_seconds),
        )

    def _build_retention(self, memory: MemoryService, library: Library, runs: Runs) -> Retention:
        return Retention(
            memories=memory,
            agents=library,
            consolidation_runner=ConsolidationRuns(runs),
            clock=self._clock,
            interval_s=self._settings.sweep_interval_seconds,
        )

    async def _resume(self, loop: Loop, handlers: Handlers, shards: SqliteShards) -> None:
        unfinished = await shards.unfinished()
        loop.resume(unfinished)
        orphans = await handlers.cancel_orphans()
        if unfinished:
            _log.info("actors_resumed", actors=len(unfinished), orphans=orphans)


def build(settings: Settings) -> Application:
    """A server's inside, not yet started."""
    return Application(settings)
