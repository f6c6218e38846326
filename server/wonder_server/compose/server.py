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

from wonder_server.actors.attic import Attic
from wonder_server.actors.bills import Bills
from wonder_server.actors.consolidations import ConsolidationRuns
from wonder_server.actors.conversations import Conversations
from wonder_server.actors.handlers import Handlers
from wonder_server.actors.loop import Loop
from wonder_server.actors.previews import Previews
from wonder_server.actors.purses import Purses
from wonder_server.actors.rehearsal import Rehearsals
from wonder_server.actors.rooms import Rooms
from wonder_server.actors.runs import Runs
from wonder_server.actors.service_calls import ServiceCalls
from wonder_server.actors.streams import Streams
from wonder_server.actors.sweeper import Sweeper
from wonder_server.adapters.faiss.vectors import FaissVectors
from wonder_server.adapters.files.blobs import FileBlobs
from wonder_server.adapters.files.room import DiskRoom, free_bytes
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.run import GIT_ENVIRONMENT, Git, Pool
from wonder_server.adapters.git.workspaces import GitWorkspaces
from wonder_server.adapters.in_memory.journal import MemoryJournal
from wonder_server.adapters.mcp.servers import McpServers, Server
from wonder_server.adapters.models.bounded import BoundedModel, Bounds
from wonder_server.adapters.models.defaults import default_profile, settled
from wonder_server.adapters.models.endpoints import missing_key
from wonder_server.adapters.models.prices import LiteLLMPrices
from wonder_server.adapters.s3.blobs import S3Blobs
from wonder_server.adapters.sqlite.accounts import SqliteAccounts
from wonder_server.adapters.sqlite.archives import SqliteArchives
from wonder_server.adapters.sqlite.catalog import SqliteCatalog
from wonder_server.adapters.sqlite.memories import SqliteMemories
from wonder_server.adapters.sqlite.memory_embeddings import SqliteReembedding
from wonder_server.adapters.sqlite.memory_upkeep import SqliteMemoryUpkeep
from wonder_server.adapters.sqlite.shards import SqliteShards
from wonder_server.adapters.web.guarded import GuardedWeb
from wonder_server.compose.clock import SystemClock
from wonder_server.compose.parts import (
    logged,
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
from wonder_server.rpc.conversation import ConversationServicer
from wonder_server.rpc.coordinator import CoordinatorServicer
from wonder_server.rpc.executor import ExecutorServicer
from wonder_server.rpc.fair_places import OutsideBlobs
from wonder_server.rpc.library import LibraryServicer
from wonder_server.rpc.memory import MemoryServicer
from wonder_server.rpc.rights import Rights
from wonder_server.services.actions import ACTIONS, Services
from wonder_server.services.artifacts import Artifacts
from wonder_server.services.executor import Executor
from wonder_server.services.leftovers import forget_work_of_nobody
from wonder_server.services.library import Library
from wonder_server.services.memory import MemoryService
from wonder_server.services.memory_operations import MemoryOperations
from wonder_server.services.memory_upkeep import Upkeep
from wonder_server.services.overflow import Overflow
from wonder_server.services.reembedding import Reembedder
from wonder_server.services.repos import Repos
from wonder_server.services.retention import Retention
from wonder_server.services.workers import Workers
from wonder_server.settings import Settings, inherited

_log = logger("server")

STANDARD: Final = Path(__file__).parents[1] / "std"

VECTOR_CACHE_BYTES: Final = 512 << 20
"""What the loaded vector indexes may take together."""

SWITCH_INTERVAL_S: Final = 0.003
"""Every SQLite call lets go of the interpreter lock, and a busy event loop gives it back this late. Shorter
costs more switches than it saves waiting, as writes come in few statements: at 1 ms a turn takes a sixth more
of the processor. At Python's usual 5 ms tokens of other streams wait longer for nothing."""


COLLECT_AFTER: Final = (20_000, 5, 200)
"""When the garbage collector looks for cycles. Planners make many values and hardly ever a cycle: at Python's
usual 700 it takes a tenth of the event loop's time. The second number bounds the pause: with 20, a collection
beside 5,000 runs took up to 370 ms on a busy machine, in which no token went out."""


GIT_THREADS: Final = 8
"""Commands of git that run at once."""

NEAR_THREADS: Final = 4
"""Repositories in folders of the host that are copied or merged into at once."""

FAR_THREADS: Final = 16
"""Repositories on other machines that are copied or pushed to at once. Most of these threads wait for the
network."""


class Wonder:
    """One server's inside. ``start`` opens the stores and takes up what was left."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._streams = Streams(settings.max_stream_backlog_events, settings.max_stream_backlog_bytes)
        provider_environment = settings.provider_environment()
        self._providers = make_endpoints(settings)
        self._profile = default_profile(provider_environment, self._providers)
        if problem := missing_key(self._profile.provider, self._providers):
            _log.warning("default_model_unavailable", model=settings.model_choice, reason=problem)
        self._prices = LiteLLMPrices()
        self._workers = Workers(self._clock, lease_ms=settings.worker_lease_seconds * 1_000, reserved=ACTIONS)
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
        self._mcp = McpServers([Server(**asdict(each)) for each in settings.mcp_servers], self._web)
        self._git = Git(inherited(GIT_ENVIRONMENT))
        self._git_pool = Pool(GIT_THREADS, "git")
        self._near_pool = Pool(NEAR_THREADS, "git-near")
        self._far_pool = Pool(FAR_THREADS, "git-far")
        self._purses = Purses()
        self._sandbox = make_sandbox(settings, self._egress)
        self._blobs: FileBlobs | S3Blobs | None = None
        self._room = DiskRoom(settings.data_dir, settings.disk_reserve_bytes)
        self._keeping: list[asyncio.Task[None]] = []
        self._servicers: dict[str, object] = {}
        self._executions: ExecutorServicer | None = None
        self._stores: list[SqliteShards | SqliteCatalog | SqliteMemories] = []
        self._vectors: FaissVectors | None = None
        self._embedder: Embedder | None = None
        self._reembedder: Reembedder | None = None
        self._upkeep: Upkeep | None = None
        self._retention: Retention | None = None
        self._handlers: Handlers | None = None
        self._loop: Loop | None = None
        self._rooms: Rooms | None = None
        self._sweeper: Sweeper | None = None

    @property
    def servicers(self) -> Mapping[str, object]:
        """Servicers by full service name; filled by `start`."""
        return self._servicers

    def full(self) -> WonderError | None:
        """STORAGE_UNAVAILABLE for what needs room, while the disk has none."""
        return self._room.refusal()

    async def start(self) -> None:
        """Open the stores, make sure of the standard library, hand out what the outboxes hold."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._sandbox.probe()
        gc.set_threshold(*COLLECT_AFTER)
        shards, catalog, memories, blobs = await self._open_stores()
        memory, upkeep = self._memory_service(memories, blobs, catalog)
        library = self._library(catalog, upkeep)
        await self._ensure_standard(library)
        artifacts = await self._artifacts(library)
        repos = await self._repos(library)
        bills = Bills()
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
                bills=bills,
                artifacts=artifacts,
                repos=repos,
                worktrees=repos,
                sandbox=self._sandbox,
            )
        )
        self._purses = Purses(SqliteAccounts(shards))
        handlers = Handlers(
            tasks=executor,
            model=self._bounded_model,
            prices=self._prices,
            memory=MemoryOperations(memory, self._clock),
            streams=self._streams,
            agents=library,
            records=shards,
            clock=self._clock,
            purses=self._purses,
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
        attic = Attic(loop=loop, records=shards, archives=SqliteArchives(shards), blobs=blobs)
        handlers.attach(loop, attic)
        bills.attach(loop)
        self._handlers, self._loop = handlers, loop
        self._serve(library, artifacts, repos, memory, executor, loop, shards, attic)
        self._keep("leftovers", forget_work_of_nobody(repos, shards))
        await self._resume(loop, handlers, shards)
        upkeep.start()
        self._keep("preload", asyncio.to_thread(preload))
        await self._start_sweeping()

    async def drain(self, grace_seconds: float) -> None:
        """Tell readers and workers, stop the work; what was under way stays in the outbox."""
        self._streams.drain()
        await self._let_workers_finish(grace_seconds / 2)
        async with asyncio.timeout(grace_seconds / 2):
            await self._stop_sweeping()
            if self._handlers is not None:
                await self._handlers.stop()
            if self._loop is not None:
                await self._loop.stop()

    async def close(self) -> None:
        """Close the stores."""
        await self._stop_sweeping()
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
        for task in self._keeping:
            task.cancel()
        self._git.stop()
        await self._far_pool.close()
        await self._near_pool.close()
        await self._git_pool.close()
        if self._upkeep is not None:
            await self._upkeep.stop()
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

    async def _let_workers_finish(self, seconds: float) -> None:
        """What workers have in hand may come to its end: not all of it may be done again."""
        self._workers.drain(int(seconds * 1_000))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._workers.wait_until_idle()

    async def _start_sweeping(self) -> None:
        if self._sweeper is not None:
            await self._sweeper.finish()
            self._sweeper.start()
        if self._retention is not None:
            self._retention.start()

    async def _stop_sweeping(self) -> None:
        if self._sweeper is not None:
            await self._sweeper.stop()
        if self._retention is not None:
            await self._retention.stop()
        if self._rooms is not None:
            await self._rooms.close()

    async def _missing(self) -> dict[str, str]:
        """Kinds of action that cannot be carried out on this machine, and why."""
        problem = await asyncio.shield(self._sandbox.probe())
        return {"shell": problem.fault.message} if problem is not None else {}

    async def _open_stores(self) -> tuple[SqliteShards, SqliteCatalog, SqliteMemories, Blobs]:
        """Open what the folder holds, and watch its disk."""
        data = self._settings.data_dir
        self._room.look()
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
            database.refusal = self._room.refusal
            if self._settings.disk_reserve_bytes:
                await database.bound_log(self._settings.disk_reserve_bytes // 2)
                await database.overwrite_within(0 if self._room.refusal() else free_bytes(data))
        self._keep("disk", watch_disk(self._room, data, databases))
        outside = OutsideBlobs(blobs) if isinstance(blobs, S3Blobs) else blobs
        return shards, catalog, memories, outside

    async def _ensure_standard(self, library: Library) -> None:
        try:
            await library.ensure_standard(STANDARD)
        except WonderError as problem:
            if self._room.refusal() is None:
                raise
            _log.warning("standard_library_not_updated", problem=str(problem))

    def _keep(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Do it in the background, until the server ends."""
        self._keeping.append(asyncio.create_task(logged(what, work)))

    def _settle(self, profile: ModelProfile) -> ModelProfile:
        return settled(profile, self._profile, self._providers)

    def _library(self, catalog: SqliteCatalog, upkeep: Upkeep) -> Library:
        return Library(
            catalog,
            self._clock,
            actions={name: kind.input_schema for name, kind in ACTIONS.items()},
            providers=self._settings.provider_names,
            settle=self._settle,
            inform=self._prices.informed,
            before_agent_delete=[upkeep.before_delete],
            after_agent_delete=[upkeep.after_delete],
        )

    async def _artifacts(self, library: Library) -> Artifacts:
        problem = await self._git_pool.do(self._git.probe)
        if problem:
            _log.warning("git_unavailable", why=problem)
        repositories = GitRepositories(self._git, self._git_pool, self._settings.data_dir / "artifacts")
        await repositories.tidy()
        self._keep("packing", pack_daily(repositories))
        return Artifacts(repositories, library.project_id)

    async def _repos(self, library: Library) -> Repos:
        data = self._settings.data_dir
        repositories = GitRepositories(self._git, self._git_pool, data / "repositories")
        await repositories.tidy()
        self._keep("packing", pack_daily(repositories))
        workspaces = GitWorkspaces(
            repositories, self._git_pool, data / "worktrees", self._settings.worktree_bytes
        )
        await workspaces.tidy()
        repos = Repos(
            repositories=repositories,
            origins=make_origins(self._settings, repositories, self._near_pool, self._far_pool, self._egress),
            workspaces=workspaces,
            projects=library.projects,
            release=self._sandbox.release,
        )
        await repos.start()
        return repos

    def _memory_service(
        self, memories: SqliteMemories, blobs: Blobs, catalog: SqliteCatalog
    ) -> tuple[MemoryService, Upkeep]:
        self._embedder = embedder = make_embedder(self._settings, self._egress)
        notes = SqliteMemoryUpkeep(memories)
        overflow = Overflow(blobs, notes)
        self._vectors = FaissVectors(
            memories,
            embedder.name,
            embedder.dimensions,
            max_bytes=VECTOR_CACHE_BYTES,
            folder=self._settings.data_dir / "vectors",
        )
        self._reembedder = Reembedder(
            store=SqliteReembedding(memories), overflow=overflow, vectors=self._vectors, embedder=embedder
        )
        memories.on_lost_vectors = self._reembedder.wake
        self._reembedder.start()
        self._upkeep = Upkeep(
            upkeep=notes, traces=notes, overflow=overflow, vectors=self._vectors, agents=catalog
        )
        service = MemoryService(
            memories=memories,
            overflow=overflow,
            source=memories,
            vectors=self._vectors,
            embedder=embedder,
            clock=self._clock,
            without_vectors=self._reembedder.wake,
        )
        return service, self._upkeep

    def _serve(
        self,
        library: Library,
        artifacts: Artifacts,
        repos: Repos,
        memory: MemoryService,
        executor: Executor,
        loop: Loop,
        shards: SqliteShards,
        attic: Attic,
    ) -> None:
        conversations = Conversations(
            loop=loop,
            shards=shards,
            records=shards,
            streams=self._streams,
            agents=library,
            clock=self._clock,
            attic=attic,
            expire_after_ms=self._settings.conversation_ttl_seconds * 1_000,
            purses=self._purses,
        )
        self._rooms = rooms = Rooms(
            loop=loop,
            shards=shards,
            records=shards,
            streams=self._streams,
            agents=library,
            conversations=conversations,
        )
        rehearsals = Rehearsals(executor, self._clock, MemoryJournal)
        previews = Previews(conversations, rehearsals, self._clock)
        every_s = self._settings.sweep_interval_seconds
        self._sweeper = Sweeper(attic=attic, rooms=rooms, records=shards, clock=self._clock, every_s=every_s)
        calls = ServiceCalls(
            loop=loop,
            shards=shards,
            conversations=conversations,
            streams=self._streams,
            agents=library,
            clock=self._clock,
            purses=self._purses,
        )
        runs = Runs(
            loop=loop,
            shards=shards,
            records=shards,
            streams=self._streams,
            workflows=library,
            clock=self._clock,
            branches=repos,
        )
        self._retention = self._retain(memory, library, runs)
        rights = Rights.of(self._settings)
        self._executions = ExecutorServicer(
            executor,
            tasks=library,
            names=library,
            conversations=conversations,
            clock=self._clock,
            workers=self._workers,
            missing=self._missing,
            rights=rights,
        )
        self._servicers.update(
            {
                "wonder.v1.ConversationService": self._conversing(
                    conversations, rooms, calls, library, previews, repos, runs, rights
                ),
                "wonder.v1.CoordinatorService": CoordinatorServicer(runs, library, attic, rights),
                "wonder.v1.ExecutorService": self._executions,
                "wonder.v1.LibraryService": LibraryServicer(
                    library, artifacts, SqliteAccounts(shards), repos, rights
                ),
                "wonder.v1.MemoryService": MemoryServicer(memory, library, rights),
            }
        )

    def _conversing(
        self,
        conversations: Conversations,
        rooms: Rooms,
        calls: ServiceCalls,
        library: Library,
        previews: Previews,
        repos: Repos,
        runs: Runs,
        rights: Rights,
    ) -> ConversationServicer:
        return ConversationServicer(
            conversations,
            rooms,
            calls,
            library,
            previews,
            repos,
            runs.lookup,
            rights,
            float(self._settings.attach_seconds),
        )

    def _retain(self, memory: MemoryService, library: Library, runs: Runs) -> Retention:
        return Retention(
            memories=memory,
            agents=library,
            consolidations=ConsolidationRuns(runs),
            clock=self._clock,
            every_s=self._settings.sweep_interval_seconds,
        )

    async def _resume(self, loop: Loop, handlers: Handlers, shards: SqliteShards) -> None:
        unfinished = await shards.unfinished()
        loop.resume(unfinished)
        orphans = await handlers.sweep()
        if unfinished:
            _log.info("actors_resumed", actors=len(unfinished), orphans=orphans)


def build(settings: Settings) -> Wonder:
    """A server's inside, not yet started."""
    return Wonder(settings)
